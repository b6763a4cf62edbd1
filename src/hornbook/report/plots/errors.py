"""Plots of predictions against gold labels: a confusion matrix for classes, a scatter plot for numbers, scores by
no-answer threshold. Also heat maps of attention heads."""

import math

import numpy as np
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font

from hornbook.metrics.breakdown import Confusion
from hornbook.metrics.formatting import cut, number
from hornbook.report.finetuned import ReportedTaskRun
from hornbook.report.plots.drawing import BLUE, DASHED, INK, ORANGE, in_style, new_plot, percent_axis, thinned

LONGEST_NAME = 24
NO_SPAN = 1e3  # no-answer scores of questions for which there is no span are above it


@in_style
def confusion_figure(confusion: Confusion) -> Figure:
    """Confusion matrix: rows are gold labels, columns predictions; numbers are counts, colours fractions of the row."""
    num = len(confusion.names)
    names = [_drawable(name, index) for index, name in enumerate(confusion.names)]
    margin = 0.085 * max(map(len, names))
    side = max((0.62 if num <= 12 else 0.5) * num, 2.4)
    title = f"{int(confusion.counts.sum()):,} {confusion.of} on dev"
    figure, axes = new_plot(title, side + margin + 1.1, side + margin + 0.9)
    axes.imshow(confusion.shares, cmap="Blues", vmin=0, vmax=1)
    largest = int(confusion.counts.max(initial=1))
    size = min(10.5, 90 * side / num / max(2, len(f"{largest:,}")))  # the longest number fits its cell
    for (row, column), count in np.ndenumerate(confusion.counts):
        if count:
            shade = "white" if confusion.shares[row, column] > 0.55 else INK
            axes.text(column, row, f"{count:,}", ha="center", va="center", fontsize=size, color=shade)
    axes.set_xticks(range(num), names, rotation=40, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(num), names)
    axes.set(xlabel="predicted", ylabel="gold")
    axes.grid(False)
    return figure


def _drawable(name: str, index: int) -> str:
    """The label name, truncated, or `label N` if the font lacks glyphs for it (they would be drawn as boxes)."""
    name = cut(" ".join(name.split()), LONGEST_NAME)
    font = get_font(findfont(FontProperties()))
    return name if name and all(font.get_char_index(ord(character)) for character in name) else f"label {index}"


@in_style
def scatter_figure(run: ReportedTaskRun) -> Figure:
    """Each dev example at (gold, predicted), with the diagonal."""
    pairs = np.array([(number(row["gold"]), number(row.get("value"))) for row in run.predictions], float)
    pairs = pairs[np.isfinite(pairs).all(1)]
    figure, axes = new_plot(f"{len(pairs):,} dev examples", 5.4, 5.2)
    alpha = min(0.8, max(0.12, 12 / math.sqrt(max(1, len(pairs)))))
    axes.plot(*pairs.T, "o", color=BLUE, alpha=alpha, markersize=4.5, markeredgewidth=0)
    low, high = (float(pairs.min()), float(pairs.max())) if len(pairs) else (0.0, 1.0)
    margin = 0.04 * (high - low) or 0.5
    ends = (low - margin, high + margin)
    axes.plot(ends, ends, **DASHED)
    axes.set(xlim=ends, ylim=ends, aspect="equal", xlabel="gold", ylabel="predicted")
    return figure


@in_style
def thresholds_figure(points: list[tuple[float, float, float]], threshold: float) -> Figure:
    """Exact match and F1 by no-answer threshold, with the chosen threshold. `points`: (threshold, exact match, F1) in
    percent."""
    at, exact, f1 = np.array(points).T
    figure, axes = new_plot("Scores on dev by no-answer threshold", height=3.6)
    low, high = _usual_range(at, threshold)
    for name, values, shade, width in (("F1", f1, BLUE, 3.0), ("exact match", exact, ORANGE, 1.3)):
        x, y = thinned(at, values)
        x, y = np.array([min(low, x[0]), *x, max(high, x[-1])]), np.array([y[0], *y, y[-1]])  # to both edges
        axes.plot(x, y, drawstyle="steps-post", color=shade, linewidth=width, label=name)
    axes.axvline(threshold, **DASHED, label=f"chosen: {threshold:.3f}")
    axes.set_xlim(low, high)
    axes.set_xlabel("threshold: questions with a higher no-answer score are left unanswered")
    axes.set_ylim(bottom=0)
    percent_axis(axes, 1)
    axes.legend(loc="best")
    return figure


def _usual_range(at: np.ndarray, threshold: float) -> tuple[float, float]:
    """Where nearly all scores are, and the threshold: questions without any span have a very high score."""
    low, high = np.quantile(at, (0.005, 0.995)) if len(at) > 200 else (at.min(), at[at < NO_SPAN].max(initial=at.min()))
    low, high = min(low, threshold), max(high, threshold)
    margin = 0.04 * (high - low) or 0.5
    return float(low - margin), float(high + margin)


@in_style
def heads_figure(heads: list[list[list[float]]]) -> Figure:
    """The attention matrix of each head as a small heat map: rows are queries, columns are keys."""
    columns = min(6, len(heads))
    rows = -(-len(heads) // columns)
    figure = Figure(figsize=(1.75 * columns, 1.9 * rows))
    for head, weights in enumerate(heads, 1):
        axes = figure.add_subplot(rows, columns, head)
        axes.imshow(np.array(weights, float), cmap="Blues", vmin=0, vmax=1)
        axes.set(xticks=[], yticks=[])
        axes.set_title(f"head {head}", fontsize=8, fontweight="normal")
    return figure
