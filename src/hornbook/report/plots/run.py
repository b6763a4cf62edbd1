"""Plots of one run: learning curves, dev predictions against gold labels, scores by no-answer threshold."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter

from hornbook.metrics.formatting import number
from hornbook.report import formatting
from hornbook.report.finetuned import ReportedTaskRun
from hornbook.report.plots.drawing import (
    BLUE,
    DASHED,
    GREEN,
    INK,
    ORANGE,
    PALETTE,
    grid_of,
    in_style,
    label_up_to,
    new_plot,
    percent_axis,
    short_power,
    show_legend,
    smoothed,
    steps_below,
    thinned,
)
from hornbook.report.run_files import TOKENS, ReportedRun

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
NOT_SCORES = {"kind", "step", "loss", "best", "mean_absolute_error", "mean_squared_error"}
MAX_SCORES = 4
NO_SPAN = 1e3  # no-answer scores of questions for which there is no span are above it


@in_style
def pretraining_curves(run: ReportedRun) -> Figure:
    """One panel per loss, then accuracy, learning rate and speed, as far as the run has logged them."""
    panels = _panels(run)
    if not panels:
        raise ValueError(f"{run.folder} has no metrics yet: wait until the run has logged a few steps")
    figure = grid_of([partial(draw, run) for draw in panels])
    first = figure.axes[0]
    show_legend(first)
    if run.step and run.tokens:
        tokens_per_step, short = run.tokens / run.step, EngFormatter(places=1, sep="")
        with_tokens = FuncFormatter(lambda step, _: f"{step:,.0f}\n{short(step * tokens_per_step) if step else ''}")
        first.xaxis.set_major_formatter(with_tokens)
        first.set_xlabel("step, tokens seen")
    return figure


def _panels(run: ReportedRun) -> list[Callable[[ReportedRun, Axes], None]]:
    terms = run.terms
    losses = ["loss", *terms] if len(terms) > 1 else terms or ["loss"]
    has_lines = run.train or run.validations
    panels = [partial(_draw_loss, name) for name in losses if has_lines]
    if any(name.endswith("_accuracy") for name in (run.last_validation or {})):
        panels.append(_draw_accuracy)
    if np.isfinite(run.column("train", "lr")).any():
        panels.append(_draw_learning_rate)
    if np.isfinite(run.column("train", "tokens_per_second")).any():
        panels.append(_draw_speed)
    return panels


def _draw_loss(name: str, run: ReportedRun, axes: Axes) -> None:
    tokens = run.predicted_tokens.get(name)
    axes.set_title(f"Loss on {tokens}s ({name})" if tokens else TITLES.get(name, f"Loss ({name})"))
    heights = _draw_train_and_validation(axes, run, name, "validation")
    best = run.best_validation
    if best is not None and name in best:
        axes.plot(best["step"], best[name], "*", color=ORANGE, markersize=13, zorder=4, label="best validation")
    if name in TOKENS and name in run.baseline:
        heights.append(_draw_reference(axes, run.baseline[name], "unigram baseline", "{:.2f}"))
    elif name in ("nsp", "sop"):
        heights.append(_draw_reference(axes, CHANCE_LOSS, "chance", "{:.2f}"))
    _fit_height(axes, heights)
    _mark_events(axes, run, "event (see the report)")
    steps_below(axes, run.step)


def _draw_train_and_validation(axes: Axes, run: ReportedRun, name: str, label: str) -> list[float]:
    """Draws the curves of a loss. Returns the heights to show: all validation losses, and the training losses up to
    their 99.7th percentile, so that one loss of 1,000 does not flatten the curve."""
    steps, values = run.column("train", "step"), run.column("train", name)
    if len(values) >= MANY:
        axes.plot(*thinned(steps, values), color=BLUE, alpha=0.3, linewidth=0.8)
        smooth = smoothed(values, max(7, len(values) // 40))
        axes.plot(*thinned(steps, smooth), color=BLUE, linewidth=1.9, label="training, smoothed")
    elif len(values):
        axes.plot(steps, values, ".-", color=BLUE, linewidth=1.4, alpha=0.9, label="training")
    at, validation = run.column("validation", "step"), run.column("validation", name)
    if len(validation):
        axes.plot(at, validation, "o-", color=ORANGE, markersize=3.8, linewidth=1.1, label=label)
    known = values[np.isfinite(values)]
    return [*(np.percentile(known, (0, 99.7)) if len(known) else ()), *validation[np.isfinite(validation)]]


def _fit_height(axes: Axes, heights: list[float]) -> None:
    if heights:
        low, high = min(heights), max(heights)
        margin = 0.06 * (high - low) or 0.5
        axes.set_ylim(low - margin, high + 1.6 * margin)


def _draw_accuracy(run: ReportedRun, axes: Axes) -> None:
    axes.set_title("Accuracy on held-out text")
    at = run.column("validation", "step")
    names = [name for name in run.last_validation if name.endswith("_accuracy")]
    for name, shade in zip(names, PALETTE, strict=False):
        label = name.removesuffix("_accuracy")
        axes.plot(at, run.column("validation", name), "o-", color=shade, markersize=3.6, label=label)
    for accuracy in (value for name, value in run.baseline.items() if name.endswith("_accuracy")):
        _draw_reference(axes, accuracy, "most frequent token", "{:.1%}")
    if "rtd_replaced" in run.last_validation:
        accuracy = 1 - run.last_validation["rtd_replaced"]
        _draw_reference(axes, accuracy, "always predicting original", "{:.1%}")
    axes.set_ylim(bottom=0)
    percent_axis(axes)
    _mark_events(axes, run)
    steps_below(axes, run.step)
    show_legend(axes)


def _draw_learning_rate(run: ReportedRun, axes: Axes) -> None:
    axes.set_title("Learning rate")
    steps, rates = run.column("train", "step"), run.column("train", "lr")
    axes.plot(*thinned(steps, rates), color=GREEN, linewidth=1.7, marker="." if len(rates) < MANY else None)
    axes.yaxis.set_major_formatter(FuncFormatter(short_power))
    axes.set_ylim(bottom=0)
    _mark_events(axes, run)
    steps_below(axes, run.step)


def _draw_speed(run: ReportedRun, axes: Axes) -> None:
    axes.set_title("Tokens per second")
    seconds, speed = run.column("train", "seconds"), run.column("train", "tokens_per_second")
    longest = np.nanmax(seconds, initial=0.0)
    unit, word = next(
        (u, w) for u, w in ((3600, "hours"), (60, "minutes"), (1, "seconds")) if longest >= 2 * u or u == 1
    )
    marker = "." if len(speed) < MANY else None
    axes.plot(*thinned(seconds / unit, speed), color=GREEN, marker=marker, linewidth=0.8, alpha=0.3)
    axes.plot(*thinned(seconds / unit, smoothed(speed, max(7, len(speed) // 40))), color=GREEN, linewidth=1.7)
    axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_ylim(0, 1.15 * np.nanmax(speed) or 1.0)
    axes.set_xlim(left=0)
    axes.set_xlabel(f"{word} of training")


def _draw_reference(axes: Axes, height: float, label: str, form: str) -> float:
    axes.axhline(height, **DASHED)
    axes.annotate(
        f"{label}: {form.format(height)}",
        (0.99, height),
        xycoords=("axes fraction", "data"),
        xytext=(0, 4),
        textcoords="offset points",
        ha="right",
        fontsize=8,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.35, "pad": 1},
    )
    return height


def _mark_events(axes: Axes, run: ReportedRun, label: str | None = None) -> None:
    for i, event in enumerate(run.events[:50]):
        step = event.get("at_step", event["step"])
        axes.axvline(step, color=INK, linestyle=":", linewidth=1.2, alpha=0.7, label=None if i else label)


# ---- fine-tuning


@in_style
def finetuning_curves(run: ReportedTaskRun) -> Figure:
    """Training and dev loss and, after the first validation, the dev scores; the best step is marked."""
    names = [
        name
        for name in run.last_validation or {}
        # An error, say, may be above 1, beyond the axis of the scores.
        if name not in NOT_SCORES and (name == run.metric_for_best or not (run.column("validation", name) > 1).any())
    ]
    names = sorted(names, key=lambda name: name != run.metric_for_best)[:MAX_SCORES]  # that of model selection first
    panels = [partial(_draw_task_loss, run)]
    return grid_of([*panels, partial(_draw_task_scores, run, names)] if names else panels, height=3.3)


def _draw_task_loss(run: ReportedTaskRun, axes: Axes) -> None:
    axes.set_title("Loss")
    _fit_height(axes, _draw_train_and_validation(axes, run, "loss", "dev"))
    _mark_best(axes, run)


def _draw_task_scores(run: ReportedTaskRun, names: list[str], axes: Axes) -> None:
    axes.set_title("Scores on dev")
    at = run.column("validation", "step")
    shades = (ORANGE, GREEN, BLUE, INK)
    for i, (name, shade) in enumerate(zip(names, shades, strict=False)):
        width, alpha = (1.9, 1.0) if i == 0 else (1.1, 0.75)
        label = formatting.metric_label(name) + (" (model selection)" if i == 0 and len(names) > 1 else "")
        values = run.column("validation", name)
        axes.plot(at, values, "o-", color=shade, linewidth=width, alpha=alpha, markersize=4, label=label)
    best = run.best_validation
    if best is not None and names[0] in best:
        axes.plot(best["step"], best[names[0]], "*", color=ORANGE, markersize=14, zorder=4)
    low, high = axes.get_ylim()
    margin = max(0.15 * (high - low), 0.02)
    axes.set_ylim(low - margin / 2, min(high + margin, 1.02))  # no score is above 1
    if all(map(formatting.is_fraction, names)):
        percent_axis(axes)
    else:
        label_up_to(axes, 1)
    _mark_best(axes, run)


def _mark_best(axes: Axes, run: ReportedTaskRun) -> None:
    best = run.best_validation
    if best is not None:
        axes.axvline(best["step"], **DASHED, label=f"best, step {best['step']:,}")
    steps_below(axes, run.step)
    show_legend(axes)


# ---- predictions


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
    """Scores by no-answer threshold, with the chosen one. `points`: (threshold, exact match, F1)."""
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
    percent_axis(axes)
    axes.legend(loc="best")
    return figure


def _usual_range(at: np.ndarray, threshold: float) -> tuple[float, float]:
    """Where nearly all scores are, and the threshold: questions without any span have a very high score."""
    low, high = np.quantile(at, (0.005, 0.995)) if len(at) > 200 else (at.min(), at[at < NO_SPAN].max(initial=at.min()))
    low, high = min(low, threshold), max(high, threshold)
    margin = 0.04 * (high - low) or 0.5
    return float(low - margin), float(high + margin)
