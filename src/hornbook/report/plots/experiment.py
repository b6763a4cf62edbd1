"""Plot of score against FLOPs: the mean over tasks with one line per arm, and small panels for each task below."""

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from hornbook.report import wording
from hornbook.report.plots.drawing import LIGHT, MORE_SHADES, Colours, new_figure, short_power, style, write_title

LABEL_SPACE = 2.7  # right end of the logarithmic x axis, as a multiple of the largest FLOPs
MIN_GAP = 0.062  # between two labels, as a fraction of the panel height
OFFSET = 0.006  # decades between the intervals of two arms at the same FLOPs


def score_figure(results: dict, colours: Colours = LIGHT) -> Figure:
    """Mean scores on top, one panel per group of arms; one small panel per task below. Missing scores are left out."""
    panels = list(dict.fromkeys(panel for arm in results["arms"].values() for panel in arm["panels"]))
    tasks = [name for name, task in results["tasks"].items() if task["has_data"]]
    columns = max(len(panels), 1)
    small_rows = math.ceil(len(tasks) / (2 * columns + 1))
    per_row = math.ceil(len(tasks) / small_rows) if tasks else 1
    figure = new_figure(max(5.6 * columns, 7.2), 4.4 + 2.3 * small_rows, colours)
    rows = figure.add_gridspec(1 + small_rows, 1, height_ratios=[4.4, *[2.3] * small_rows])
    shades = dict(zip(results["arms"], _shades(len(results["arms"]), colours), strict=True))
    top = rows[0].subgridspec(1, columns)
    large = [figure.add_subplot(top[0, place]) for place in range(len(panels))]
    for axes, panel in zip(large, panels, strict=True):
        arms = [name for name, arm in results["arms"].items() if panel in arm["panels"]]
        style(axes, colours)
        write_title(axes, f"{panel}: mean score", colours)
        ends = _draw_lines(axes, results, arms, results["mean"], shades)
        _flops_below(axes, results, colours, LABEL_SPACE)
        if not ends:
            message = "no arm has scores on all tasks yet"
            axes.text(0.5, 0.5, message, transform=axes.transAxes, ha="center", color=colours.ink, fontsize=9)
    _one_height(large)
    for axes, panel in zip(large, panels, strict=True):
        arms = [name for name, arm in results["arms"].items() if panel in arm["panels"]]
        _write_labels(axes, results, arms, shades)
    for row in range(small_rows):
        below = rows[1 + row].subgridspec(1, per_row)
        for place, task in enumerate(tasks[row * per_row : (row + 1) * per_row]):
            axes = figure.add_subplot(below[0, place])
            style(axes, colours)
            title = f"{task}, {wording.measure(results['tasks'][task]['measure'])}"
            axes.set_title(title.removesuffix(" correlation"), loc="left", color=colours.ink, fontsize=8.5)
            _draw_lines(axes, results, list(results["arms"]), task, shades)
            _flops_below(axes, results, colours, 1.35)
    return figure


def _shades(number: int, colours: Colours) -> list[str]:
    known = (colours.train, colours.validation, colours.third, *MORE_SHADES, colours.ink)
    return [known[place % len(known)] for place in range(number)]


def _points(results: dict, arm: str, task: str) -> list[dict]:
    found = [row for row in results["scores"] if row["arm"] == arm and row["task"] == task]
    return sorted(found, key=lambda row: row["flops"])


def _draw_lines(axes: Axes, results: dict, arms: list[str], task: str, shades: dict[str, str]) -> bool:
    """Draws the arms, slightly offset so that their intervals do not overlap; returns whether there were any points."""
    drawn = False
    for place, arm in enumerate(arms):
        points = _points(results, arm, task)
        if not points:
            continue
        drawn = True
        at = [row["flops"] * _shift(place, len(arms)) for row in points]
        values = [row["score"] for row in points]
        is_small = task != results["mean"]
        axes.plot(
            at, values, "o-", color=shades[arm], linewidth=1.2 if is_small else 1.8, markersize=2.6 if is_small else 4.6
        )
        for x, row in zip(at, points, strict=True):
            if row["low"] is not None:
                width = 1.2 if is_small else 2.4
                axes.plot([x, x], [row["low"], row["high"]], color=shades[arm], linewidth=width, alpha=0.35)
    return drawn


def _shift(place: int, number: int) -> float:
    """The factor by which the FLOPs of an arm are multiplied in the plot."""
    return 10 ** (OFFSET * (place - (number - 1) / 2))


def _one_height(panels: list[Axes]) -> None:
    drawn = [axes for axes in panels if axes.lines]
    if drawn:
        low, high = min(axes.get_ylim()[0] for axes in drawn), max(axes.get_ylim()[1] for axes in drawn)
        for axes in drawn:
            axes.set_ylim(low, high)


def _write_labels(axes: Axes, results: dict, arms: list[str], shades: dict[str, str]) -> None:
    """Writes the name of each arm at the end of its line, without overlaps."""
    ends = {arm: points[-1] for arm in arms if (points := _points(results, arm, results["mean"]))}
    if not ends:
        return
    low, high = axes.get_ylim()
    heights = {arm: (row["score"] - low) / (high - low) for arm, row in ends.items()}
    order = sorted(heights, key=heights.get)
    places = _spread_out([heights[arm] for arm in order])
    for arm, place in zip(order, places, strict=True):
        row = ends[arm]
        early = f" at {row['share']:.4g}" if row["share"] < 1 else ""
        axes.annotate(
            f"{results['arms'][arm]['label']} {row['score']:.1f}{early}",
            (row["flops"] * _shift(arms.index(arm), len(arms)) * 1.03, row["score"]),
            xytext=(results["flops"] * 1.22, low + place * (high - low)),
            fontsize=8,
            color=shades[arm],
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": shades[arm], "linewidth": 0.7, "alpha": 0.6},
        )


def _spread_out(heights: list[float]) -> list[float]:
    """Moves ascending heights as little as possible so that they are at least `MIN_GAP` apart."""
    groups: list[tuple[float, int]] = []  # (centre, size)
    for height in heights:
        middle, number = height, 1
        while groups and groups[-1][0] + MIN_GAP * (groups[-1][1] + number) / 2 > middle:
            other, size = groups.pop()
            middle = (other * size + middle * number) / (size + number)
            number += size
        groups.append((middle, number))
    return [middle + MIN_GAP * (place - (number - 1) / 2) for middle, number in groups for place in range(number)]


def _flops_below(axes: Axes, results: dict, colours: Colours, width: float) -> None:
    """Labels the logarithmic x axis with the FLOPs of the checkpoints; it ends at `width` times the largest."""
    at = [results["flops"] * share for share in results["checkpoints"]]
    axes.set_xscale("log")
    axes.set_xlim(at[0] / 1.25, at[-1] * width)
    axes.xaxis.set_major_locator(FixedLocator(at))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(short_power))
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.set_xlabel("FLOPs" if width < LABEL_SPACE else "pre-training FLOPs, model convention")
    axes.xaxis.label.set(color=colours.ink, fontsize=8)
