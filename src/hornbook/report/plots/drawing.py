"""What all plots share: one style, figures of one or several panels, smoothing and thinning, pictures for a page."""

import base64
import io
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from hornbook.files import replacing

INK, FAINT, BLUE, ORANGE, GREEN = "#262a33", "#d9dce3", "#3566b8", "#d9622b", "#2f8f6b"
PALETTE = (BLUE, ORANGE, GREEN, "#9a63c4", "#b98a1d", "#3a9fb3", "#c2527f", INK)
DASHED = {"color": INK, "linestyle": (0, (5, 4)), "linewidth": 1.0, "alpha": 0.75}
MAX_POINTS = 1500
STYLE = {
    **{f"axes.spines.{side}": False for side in ("top", "right")},
    **{f"axes.{name}": INK for name in ("labelcolor", "titlecolor")},
    **{f"{axis}tick.{name}": value for axis in "xy" for name, value in (("color", INK), ("labelsize", 8))},
    **{f"{axis}tick.major.size": 3 for axis in "xy"},
    **{f"figure.constrained_layout.{name}": 0.12 for name in ("h_pad", "w_pad")},
    **{f"figure.constrained_layout.{name}": 0.03 for name in ("hspace", "wspace")},
    "figure.constrained_layout.use": True,
    "axes.edgecolor": FAINT,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.labelsize": 8,
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "legend.edgecolor": "none",
    "legend.fontsize": 8,
    "savefig.dpi": 130,
    "text.color": INK,
    "text.parse_math": False,  # a dollar sign in the name of a label is not a formula
}
in_style = matplotlib.rc_context(STYLE)  # decorates functions that draw


class Plot(NamedTuple):
    """A plot as a data URL, so that a page needs no other file."""

    alt: str
    address: str


@in_style
def render_png(figure: Figure, alt: str, path: Path | None = None) -> Plot:
    """Renders the figure once, for the page and, with `path`, as a PNG file."""
    file = io.BytesIO()
    figure.savefig(file, format="png")
    if path is not None:
        with replacing(path) as temporary:
            temporary.write_bytes(file.getvalue())
    return Plot(alt, "data:image/png;base64," + base64.b64encode(file.getvalue()).decode())


def new_plot(title: str, width: float = 7.2, height: float = 4.2) -> tuple[Figure, Axes]:
    """A figure with one panel; sizes in inches. It is not registered with pyplot."""
    figure = Figure(figsize=(width, height))
    axes = figure.add_subplot()
    axes.set_title(title)
    return figure, axes


@in_style
def grid_of(panels: list[Callable[[Axes], None]], height: float = 2.9) -> Figure:
    """A figure with the panels in two columns; the first of an odd number takes the whole first row."""
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(5.6 * columns, height * rows + 0.2))
    grid = figure.add_gridspec(rows, columns)
    cells = list(grid)
    if len(panels) < len(cells):
        cells[:2] = [grid[0, :]]
    for draw, cell in zip(panels, cells, strict=True):
        draw(figure.add_subplot(cell))
    return figure


def smoothed(values: np.ndarray, window: int) -> np.ndarray:
    """Centred moving average without NaN; the window shrinks near both ends, to keep the fast first drop of a loss."""
    known = np.isfinite(values)
    sums = np.concatenate([[0.0], np.cumsum(np.where(known, values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(known)])
    positions = np.arange(len(values))
    before = np.minimum(window // 2, positions)
    first, last = positions - before, positions + np.minimum(before, len(values) - 1 - positions) + 1
    with np.errstate(invalid="ignore", divide="ignore"):
        return (sums[last] - sums[first]) / (counts[last] - counts[first])


def thinned(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most `MAX_POINTS` points: the minimum and the maximum of each segment, so no spike is lost."""
    if len(x) <= MAX_POINTS:
        return x, y
    segments = np.array_split(np.arange(len(x)), MAX_POINTS // 2)
    known = np.isfinite(y)
    low, high = np.where(known, y, np.inf), np.where(known, y, -np.inf)
    chosen = np.unique([i for rows in segments for i in (rows[low[rows].argmin()], rows[high[rows].argmax()])])
    return x[chosen], y[chosen]


def short_power(value: float, _: int = 0) -> str:
    """Tick label in short scientific notation: 5e-5 rather than 5.0e-05, and 1.25e-3 with all digits."""
    digits, _, power = f"{value:.2e}".partition("e")
    return f"{float(digits):g}e{int(power)}" if value else "0"


def label_up_to(axes: Axes, largest: float, unit: float = 1, sign: str = "") -> None:
    """Labels the y axis up to the largest possible value, in spite of rounding errors: a tick at 1 may be slightly
    above it."""

    def label(value: float, _: int) -> str:
        rounded = round(unit * value, 9)
        return f"{rounded:g}{sign}" if rounded <= largest else ""

    axes.yaxis.set_major_formatter(FuncFormatter(label))


def percent_axis(axes: Axes, in_percent: bool = False) -> None:
    """Labels the y axis in percent, up to 100%. The values are fractions, or already `in_percent`."""
    unit = 1 if in_percent else 100
    label_up_to(axes, 100, unit, "%")
    axes.set_ylim(top=min(axes.get_ylim()[1], 102 / unit))


def steps_below(axes: Axes, last: int) -> None:
    axes.set_xlabel("step")
    axes.set_xlim(0, max(1, last) * 1.02)
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=(1, 2, 2.5, 5, 10), integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f"{step:,.0f}"))


def show_legend(axes: Axes) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend()
