"""Learning curves as one figure: those of a pre-training run and those of a fine-tuning run."""

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, PercentFormatter

from hornbook.report import wording
from hornbook.report.finetuned import FinetunedRun
from hornbook.report.plots.drawing import (
    LIGHT,
    Colours,
    fit_height,
    grid_of,
    percent_axis,
    short_power,
    show_legend,
    smoothed,
    steps_below,
    thinned,
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
MANY = 40  # curves with at least this many points are smoothed
NOT_SCORES = {"kind", "step", "loss", "best", "mean_squared_error"}
MOST_SCORES = 4


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
    values, found = _draw_train_and_validation(axes, record, name, "validation", colours)
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


def _draw_train_and_validation(
    axes: Axes, record: RunRecord, name: str, label: str, colours: Colours
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the training values and the validation values."""
    steps, values = record.column("train", "step"), record.column("train", name)
    if len(values) >= MANY:
        axes.plot(*thinned(steps, values), color=colours.train, alpha=0.3, linewidth=0.8)
        smooth = smoothed(values, max(7, len(values) // 40))
        axes.plot(*thinned(steps, smooth), color=colours.train, linewidth=1.9, label="training, smoothed")
    elif len(values):
        axes.plot(steps, values, ".-", color=colours.train, linewidth=1.4, alpha=0.9, label="training")
    at, found = record.column("validation", "step"), record.column("validation", name)
    if len(found):
        axes.plot(at, found, "o-", color=colours.validation, markersize=3.8, linewidth=1.1, label=label)
    return values, found


def _draw_accuracy(axes: Axes, record: RunRecord, colours: Colours) -> None:
    write_title(axes, "Accuracy on held-out text", colours)
    at = record.column("validation", "step")
    shades = iter((colours.validation, colours.third, colours.train))
    for name in [name for name in record.last_validation if name.endswith("_accuracy")]:
        shade = next(shades, colours.ink)
        values, label = record.column("validation", name), name.removesuffix("_accuracy")
        axes.plot(at, values, "o-", color=shade, markersize=3.6, label=label)
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


# ---- fine-tuning


def learning_figure(run: FinetunedRun, colours: Colours = LIGHT, columns: int = 2) -> Figure:
    """Training and dev loss and, after the first validation, the dev scores; the best step is marked."""
    panels = [lambda axes: _draw_task_loss(axes, run, colours)]
    if _score_names(run):
        panels.append(lambda axes: _draw_task_scores(axes, run, colours))
    return grid_of(panels, colours, columns, height=3.3)


def _score_names(run: FinetunedRun) -> list[str]:
    """Names of the dev scores, the one used for model selection first."""
    named = [name for name in (run.record.last_validation or {}) if name not in NOT_SCORES]
    return sorted(named, key=lambda name: name != run.decided_by)[:MOST_SCORES]


def _draw_task_loss(axes: Axes, run: FinetunedRun, colours: Colours) -> None:
    record = run.record
    write_title(axes, "Loss", colours)
    values, found = _draw_train_and_validation(axes, record, "loss", "dev", colours)
    fit_height(axes, values, found, None)
    _mark_best(axes, run, colours)
    steps_below(axes, record.step)
    show_legend(axes, colours)


def _draw_task_scores(axes: Axes, run: FinetunedRun, colours: Colours) -> None:
    record, names = run.record, _score_names(run)
    write_title(axes, "Scores on dev", colours)
    at = record.column("validation", "step")
    shades = (colours.validation, colours.third, colours.train, colours.ink)
    for number, (name, shade) in enumerate(zip(names, shades, strict=False)):
        values = record.column("validation", name)
        width, see_through = (1.9, 1.0) if number == 0 else (1.1, 0.75)
        label = wording.measure(name) + (" (model selection)" if number == 0 and len(names) > 1 else "")
        axes.plot(at, values, "o-", color=shade, linewidth=width, alpha=see_through, markersize=4, label=label)
    best = run.best_validation
    if best is not None and names[0] in best:
        axes.plot(best["step"], best[names[0]], "*", color=colours.validation, markersize=14, zorder=4)
    unit = 1 if run.in_percent else 100
    if not set(names) & set(wording.NOT_SHARES):
        percent_axis(axes, unit)
    low, high = axes.get_ylim()
    margin = max(0.15 * (high - low), 0.02 * (100 / unit))
    axes.set_ylim(low - margin / 2, high + margin)
    _mark_best(axes, run, colours)
    steps_below(axes, record.step)
    show_legend(axes, colours)


def _mark_best(axes: Axes, run: FinetunedRun, colours: Colours) -> None:
    best = run.best_validation
    if best is None:
        return
    label = f"best, step {best['step']:,}"
    axes.axvline(best["step"], color=colours.ink, linestyle=(0, (4, 3)), linewidth=1.1, alpha=0.7, label=label)


def has_curves(run: FinetunedRun) -> bool:
    return bool(np.isfinite(run.record.column("train", "loss")).any() or run.record.validations)
