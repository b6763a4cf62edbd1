"""Shared plotting helpers: colours, axes, smoothing, and downsampling of long curves."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from hornbook.files import replacing

MOST_POINTS = 1500
MORE_SHADES = ("#9a63c4", "#b98a1d", "#3a9fb3", "#c2527f")


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


def new_figure(width: float, height: float, colours: Colours) -> Figure:
    """An empty figure (size in inches) that is not registered with pyplot."""
    figure = Figure(figsize=(width, height), facecolor=colours.paper, layout="constrained")
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.12, wspace=0.03, hspace=0.03)
    return figure


def new_plot(title: str, colours: Colours, width: float = 7.2, height: float = 4.2) -> tuple[Figure, Axes]:
    """A figure with one panel."""
    figure = new_figure(width, height, colours)
    axes = figure.add_subplot()
    style(axes, colours)
    write_title(axes, title, colours)
    return figure, axes


def as_png(figure: Figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=130, facecolor=figure.get_facecolor())
    return file.getvalue()


def write_png(path: Path, png: bytes) -> Path:
    with replacing(path) as temporary:
        temporary.write_bytes(png)
    return path


def grid_of(
    panels: list[Callable[[Axes], None]], colours: Colours, columns: int = 2, width: float = 5.6, height: float = 2.9
) -> Figure:
    """A figure with the panels in a grid; if they do not fill it, the first panel takes the whole first row."""
    columns = min(columns, len(panels))
    widen_first = len(panels) % columns
    rows = -(-len(panels) // columns)
    figure = new_figure(width * columns, height * rows + 0.2, colours)
    grid = figure.add_gridspec(rows, columns)
    cells = [grid[0, :]] if widen_first else []
    cells += [grid[row, column] for row in range(bool(widen_first), rows) for column in range(columns)]
    for draw, cell in zip(panels, cells, strict=False):
        axes = figure.add_subplot(cell)
        style(axes, colours)
        draw(axes)
    return figure


def smoothed(values: np.ndarray, window: int) -> np.ndarray:
    """Centred moving average that ignores NaN; the window shrinks near both ends, so the fast drop of a loss at the
    start is kept."""
    known = np.isfinite(values)
    sums = np.concatenate([[0.0], np.cumsum(np.where(known, values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(known)])
    places = np.arange(len(values))
    before = np.minimum(window // 2, places)
    first, last = places - before, places + np.minimum(before, len(values) - 1 - places) + 1
    with np.errstate(invalid="ignore", divide="ignore"):
        return (sums[last] - sums[first]) / (counts[last] - counts[first])


def thinned(x: np.ndarray, y: np.ndarray, most: int = MOST_POINTS) -> tuple[np.ndarray, np.ndarray]:
    """At most `most` points: the minimum and the maximum of each segment, so no spike is lost."""
    if len(x) <= most:
        return x, y
    segments = np.array_split(np.arange(len(x)), most // 2)
    known = np.isfinite(y)
    low, high = np.where(known, y, np.inf), np.where(known, y, -np.inf)
    kept = np.unique([place for one in segments for place in (one[low[one].argmin()], one[high[one].argmax()])])
    return x[kept], y[kept]


def short_power(value: float, _: int) -> str:
    """Tick label in short scientific notation: 5e-5 rather than 5.0e-05, and 1.25e-3 with all digits."""
    digits, _, power = f"{value:.2e}".partition("e")
    return f"{float(digits):g}e{int(power)}" if value else "0"


def fit_height(axes: Axes, values: np.ndarray, validation: np.ndarray, reference: float | None) -> None:
    """Sets the y limits to the 99.7th percentile of the training values, so that one loss of 1,000 does not flatten the
    curve."""
    known = values[np.isfinite(values)]
    heights = [*(np.percentile(known, (0, 99.7)) if len(known) else ()), *validation[np.isfinite(validation)]]
    heights += [reference] if reference is not None else []
    if heights:
        low, high = min(heights), max(heights)
        margin = 0.06 * (high - low) or 0.5
        axes.set_ylim(low - margin, high + 1.6 * margin)


def percent_axis(axes: Axes, unit: float) -> None:
    """Labels the y axis in percent: 1 if the values are in percent, 100 if they are fractions."""
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{unit * value:g}%"))


def steps_below(axes: Axes, last: int) -> None:
    axes.set_xlabel("step")
    axes.set_xlim(0, max(1, last) * 1.02)
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=(1, 2, 2.5, 5, 10), integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f"{step:,.0f}"))


def style(axes: Axes, colours: Colours) -> None:
    axes.set_facecolor(colours.paper)
    axes.grid(color=colours.faint, linewidth=0.6, alpha=0.8)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(colours.faint)
    axes.tick_params(colors=colours.ink, labelsize=8, length=3)
    axes.xaxis.label.set(color=colours.ink, fontsize=8)


def write_title(axes: Axes, title: str, colours: Colours) -> None:
    axes.set_title(title, loc="left", color=colours.ink, fontsize=10.5, fontweight="bold", pad=8)


def show_legend(axes: Axes, colours: Colours) -> None:
    if axes.get_legend_handles_labels()[0]:
        legend = axes.legend(fontsize=8, frameon=True, framealpha=0.85, facecolor=colours.paper, edgecolor="none")
        for text in legend.get_texts():
            text.set_color(colours.ink)
