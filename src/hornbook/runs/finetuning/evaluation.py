"""Detects runs that learned nothing."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hornbook.tasks.evaluation import with_intervals
from hornbook.tasks.features import Task
from hornbook.tasks.kinds.choice import Choice, ChoicePrediction
from hornbook.tasks.kinds.classification import Classification, ClassPrediction
from hornbook.tasks.kinds.spans import SpanPrediction, Spans
from hornbook.tasks.kinds.tagging import Tagging, TagPrediction
from hornbook.tasks.records import Example

ENOUGH_CHOICES = 20  # questions: with fewer, choosing the same position every time may happen by chance
CONSTANT_SHARE = 0.02  # of the labels' standard deviation: predictions that vary less count as constant


def verdict(
    task: Task,
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
    task: Task,
    train: Sequence[Example],
    dev: Sequence[Example],
    predictions: list,
    scores: Mapping[str, Mapping[str, float]],
) -> str | None:
    """A message if the interval of the deciding score reaches down to the score of a constant answer; else None. With
    unbalanced classes this can happen to a model that does separate the classes (Matthews correlation above 0); for
    such a model the score itself, not its interval, is compared."""
    found = constant_answer(task, train)
    if found is None:
        return None
    description, answer = found
    measure, score = task.measures[0], scores[task.measures[0]]
    constant = task.scorer(dev, [answer] * len(dev) if not isinstance(task, Tagging) else _tagged(dev, answer))(None)
    chance = constant[measure]
    if score["value"] <= chance:
        return f"dev {measure} {score['value']:.3g} is no better than {description} ({chance:.3g})"
    if score["low"] > chance or _separates_classes(task, dev, predictions):
        return None
    value = f"{score['value']:.3g} (95% interval {score['low']:.3g} to {score['high']:.3g})"
    return f"dev {measure} {value} is not significantly better than {description} ({chance:.3g})"


def constant_answer(task: Task, train: Sequence[Example]) -> tuple[str, Any] | None:
    """The most frequent answer in training, or the mean, as a description and a prediction (a tag for tagging)."""
    labels = [each.gold for each in train if each.gold is not None]
    if not labels:
        return None
    if isinstance(task, Spans):
        return ("leaving every question unanswered", SpanPrediction("", 0, 0, 0.0, ())) if task.or_none else None
    if isinstance(task, Classification) and task.output.problem == "number":
        mean = float(np.mean(labels))
        return f"always answering the mean, {mean:.3g}", mean
    if isinstance(task, Tagging):
        tag = _commonest(tag for tags in labels for tag in tags)
        return f"tagging every word '{tag}'", tag
    commonest = _commonest(labels)
    if isinstance(task, Choice):
        return f"always taking ending {commonest + 1}", ChoicePrediction(commonest, ())
    return f"always answering '{_label_text(commonest)}'", ClassPrediction(commonest, {})


def _commonest(labels: Iterable[Any]) -> Any:
    return Counter(labels).most_common(1)[0][0]


def _tagged(examples: Sequence[Example], tag: str) -> list[TagPrediction]:
    return [TagPrediction((tag,) * len(each.words), ()) for each in examples]


def _separates_classes(task: Task, dev: Sequence[Example], predictions: list) -> bool:
    """Whether the 95% interval of the Matthews correlation of predictions and labels lies above 0."""
    if not isinstance(task, Classification) or task.output.problem != "single":
        return False
    correlation = replace(task, measures=("matthews",))
    return with_intervals(correlation, dev, predictions)["matthews"]["low"] > 0


def degenerate(task: Task, examples: Sequence[Example], predictions: list, losses: list[float]) -> str | None:
    """A message if the predictions or losses show that a run learned nothing; else None."""
    if isinstance(task, Classification) and len(examples) > 1:
        if task.output.problem == "number":
            spread, right = np.std(predictions), np.std([example.label for example in examples])
            if spread < CONSTANT_SHARE * right:
                return f"it answers about {np.mean(predictions):.2f} whatever the text"
        else:
            predicted, right = {each.label for each in predictions}, {example.label for example in examples}
            if len(predicted) == 1 and len(right) > 1:
                return f"it answers '{_label_text(next(iter(predicted)))}' whatever the text"
    if isinstance(task, Tagging):
        predicted, right = ({tag for each in side for tag in each.tags} for side in (predictions, examples))
        if len(predicted) == 1 and len(right) > 1:
            return f"it tags every word '{next(iter(predicted))}'"
    if isinstance(task, Choice) and len(examples) >= ENOUGH_CHOICES:
        predicted, right = {each.choice for each in predictions}, {example.label for example in examples}
        if len(predicted) == 1 and len(right) > 1:
            return f"it takes ending {next(iter(predicted)) + 1} whatever the endings"
    has_answers = isinstance(task, Spans) and any(example.answers for example in examples)
    if has_answers and not any(each.answer for each in predictions):
        return "it leaves every question unanswered"
    tenth = len(losses) // 10
    if tenth and np.mean(losses[-tenth:]) > 0.97 * np.mean(losses[:tenth]):
        return f"its training loss did not move ({np.mean(losses[:tenth]):.3f} to {np.mean(losses[-tenth:]):.3f})"
    return None


def _label_text(label: str | tuple[str, ...]) -> str:
    return label if isinstance(label, str) else ", ".join(label) or "no class"
