"""The learning curves of a fine-tuning run: training loss, dev loss and dev scores."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from hornbook.report import wording
from hornbook.report.drawing import (
    DARK,
    LIGHT,
    Colours,
    as_png,
    fit_height,
    grid_of,
    show_legend,
    smoothed,
    steps_below,
    thinned,
    write_title,
)
from hornbook.report.finetuned import FinetunedRun

MANY = 40  # curves with at least this many points are smoothed
NOT_SCORES = {"kind", "step", "loss", "best", "mean_squared_error"}
MOST_SCORES = 4


def learning_png(run: FinetunedRun, dark: bool = False, columns: int = 2) -> bytes:
    return as_png(learning_figure(run, DARK if dark else LIGHT, columns))


def learning_figure(run: FinetunedRun, colours: Colours = LIGHT, columns: int = 2) -> Figure:
    """Training and dev loss and, after the first validation, the dev scores; the best step is marked."""
    panels = [lambda axes: _draw_loss(axes, run, colours)]
    if _score_names(run):
        panels.append(lambda axes: _draw_scores(axes, run, colours))
    return grid_of(panels, colours, columns, height=3.3)


def _score_names(run: FinetunedRun) -> list[str]:
    """Names of the dev scores, the one used for model selection first."""
    named = [name for name in (run.record.last_validation or {}) if name not in NOT_SCORES]
    return sorted(named, key=lambda name: name != run.decided_by)[:MOST_SCORES]


def _draw_loss(axes: Axes, run: FinetunedRun, colours: Colours) -> None:
    record = run.record
    write_title(axes, "Loss", colours)
    steps, values = record.column("train", "step"), record.column("train", "loss")
    if len(values) >= MANY:
        axes.plot(*thinned(steps, values), color=colours.train, alpha=0.3, linewidth=0.8)
        smooth = smoothed(values, max(7, len(values) // 40))
        axes.plot(*thinned(steps, smooth), color=colours.train, linewidth=1.9, label="training, smoothed")
    elif len(values):
        axes.plot(steps, values, ".-", color=colours.train, linewidth=1.4, label="training")
    at, found = record.column("validation", "step"), record.column("validation", "loss")
    if len(found):
        axes.plot(at, found, "o-", color=colours.validation, markersize=4, linewidth=1.2, label="dev")
    fit_height(axes, values, found, None)
    _mark_best(axes, run, colours)
    steps_below(axes, record.step)
    show_legend(axes, colours)


def _draw_scores(axes: Axes, run: FinetunedRun, colours: Colours) -> None:
    record, names = run.record, _score_names(run)
    write_title(axes, "Scores on dev", colours)
    at = record.column("validation", "step")
    shades = (colours.validation, colours.third, colours.train, colours.ink)
    for number, (name, shade) in enumerate(zip(names, shades, strict=False)):
        values = record.column("validation", name)
        width, see_through = (1.9, 1.0) if number == 0 else (1.1, 0.75)
        label = wording.measure(name) + (" (model selection)" if number == 0 and len(names) > 1 else "")
        axes.plot(at, values, "o-", color=shade, linewidth=width, alpha=see_through, markersize=4, label=label)
    best = run.best_validation
    if best is not None and names[0] in best:
        axes.plot(best["step"], best[names[0]], "*", color=colours.validation, markersize=14, zorder=4)
    unit = 1 if run.in_percent else 100
    if not set(names) & set(wording.NOT_SHARES):
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{unit * value:g}%"))
    low, high = axes.get_ylim()
    margin = max(0.15 * (high - low), 0.02 * (100 / unit))
    axes.set_ylim(low - margin / 2, high + margin)
    _mark_best(axes, run, colours)
    steps_below(axes, record.step)
    show_legend(axes, colours)


def _mark_best(axes: Axes, run: FinetunedRun, colours: Colours) -> None:
    best = run.best_validation
    if best is None:
        return
    label = f"best, step {best['step']:,}"
    axes.axvline(best["step"], color=colours.ink, linestyle=(0, (4, 3)), linewidth=1.1, alpha=0.7, label=label)


def has_curves(run: FinetunedRun) -> bool:
    return bool(np.isfinite(run.record.column("train", "loss")).any() or run.record.validations)
