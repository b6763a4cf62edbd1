"""The training curves of a run as one figure."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, PercentFormatter

from hornbook.report.drawing import (
    DARK,
    LIGHT,
    Colours,
    as_png,
    fit_height,
    grid_of,
    short_power,
    show_legend,
    smoothed,
    steps_below,
    thinned,
    write_png,
    write_title,
)
from hornbook.report.run import TOKENS, RunRecord

TITLES = {
    "loss": "Loss",
    "nsp": "Next-sentence loss (nsp)",
    "sop": "Sentence-order loss (sop)",
    "rtd": "Replaced-token detection loss (rtd)",
    "correction": "Loss on the original tokens at masked positions (correction)",
    "replace_mlm": "Loss on masked tokens filled in by the generator",
    "all_tokens_mlm": "Loss on all tokens",
    "policy": "Policy loss of the generator",
    "baseline": "Loss of the reward baseline",
}
CHANCE_LOSS = float(np.log(2))


def draw_curves(record: RunRecord, path: str | Path) -> None:
    """Writes the curves as a PNG file. Raises `ValueError` if the run has not logged anything yet."""
    write_png(Path(path), curves_png(record))


def curves_png(record: RunRecord, dark: bool = False, columns: int = 2) -> bytes:
    return as_png(curves_figure(record, DARK if dark else LIGHT, columns))


def curves_figure(record: RunRecord, colours: Colours = LIGHT, columns: int = 2) -> Figure:
    """One panel per loss, then accuracy, learning rate and speed, as far as the run has logged them."""
    panels = _panels(record)
    if not panels:
        raise ValueError(f"{record.folder} has no metrics yet: wait until the run has logged a few steps")
    figure = grid_of([lambda axes, draw=draw: draw(axes, record, colours) for draw in panels], colours, columns)
    first = figure.axes[0]
    show_legend(first, colours)
    _tokens_below(first, record)
    return figure


def _panels(record: RunRecord) -> list[Callable[[Axes, RunRecord, Colours], None]]:
    terms = record.terms
    losses = ["loss", *terms] if len(terms) > 1 else terms or ["loss"]
    panels = [lambda *to, name=name: _draw_loss(*to, name) for name in losses if _has(record, name)]
    if any(name.endswith("_accuracy") for name in (record.last_validation or {})):
        panels.append(_draw_accuracy)
    if np.isfinite(record.column("train", "lr")).any():
        panels.append(_draw_learning_rate)
    if np.isfinite(record.column("train", "tokens_per_second")).any():
        panels.append(_draw_speed)
    return panels


def _has(record: RunRecord, name: str) -> bool:
    return any(len(record.column(kind, name)) for kind in ("train", "validation"))


def _draw_loss(axes: Axes, record: RunRecord, colours: Colours, name: str) -> None:
    tokens = record.predicted_tokens.get(name)
    title = f"Loss on {tokens}s ({name})" if tokens else TITLES.get(name, f"Loss ({name})")
    write_title(axes, title, colours)
    steps, values = record.column("train", "step"), record.column("train", name)
    many = len(values) >= 40
    axes.plot(
        *thinned(steps, values),
        color=colours.train,
        alpha=0.3 if many else 0.9,
        linewidth=0.8 if many else 1.4,
        marker=None if many else ".",
        label=None if many else "training",
    )
    smooth = smoothed(values, max(7, len(values) // 40))
    if many:
        axes.plot(*thinned(steps, smooth), color=colours.train, linewidth=1.9, label="training, smoothed")
    at, found = record.column("validation", "step"), record.column("validation", name)
    if len(found):
        axes.plot(at, found, "o-", color=colours.validation, markersize=3.6, linewidth=1.0, label="validation")
    best = record.best_validation
    if best is not None and name in best:
        axes.plot(
            best["step"], best[name], "*", color=colours.validation, markersize=13, zorder=4, label="best validation"
        )
    reference = None
    if name in TOKENS and name in record.baseline:
        reference = _reference(axes, record.baseline[name], "unigram baseline", colours, "{:.2f}")
    elif name in ("nsp", "sop"):
        reference = _reference(axes, CHANCE_LOSS, "chance", colours, "{:.2f}")
    _mark_events(axes, record, colours, "event (see the report)")
    fit_height(axes, values, found, reference)
    steps_below(axes, record.step)


def _draw_accuracy(axes: Axes, record: RunRecord, colours: Colours) -> None:
    write_title(axes, "Accuracy on held-out text", colours)
    at = record.column("validation", "step")
    shades = iter((colours.validation, colours.third, colours.train))
    for name in [name for name in record.last_validation if name.endswith("_accuracy")]:
        shade = next(shades, colours.ink)
        axes.plot(
            at,
            record.column("validation", name),
            "o-",
            color=shade,
            markersize=3.6,
            label=name.removesuffix("_accuracy"),
        )
    for share in (value for name, value in record.baseline.items() if name.endswith("_accuracy")):
        _reference(axes, share, "most frequent token", colours, "{:.1%}")
    if "rtd_replaced" in record.last_validation:
        never = 1 - record.last_validation["rtd_replaced"]
        _reference(axes, never, "always predicting original", colours, "{:.1%}")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_ylim(bottom=0, top=min(1.0, axes.get_ylim()[1]))
    _mark_events(axes, record, colours)
    steps_below(axes, record.step)
    show_legend(axes, colours)


def _draw_learning_rate(axes: Axes, record: RunRecord, colours: Colours) -> None:
    write_title(axes, "Learning rate", colours)
    steps, rates = record.column("train", "step"), record.column("train", "lr")
    axes.plot(*thinned(steps, rates), color=colours.third, linewidth=1.7, marker="." if len(rates) < 40 else None)
    axes.yaxis.set_major_formatter(FuncFormatter(short_power))
    axes.set_ylim(bottom=0)
    _mark_events(axes, record, colours)
    steps_below(axes, record.step)


def _draw_speed(axes: Axes, record: RunRecord, colours: Colours) -> None:
    write_title(axes, "Tokens per second", colours)
    seconds, speed = record.column("train", "seconds"), record.column("train", "tokens_per_second")
    longest = np.nanmax(seconds, initial=0.0)
    unit, word = next(
        (u, w) for u, w in ((3600, "hours"), (60, "minutes"), (1, "seconds")) if longest >= 2 * u or u == 1
    )
    style = {"color": colours.third, "marker": "." if len(speed) < 40 else None}
    axes.plot(*thinned(seconds / unit, speed), linewidth=0.8, alpha=0.3, **style)
    axes.plot(*thinned(seconds / unit, smoothed(speed, max(7, len(speed) // 40))), color=colours.third, linewidth=1.7)
    axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_ylim(0, 1.15 * np.nanmax(speed) or 1.0)
    axes.set_xlim(left=0)
    axes.set_xlabel(f"{word} of training")


def _reference(axes: Axes, height: float, label: str, colours: Colours, form: str) -> float:
    axes.axhline(height, color=colours.ink, linestyle=(0, (5, 4)), linewidth=1.0, alpha=0.75)
    axes.annotate(
        f"{label}: {form.format(height)}",
        (0.99, height),
        xycoords=("axes fraction", "data"),
        xytext=(0, 4),
        textcoords="offset points",
        ha="right",
        fontsize=8,
        color=colours.ink,
        bbox={"facecolor": colours.paper, "edgecolor": "none", "alpha": 0.35, "pad": 1},
    )
    return height


def _mark_events(axes: Axes, record: RunRecord, colours: Colours, label: str | None = None) -> None:
    for number, event in enumerate(record.events[:50]):
        step = event.get("at_step", event["step"])
        axes.axvline(step, color=colours.ink, linestyle=":", linewidth=1.2, alpha=0.7, label=None if number else label)


def _tokens_below(axes: Axes, record: RunRecord) -> None:
    if record.step and record.tokens:
        each, short = record.tokens / record.step, EngFormatter(places=1, sep="")
        axes.xaxis.set_major_formatter(
            FuncFormatter(lambda step, _: f"{step:,.0f}\n{short(step * each) if step else ''}")
        )
        axes.set_xlabel("step, tokens seen")
