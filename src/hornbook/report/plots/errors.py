"""Plots of predictions against gold labels: a confusion matrix for classes and a scatter plot for numbers. Also heat
maps of attention heads."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.text import Text

from hornbook.metrics.breakdown import Confusion
from hornbook.report.finetuned import FinetunedRun
from hornbook.report.plots.drawing import LIGHT, Colours, new_figure, new_plot, write_title
from hornbook.report.run import number

LONGEST_NAME = 24
WHITE = "#ffffff"


def confusion_figure(found: Confusion, colours: Colours = LIGHT) -> Figure:
    """Confusion matrix: rows are gold labels, columns predictions; numbers are counts, colours fractions of the row."""
    num = len(found.names)
    names = [_drawable(name, place) for place, name in enumerate(found.names)]
    cell = 0.62 if num <= 12 else 0.5
    margin = 0.085 * max(map(len, names))
    side = max(cell * num, 2.4)
    figure = new_figure(side + margin + 1.1, side + margin + 0.9, colours)
    axes = figure.add_subplot()
    axes.imshow(found.shares, cmap=_shades(colours), vmin=0, vmax=1)
    largest = int(found.counts.max(initial=1))
    size = min(10.5, 90 * side / num / max(2, len(f"{largest:,}")))  # the longest number fits its cell
    for (row, column), count in np.ndenumerate(found.counts):
        if count:
            shade = WHITE if found.shares[row, column] > 0.55 else colours.ink
            axes.text(column, row, f"{count:,}", ha="center", va="center", fontsize=size, color=shade)
    _name_ticks(axes, names, colours)
    axes.set_xlabel("predicted", color=colours.ink, fontsize=9)
    axes.set_ylabel("gold", color=colours.ink, fontsize=9)
    write_title(axes, f"{int(found.counts.sum()):,} {found.of} on dev", colours)
    return figure


def _name_ticks(axes: Axes, names: list[str], colours: Colours) -> None:
    slanted = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"} if max(map(len, names)) > 4 else {}
    axes.set_xticks(range(len(names)), names, **slanted)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(colors=colours.ink, labelsize=9, length=0)
    for text in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        text.set_parse_math(False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    edges = np.arange(len(names) + 1) - 0.5
    axes.set_xticks(edges, minor=True)
    axes.set_yticks(edges, minor=True)
    axes.grid(which="minor", color=colours.paper, linewidth=1.5)
    axes.tick_params(which="minor", length=0)


def _drawable(name: str, place: int) -> str:
    """The label name, truncated, or `label N` if the font lacks glyphs for it (they would be drawn as boxes)."""
    name = " ".join(name.split())
    name = name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
    font = get_font(findfont(FontProperties(family=Text().get_fontfamily())))
    return name if name and all(font.get_char_index(ord(each)) for each in name) else f"label {place}"


def _shades(colours: Colours) -> LinearSegmentedColormap:
    start = "#eef2f9" if colours is LIGHT else "#262b36"
    return LinearSegmentedColormap.from_list("shares", [start, "#2d5aa6"])


def scatter_figure(run: FinetunedRun, colours: Colours = LIGHT) -> Figure:
    """Each dev example at (gold, predicted), with the diagonal."""
    pairs = np.array([(number(row["gold"]), number(row.get("value"))) for row in run.predictions], float)
    pairs = pairs[np.isfinite(pairs).all(1)] if len(pairs) else np.zeros((0, 2))
    figure, axes = new_plot(f"{len(pairs):,} dev examples", colours, 5.4, 5.2)
    see_through = min(0.8, max(0.12, 12 / math.sqrt(max(1, len(pairs)))))
    axes.plot(pairs[:, 0], pairs[:, 1], "o", color=colours.train, alpha=see_through, markersize=4.5, markeredgewidth=0)
    low, high = (float(pairs.min()), float(pairs.max())) if len(pairs) else (0.0, 1.0)
    margin = 0.04 * (high - low) or 0.5
    ends = (low - margin, high + margin)
    axes.plot(ends, ends, color=colours.ink, linestyle=(0, (5, 4)), linewidth=1.0, alpha=0.7)
    axes.set(xlim=ends, ylim=ends, aspect="equal")
    axes.set_xlabel("gold", color=colours.ink, fontsize=9)
    axes.set_ylabel("predicted", color=colours.ink, fontsize=9)
    return figure


def heads_figure(heads: list[list[list[float]]], colours: Colours = LIGHT) -> Figure:
    """The attention matrix of each head as a small heat map: rows are queries, columns are keys."""
    columns = min(6, len(heads))
    rows = -(-len(heads) // columns)
    figure = new_figure(1.75 * columns, 1.9 * rows, colours)
    grid = figure.add_gridspec(rows, columns)
    for place, weights in enumerate(heads):
        axes = figure.add_subplot(grid[place // columns, place % columns])
        axes.imshow(np.array(weights, float), cmap=_shades(colours), vmin=0, vmax=1)
        axes.set(xticks=[], yticks=[])
        axes.set_title(f"head {place + 1}", color=colours.ink, fontsize=8)
        for spine in axes.spines.values():
            spine.set_color(colours.faint)
    return figure
