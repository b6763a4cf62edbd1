"""The curves of a run as one picture."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator, PercentFormatter

from hornbook.files import replacing
from hornbook.report.run import RunRecord

MOST_POINTS = 1500
TITLES = {"loss": "Loss", "mlm": "Loss on masked tokens (mlm)", "nsp": "Loss on the next sentence (nsp)"}
COIN = float(np.log(2))


@dataclass(frozen=True)
class Colours:
    paper: str
    ink: str
    faint: str
    train: str
    validation: str
    third: str


LIGHT = Colours("#ffffff", "#262a33", "#d9dce3", "#3566b8", "#d9622b", "#2f8f6b")
DARK = Colours("#1b1e25", "#d5d9e2", "#3a3f4b", "#7da7ee", "#f0935f", "#63c3a0")


def draw_curves(record: RunRecord, path: str | Path) -> None:
    """Writes the picture as a PNG file. A `ValueError` when the run has logged nothing yet."""
    with replacing(Path(path)) as temporary:
        temporary.write_bytes(curves_png(record))


def curves_png(record: RunRecord, dark: bool = False, columns: int = 2) -> bytes:
    file = io.BytesIO()
    figure = curves_figure(record, DARK if dark else LIGHT, columns)
    figure.savefig(file, format="png", dpi=130, facecolor=figure.get_facecolor())
    return file.getvalue()


def curves_figure(record: RunRecord, colours: Colours = LIGHT, columns: int = 2) -> Figure:
    """One panel each: the losses, accuracy, learning rate, speed; those that the run has numbers for."""
    panels = _panels(record)
    if not panels:
        raise ValueError(f"{record.folder} has no metrics yet: let the run go on for a few steps")
    columns = min(columns, len(panels))
    widen_first = len(panels) % columns
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(5.6 * columns, 2.9 * rows + 0.2), facecolor=colours.paper, layout="constrained")
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.12, wspace=0.03, hspace=0.03)
    grid = figure.add_gridspec(rows, columns)
    cells = [grid[0, :]] if widen_first else []
    cells += [grid[row, column] for row in range(bool(widen_first), rows) for column in range(columns)]
    for number, (draw, cell) in enumerate(zip(panels, cells, strict=False)):
        axes = figure.add_subplot(cell)
        _style(axes, colours)
        draw(axes, record, colours)
        if number == 0:
            _legend(axes, colours)
            _tokens_below(axes, record)
    return figure


def smoothed(values: np.ndarray, window: int) -> np.ndarray:
    """The mean over a window around each value, NaN left out; narrower at the start, where losses fall fast."""
    known = np.isfinite(values)
    sums = np.concatenate([[0.0], np.cumsum(np.where(known, values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(known)])
    places = np.arange(len(values))
    before = np.minimum(window // 2, places)
    first, last = places - before, places + np.minimum(before, len(values) - 1 - places) + 1
    with np.errstate(invalid="ignore", divide="ignore"):
        return (sums[last] - sums[first]) / (counts[last] - counts[first])


def thinned(x: np.ndarray, y: np.ndarray, most: int = MOST_POINTS) -> tuple[np.ndarray, np.ndarray]:
    """At most `most` of the points: the lowest and the highest of each stretch, so no spike is lost."""
    if len(x) <= most:
        return x, y
    stretches = np.array_split(np.arange(len(x)), most // 2)
    known = np.isfinite(y)
    low, high = np.where(known, y, np.inf), np.where(known, y, -np.inf)
    kept = np.unique([place for part in stretches for place in (part[low[part].argmin()], part[high[part].argmax()])])
    return x[kept], y[kept]


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
    _title(axes, TITLES.get(name, f"Loss ({name})"), colours)
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
    if name == "mlm" and "mlm" in record.baseline:
        reference = _reference(axes, record.baseline["mlm"], "guessing by word frequency", colours, "{:.2f}")
    elif name == "nsp":
        reference = _reference(axes, COIN, "tossing a coin", colours, "{:.2f}")
    _mark_events(axes, record, colours, "event, told of in the report")
    _fit_height(axes, values, found, reference)
    _steps_below(axes, record)


def _draw_accuracy(axes: Axes, record: RunRecord, colours: Colours) -> None:
    _title(axes, "Accuracy on held-out text", colours)
    at = record.column("validation", "step")
    shades = iter((colours.validation, colours.third, colours.train))
    for name in [name for name in record.last_validation if name.endswith("_accuracy")]:
        shade = next(shades, colours.ink)
        axes.plot(at, record.column("validation", name), "o-", color=shade, markersize=3.6, label=name.split("_")[0])
    if "mlm_accuracy" in record.baseline:
        _reference(axes, record.baseline["mlm_accuracy"], "always the commonest token", colours, "{:.1%}")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_ylim(bottom=0, top=min(1.0, axes.get_ylim()[1]))
    _mark_events(axes, record, colours)
    _steps_below(axes, record)
    _legend(axes, colours)


def _draw_learning_rate(axes: Axes, record: RunRecord, colours: Colours) -> None:
    _title(axes, "Learning rate", colours)
    steps, rates = record.column("train", "step"), record.column("train", "lr")
    axes.plot(*thinned(steps, rates), color=colours.third, linewidth=1.7, marker="." if len(rates) < 40 else None)
    axes.yaxis.set_major_formatter(FuncFormatter(_short_power))
    axes.set_ylim(bottom=0)
    _mark_events(axes, record, colours)
    _steps_below(axes, record)


def _short_power(value: float, _: int) -> str:
    """5e-5, not 5.0e-05."""
    return f"{value:.1e}".replace(".0e", "e").replace("e-0", "e-") if value else "0"


def _draw_speed(axes: Axes, record: RunRecord, colours: Colours) -> None:
    _title(axes, "Tokens per second", colours)
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


def _reference(axes: Axes, height: float, words: str, colours: Colours, form: str) -> float:
    axes.axhline(height, color=colours.ink, linestyle=(0, (5, 4)), linewidth=1.0, alpha=0.75)
    axes.annotate(
        f"{words}: {form.format(height)}",
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
        shown = None if number else label
        axes.axvline(step, color=colours.ink, linestyle=":", linewidth=1.2, alpha=0.7, label=shown)


def _fit_height(axes: Axes, values: np.ndarray, validation: np.ndarray, reference: float | None) -> None:
    """Shows all but the rarest spikes: one loss of 1,000 must not press the rest into a line."""
    known = values[np.isfinite(values)]
    heights = [*(np.percentile(known, (0, 99.7)) if len(known) else ()), *validation[np.isfinite(validation)]]
    heights += [reference] if reference is not None else []
    if heights:
        low, high = min(heights), max(heights)
        room = 0.06 * (high - low) or 0.5
        axes.set_ylim(low - room, high + 1.6 * room)


def _steps_below(axes: Axes, record: RunRecord) -> None:
    axes.set_xlabel("step")
    axes.set_xlim(0, max(1, record.step) * 1.02)
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=(1, 2, 2.5, 5, 10), integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f"{step:,.0f}"))


def _tokens_below(axes: Axes, record: RunRecord) -> None:
    if record.step and record.tokens:
        each, short = record.tokens / record.step, EngFormatter(places=1, sep="")
        axes.xaxis.set_major_formatter(
            FuncFormatter(lambda step, _: f"{step:,.0f}\n{short(step * each) if step else ''}")
        )
        axes.set_xlabel("step, and tokens seen by then")


def _style(axes: Axes, colours: Colours) -> None:
    axes.set_facecolor(colours.paper)
    axes.grid(color=colours.faint, linewidth=0.6, alpha=0.8)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(colours.faint)
    axes.tick_params(colors=colours.ink, labelsize=8, length=3)
    axes.xaxis.label.set(color=colours.ink, fontsize=8)


def _title(axes: Axes, words: str, colours: Colours) -> None:
    axes.set_title(words, loc="left", color=colours.ink, fontsize=10.5, fontweight="bold", pad=8)


def _legend(axes: Axes, colours: Colours) -> None:
    if axes.get_legend_handles_labels()[0]:
        legend = axes.legend(fontsize=8, frameon=True, framealpha=0.85, facecolor=colours.paper, edgecolor="none")
        for text in legend.get_texts():
            text.set_color(colours.ink)
