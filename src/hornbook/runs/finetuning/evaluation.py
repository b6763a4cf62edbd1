"""Detects runs that learned nothing."""

from collections.abc import Mapping, Sequence

import numpy as np

from hornbook.tasks.evaluation import with_intervals
from hornbook.tasks.kind import TaskKind
from hornbook.tasks.records import Example


def verdict(
    task: TaskKind,
    train: Sequence[Example],
    dev: Sequence[Example],
    predictions: list,
    scores: Mapping[str, Mapping[str, float]],
    losses: list[float],
) -> str | None:
    """A message if the dev predictions are degenerate, or if their score is no better than chance; else None. Chance is
    the constant answer that is best on `train`. `scores` are the dev scores with their intervals."""
    return degenerate(task, dev, predictions, losses) or near_chance(task, train, dev, predictions, scores)


def near_chance(
    task: TaskKind,
    train: Sequence[Example],
    dev: Sequence[Example],
    predictions: list,
    scores: Mapping[str, Mapping[str, float]],
) -> str | None:
    """A message if the interval of the deciding score reaches down to the score of a constant answer; else None. With
    unbalanced classes this can happen to a model that does separate the classes (Matthews correlation above 0); for
    such a model the score itself, not its interval, is compared."""
    gold = [each.gold for each in train if each.gold is not None]
    constant = task.constant(gold) if gold else None
    if constant is None:
        return None
    description, predict = constant
    measure, score = task.measures[0], scores[task.measures[0]]
    chance = task.scorer(dev, predict(dev))(None)[measure]
    if score["value"] <= chance:
        return f"dev {measure} {score['value']:.3g} is no better than {description} ({chance:.3g})"
    if score["low"] > chance or _separates_classes(task, dev, predictions):
        return None
    value = f"{score['value']:.3g} (95% interval {score['low']:.3g} to {score['high']:.3g})"
    return f"dev {measure} {value} is not significantly better than {description} ({chance:.3g})"


def _separates_classes(task: TaskKind, dev: Sequence[Example], predictions: list) -> bool:
    """Whether the 95% interval of the Matthews correlation of predictions and labels lies above 0."""
    correlation = task.correlation
    if correlation is None:
        return False
    return with_intervals(correlation, dev, predictions)[correlation.measures[0]]["low"] > 0


def degenerate(task: TaskKind, examples: Sequence[Example], predictions: list, losses: list[float]) -> str | None:
    """A message if the predictions or losses show that a run learned nothing; else None."""
    if message := task.degenerate(examples, predictions):
        return message
    tenth = len(losses) // 10
    if tenth and np.mean(losses[-tenth:]) > 0.97 * np.mean(losses[:tenth]):
        return f"its training loss did not move ({np.mean(losses[:tenth]):.3f} to {np.mean(losses[-tenth:]):.3f})"
    return None
