"""Plot of score against FLOPs: the mean over tasks with one line per arm, and small panels for each task below."""

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from hornbook.report import formatting
from hornbook.report.plots.drawing import PALETTE, in_style, short_power, show_legend

OFFSET = 0.006  # decades between the intervals of two arms at the same FLOPs


@in_style
def score_figure(results: dict) -> Figure:
    """Mean scores on top, one panel per group of arms; one small panel per task below. Missing scores are left out."""
    panels = list(dict.fromkeys(panel for arm in results["arms"].values() for panel in arm["panels"]))
    tasks = [name for name, task in results["tasks"].items() if task["has_data"]]
    is_single, flops = _has_single_checkpoint(results), short_power(results["flops"])
    columns = max(len(panels), 1)
    small_rows = math.ceil(len(tasks) / (2 * columns + 1))
    per_row = math.ceil(len(tasks) / small_rows) if tasks else 1
    figure = Figure(figsize=(max(5.6 * columns, 7.2), 4.4 + 2.3 * small_rows))
    rows = figure.add_gridspec(1 + small_rows, 1, height_ratios=[4.4, *[2.3] * small_rows])
    top, first = rows[0].subgridspec(1, columns), None
    for column, panel in enumerate(panels):
        axes = figure.add_subplot(top[0, column], sharey=first)
        first = first or axes
        arms = [name for name, arm in results["arms"].items() if panel in arm["panels"]]
        axes.set_title(panel if "mean score" in panel.lower() else f"{panel}: mean score")
        _draw_arms(axes, results, arms, results["mean"])
        axes.set_xlabel(f"after {flops} pre-training FLOPs" if is_single else "pre-training FLOPs, model convention")
        show_legend(axes)
        if not axes.lines:
            axes.text(0.5, 0.5, "no arm has scores on all tasks yet", transform=axes.transAxes, ha="center", fontsize=9)
    cells = [cell for row in range(small_rows) for cell in rows[1 + row].subgridspec(1, per_row)]
    for task, cell in zip(tasks, cells, strict=False):
        axes = figure.add_subplot(cell)
        title = f"{task}, {formatting.metric_label(results['tasks'][task]['metric'])}"
        axes.set_title(title.removesuffix(" correlation"), fontsize=8.5, fontweight="normal")
        _draw_arms(axes, results, list(results["arms"]), task)
        axes.set_xlabel("" if is_single else "FLOPs")
    return figure


def _draw_arms(axes: Axes, results: dict, arms: list[str], task: str) -> None:
    """Draws the scores of the arms on a task, or their means, over the FLOPs of the checkpoints; side by side if there
    is one checkpoint. Arms are slightly offset, so that their intervals do not overlap."""
    shades = dict(zip(results["arms"], PALETTE * len(results["arms"]), strict=False))
    is_small, is_single = task != results["mean"], _has_single_checkpoint(results)
    width, size, interval_width = (1.2, 2.6, 1.2) if is_small else (1.8, 4.6, 2.4)
    for i, arm in enumerate(arms):
        points = [row for row in results["scores"] if row["arm"] == arm and row["task"] == task]
        if not points:
            continue
        points.sort(key=lambda row: row["flops"])
        at = [i] if is_single else [row["flops"] * 10 ** (OFFSET * (i - (len(arms) - 1) / 2)) for row in points]
        last = points[-1]
        early = f" at {last['share']:.4g}" if last["share"] < 1 else ""
        label = f"{results['arms'][arm]['label']} {last['score']:.1f}{early}"
        scores = [row["score"] for row in points]
        axes.plot(at, scores, "o-", color=shades[arm], linewidth=width, markersize=size, label=label)
        for x, row in zip(at, points, strict=True):
            if row["low"] is not None:
                axes.plot([x, x], [row["low"], row["high"]], color=shades[arm], linewidth=interval_width, alpha=0.35)
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda score, _: f"{score:g}" if score <= 100 else ""))
    if is_single:  # the legend of the top panel names the arms of the small ones
        axes.set_xticks(
            range(len(arms)), [""] * len(arms) if is_small else [results["arms"][arm]["label"] for arm in arms]
        )
        axes.set_xlim(-0.6, len(arms) - 0.4)
        return
    flops = [results["flops"] * share for share in results["checkpoints"]]
    if results.get("words"):  # arms that read the same words have different FLOPs
        flops = sorted({row["flops"] for row in results["scores"]})
    axes.set_xscale("log")
    axes.set_xlim(flops[0] / 1.25, flops[-1] * 1.35)
    axes.xaxis.set_major_locator(FixedLocator(flops))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(short_power))


def _has_single_checkpoint(results: dict) -> bool:
    """Whether all arms are scored at the same FLOPs only: the x axis is then that of the arms."""
    return len(results["checkpoints"]) == 1 and not results.get("words")
