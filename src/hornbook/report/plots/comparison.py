"""Plot of several models: score against latency."""

import math
from itertools import product
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from matplotlib.transforms import Bbox

from hornbook.metrics.formatting import number
from hornbook.report import formatting, measured
from hornbook.report.plots.drawing import BLUE, GREEN, INK, ORANGE, in_style, new_plot, percent_axis

SMALLEST_DOT, LARGEST_DOT = 40, 700  # in points squared
SHADES = {"torch": BLUE, "onnx": GREEN, "onnx-int8": ORANGE}
GAP = 5  # points between a dot and its label
# Positions of a label around its dot, the preferred ones first: horizontal and vertical side (0: centred), and how many
# points it is moved further up or down.
SIDES = ((1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1), (0, 1), (0, -1))
POSITIONS = [(*side, further) for further in (0, 15, 30, 45, 60) for side in SIDES if side[1] or not further]


@in_style
def comparison_figure(results: dict) -> Figure:
    """Score (CPU throughput where there are no scores) against latency; the area of a dot is the file size."""
    has_scores = measured.has_scores(results)
    rows = [row for row in results["rows"] if not has_scores or row.get("score")]
    figure, axes = new_plot(measured.title(results), width=8.0, height=max(4.4, 1.6 + 0.55 * len(rows)))
    largest = max(row["bytes"] for row in rows)
    labels, dots, intervals = [], [], []
    for row in rows:
        x, score = row["latency_ms"]["p50"], row.get("score") or {}
        y = score["value"] if score else row["throughput"]["cpu"]
        area = max(SMALLEST_DOT, LARGEST_DOT * row["bytes"] / largest)
        shade = SHADES.get(row["kind"], INK)
        axes.scatter(x, y, s=area, color=shade, linewidths=1, edgecolors="white", zorder=3)
        low, high = (number(score.get(name)) for name in ("low", "high"))
        axes.plot([x, x], [low, high], color=shade, linewidth=1.6, alpha=0.45, solid_capstyle="round")
        line = {"arrowstyle": "-", "color": INK, "linewidth": 0.6, "alpha": 0.5, "shrinkA": 0, "shrinkB": 0}
        look = {"textcoords": "offset points", "fontsize": 8, "arrowprops": line, "zorder": 2}
        labels.append(axes.annotate(_label(row, results), (x, y), (0, 0), in_layout=False, **look))
        dots.append((x, y, math.sqrt(area) / 2))
        intervals.append((x, low, high))
    _latency_axis(axes, [x for x, _, _ in dots])
    axes.margins(y=0.15)
    axes.set_xlabel(f"median latency of one input on {formatting.cores(results['threads'])}, ms (dot area: file size)")
    if has_scores and formatting.is_fraction(results["metric_for_best"]):
        percent_axis(axes, 1 if measured.in_percent(results) else 100)
    elif not has_scores:
        axes.set_ylabel("inputs per second on the CPU")
    _place_labels(axes, labels, dots, intervals)
    return figure


def _label(row: dict, results: dict) -> str:
    exported = "" if row["kind"] == "torch" else f" ({measured.KINDS[row['kind']]})"
    if row.get("score"):
        in_percent = measured.in_percent(results)
        value = formatting.score(results["metric_for_best"], row["score"]["value"], in_percent)
    else:
        value = f"{measured.format_speed(row['throughput']['cpu'])} inputs/s"
    return f"{_short_name(row, results['rows'])}{exported}\n{value}, {row['latency_ms']['p50']:.3g} ms"


def _latency_axis(axes: Axes, latencies: list[float]) -> None:
    """A log axis with ticks at 1, 2, 5, 10, 20, ..., from the tick below the values to the one above them."""
    powers = range(math.floor(math.log10(min(latencies))) - 1, math.ceil(math.log10(max(latencies))) + 2)
    ticks = [digit * 10.0**power for power, digit in product(powers, (1, 2, 5))]
    low = max(tick for tick in ticks if tick <= min(latencies) / 1.1)
    high = min(tick for tick in ticks if tick >= max(latencies) * 1.1)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator([tick for tick in ticks if low <= tick <= high]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    room = (high / low) ** 0.08  # for the labels of the outermost dots
    axes.set_xlim(low / room, high * room)


def _place_labels(axes: Axes, labels: list[Annotation], dots: list[tuple], intervals: list[tuple]) -> None:
    """Puts each label where it stays inside the frame and covers the least of the dots, intervals and other labels.
    `dots`: x, y and the radius in points; `intervals`: x, low and high."""
    figure = axes.figure
    figure.draw_without_rendering()  # lays the figure out, so that data coordinates have their pixels
    figure.set_layout_engine("none")
    point = figure.dpi / 72  # in pixels
    taken = []
    for x, y, radius in dots:
        centre = axes.transData.transform((x, y))
        taken.append(Bbox([centre - radius * point, centre + radius * point]))
    for x, low, high in intervals:
        if math.isfinite(low) and math.isfinite(high):
            ends = axes.transData.transform([(x, low), (x, high)])
            taken.append(Bbox([ends[0] - (3 * point, 0), ends[1] + (3 * point, 0)]))
    frame = axes.get_window_extent()
    for label, (_, _, radius) in zip(labels, dots, strict=True):
        costs = []
        for i, position in enumerate(POSITIONS):
            box = _move(label, position, radius)
            area = box.width * box.height
            covered = sum(_shared_area(box, other) for other in taken)
            outside = area - _shared_area(box, frame)
            costs.append(((covered + 3 * outside) / area + 0.004 * i, i))
        taken.append(_move(label, POSITIONS[min(costs)[1]], radius))


def _move(label: Annotation, position: tuple[int, int, int], radius: float) -> Bbox:
    """Moves the label to a position around its dot; returns the box of its text in pixels."""
    horizontal, vertical, further = position
    distance = radius + GAP if 0 in position[:2] else radius * 0.7 + GAP / 2
    label.set_position((horizontal * distance, vertical * (distance + further)))
    label.set_horizontalalignment({1: "left", 0: "center", -1: "right"}[horizontal])
    label.set_multialignment({1: "left", 0: "center", -1: "right"}[horizontal])
    label.set_verticalalignment({1: "bottom", 0: "center", -1: "top"}[vertical])
    label.arrow_patch.set_visible(further > 0)
    return Text.get_window_extent(label)


def _shared_area(a: Bbox, b: Bbox) -> float:
    shared = Bbox.intersection(a, b)
    return 0.0 if shared is None else shared.width * shared.height


def _short_name(row: dict, rows: list[dict]) -> str:
    """The shortest suffix of the path that distinguishes this model from the others."""
    others = [Path(other["name"]).parts for other in rows if other["name"] != row["name"]]
    parts = Path(row["name"]).parts
    for length in range(1, len(parts) + 1):
        if all(other[-length:] != parts[-length:] for other in others):
            return "/".join(parts[-length:])
    return row["name"]
