"""Plots of scores: of trials, by number of labels, by number of examples in a prompt, of an experiment by FLOPs, and of
compared models by latency."""

import math
from operator import itemgetter

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from hornbook.metrics.formatting import number
from hornbook.report import formatting, measured
from hornbook.report.plots.drawing import (
    BLUE,
    DASHED,
    INK,
    ORANGE,
    PALETTE,
    in_style,
    label_up_to,
    new_plot,
    percent_axis,
    short_power,
    show_legend,
)
from hornbook.report.trials import METHODS, ScoredRuns

DASHES = ("--", ":", "-.", (0, (8, 4)))
OFFSET = 0.006  # decades between the intervals of two arms at the same FLOPs
SMALLEST_DOT, LARGEST_DOT = 40, 700  # in points squared


# ---- several runs


@in_style
def trials_figure(scored: ScoredRuns) -> Figure:
    """Scores with intervals, by learning rate or by seed; those no better than chance are marked with a cross."""
    is_search = scored.contents["kind"] == "lr_search"
    rows = sorted(scored.rows, key=itemgetter("lr")) if is_search else scored.rows
    metric = formatting.capital(formatting.metric_label(scored.metric_for_best))
    title = f"{metric} on dev, {len(rows)} {'learning rates' if is_search else 'seeds'}"
    figure, axes = new_plot(title, max(4.6, 0.62 * len(rows) + 2.4), 3.4)
    for x, row in enumerate(rows):
        value, low, high = (number(row.get(name)) for name in ("score", "low", "high"))
        marker, shade, size, label = "o", BLUE, 7, ""
        if row["name"] == scored.contents["best"]:
            marker, shade, size, label = "*", ORANGE, 14, "best"
        if row["degenerate"]:
            marker, shade, size, label = "x", INK, 8, "no better than chance"
        edge = 2 if marker == "x" else 0
        axes.plot([x, x], [low, high], color=shade, linewidth=2.2, alpha=0.45, solid_capstyle="round")
        label = label if label not in axes.get_legend_handles_labels()[1] else None
        axes.plot(x, value, marker, color=shade, markersize=size, markeredgewidth=edge, label=label)
    if not is_search:
        median = scored.contents["median"]
        axes.axhline(median, **DASHED, label=f"median {scored.format_score(median)}")
    names = [short_power(row["lr"]) if is_search else str(row["seed"]) for row in rows]
    axes.set_xticks(range(len(rows)), names)
    axes.set_xlim(-0.6, len(rows) - 0.4)
    axes.set_xlabel("learning rate" if is_search else "seed")
    _label_scores(axes, scored)
    return figure


@in_style
def curve_figure(scored: ScoredRuns) -> Figure:
    """One line per method with its interval as a band, over the number of labelled examples (log axis)."""
    metric = formatting.capital(formatting.metric_label(scored.metric_for_best))
    figure, axes = new_plot(f"{metric} on dev by number of labelled examples")
    for method, shade in zip(dict.fromkeys(str(row.get("method")) for row in scored.rows), PALETTE * 2, strict=False):
        rows = sorted((row for row in scored.rows if str(row.get("method")) == method), key=lambda row: row["examples"])
        _draw_band(axes, *_columns(rows, "examples", "score", "low", "high"), shade, METHODS.get(method, method))
    sizes = sorted({int(row["examples"]) for row in scored.rows})
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(_without_overlaps(sizes)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_xlabel("labelled examples")
    _label_scores(axes, scored)
    return figure


def _columns(rows: list[dict], *names: str) -> list[np.ndarray]:
    return [np.array([number(row.get(name)) for row in rows]) for name in names]


def _draw_band(
    axes: Axes, at: np.ndarray, value: np.ndarray, low: np.ndarray, high: np.ndarray, shade: str, label: str
) -> None:
    axes.plot(at, value, "o-", color=shade, linewidth=1.8, markersize=5, label=label)
    axes.fill_between(at, low, high, color=shade, alpha=0.15, linewidth=0)


def _label_scores(axes: Axes, scored: ScoredRuns) -> None:
    if formatting.is_fraction(scored.metric_for_best):
        percent_axis(axes)
    show_legend(axes)


def _without_overlaps(sizes: list[int]) -> list[int]:
    """The sizes whose tick labels do not overlap on a log axis; the last one is always kept."""
    ticks = [sizes[-1]]
    for size in sizes[-2::-1]:
        if ticks[-1] / max(1, size) >= (sizes[-1] / max(1, sizes[0])) ** 0.09:
            ticks.append(size)
    return ticks[::-1]


# ---- prompted tasks


@in_style
def shots_figure(scores: dict) -> Figure:
    """One line per template with its interval as a band, over the number of examples; baselines are dashed."""
    metric = scores["metric_for_best"]
    figure, axes = new_plot(f"{scores['task']}: {formatting.metric_label(metric)} by number of examples")
    variants = dict.fromkeys(point["variant"] for point in scores["points"])
    for variant, shade in zip(variants, PALETTE * len(variants), strict=False):
        points = sorted((each for each in scores["points"] if each["variant"] == variant), key=lambda p: p["shots"])
        (shots,) = _columns(points, "shots")
        value, low, high = _columns([point["scores"][metric] for point in points], "value", "low", "high")
        label = scores["model"].rstrip("/").rpartition("/")[2] if len(variants) == 1 else variant
        at = np.log2(shots + 1)  # a log axis that has 0
        _draw_band(axes, at, value, low, high, shade, label)
        axes.errorbar(at, value, [value - low, high - value], color=shade, capsize=3, linewidth=0, elinewidth=1.2)
    baselines = {name: values[metric]["value"] for name, values in scores["baselines"].items() if metric in values}
    for (name, value), dashes in zip(baselines.items(), DASHES * len(baselines), strict=False):
        axes.axhline(value, color=INK, linestyle=dashes, linewidth=1.3, label=name, alpha=0.7)
    shots = sorted({point["shots"] for point in scores["points"]})
    axes.set_xticks(np.log2(np.array(shots) + 1.0), [f"{each:,}" for each in shots])
    axes.set_xlabel("examples in the prompt")
    if scores["metrics"][metric]["share"]:
        percent_axis(axes, in_percent=True)
    # The legend is below the axes: inside, it would hide an interval.
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    return figure


# ---- experiments


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
    label_up_to(axes, 100)
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


# ---- compared models


@in_style
def comparison_figure(results: dict) -> Figure:
    """Score (CPU throughput where there are no scores) against latency; the area of a dot is the file size. The models
    are named in the legend."""
    has_scores = measured.has_scores(results)
    rows = [row for row in results["rows"] if not has_scores or row.get("score")]
    figure, axes = new_plot(measured.title(results), width=8.0, height=4.4 + 0.2 * len(rows))
    largest = max(row["bytes"] for row in rows)
    for row, shade in zip(rows, PALETTE * len(rows), strict=False):
        x, score = row["latency_ms"]["p50"], row.get("score") or {}
        y = score["value"] if score else row["throughput"]["cpu"]
        low, high = (number(score.get(name)) for name in ("low", "high"))
        axes.plot([x, x], [low, high], color=shade, linewidth=1.6, alpha=0.45, solid_capstyle="round")
        area = max(SMALLEST_DOT, LARGEST_DOT * row["bytes"] / largest)
        axes.scatter(x, y, s=area, color=shade, linewidths=1, edgecolors="white", zorder=3)
        axes.plot([], [], "o", color=shade, label=_label(row, results))  # in the legend, all dots have one size
    latencies = [row["latency_ms"]["p50"] for row in rows]
    axes.set_xscale("log")
    axes.set_xlim(min(latencies) / 1.6, max(latencies) * 1.6)  # at least a factor of 2.5, so that there is a tick
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.margins(y=0.15)
    axes.set_xlabel(
        f"median latency of one input on {formatting.counted(results['threads'], 'core')}, ms (dot area: file size)"
    )
    if has_scores and formatting.is_fraction(results["metric_for_best"]):
        percent_axis(axes)
    elif not has_scores:
        axes.set_ylabel("inputs per second on the CPU")
    figure.legend(loc="outside lower center", frameon=False)
    return figure


def _label(row: dict, results: dict) -> str:
    exported = "" if row["kind"] == "torch" else f" ({measured.KINDS[row['kind']]})"
    if row.get("score"):
        value = formatting.score(results["metric_for_best"], row["score"]["value"])
    else:
        value = f"{measured.format_speed(row['throughput']['cpu'])} inputs/s"
    return f"{row['name']}{exported}: {value}, {row['latency_ms']['p50']:.3g} ms"
