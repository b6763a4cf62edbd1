"""A verdict on runs that learned nothing."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hornbook.tasks.choice import Choice, ChoicePrediction
from hornbook.tasks.classification import Classification, ClassPrediction
from hornbook.tasks.evaluation import label_of, with_intervals
from hornbook.tasks.records import Example
from hornbook.tasks.spans import SpanPrediction, Spans
from hornbook.tasks.tagging import Tagging, TagPrediction
from hornbook.tasks.task import Task

ENOUGH_CHOICES = 20  # questions: of fewer, one and the same place may be right by chance
CONSTANT_SHARE = 0.02  # of the spread of the right numbers: predictions that vary less are one number


def verdict(
    task: Task,
    train: Sequence[Example],
    dev: Sequence[Example],
    predictions: list,
    scores: Mapping[str, Mapping[str, float]],
    losses: list[float],
) -> str | None:
    """What `degenerate` says of the predictions on dev, or else that their score is no better than chance: than the
    best answer that does not read the text, chosen on `train`. `scores` are those of dev, with their intervals."""
    return degenerate(task, dev, predictions, losses) or near_chance(task, train, dev, predictions, scores)


def near_chance(
    task: Task,
    train: Sequence[Example],
    dev: Sequence[Example],
    predictions: list,
    scores: Mapping[str, Mapping[str, float]],
) -> str | None:
    """Where the interval of the score that decides reaches down to that of a constant answer. Of unbalanced classes
    accuracy may do so although the model tells them apart: then it must not be above the constant answer's."""
    found = constant_answer(task, train)
    if found is None:
        return None
    words, answer = found
    measure, score = task.measures[0], scores[task.measures[0]]
    constant = task.scorer(dev, [answer] * len(dev) if not isinstance(task, Tagging) else _tagged(dev, answer))(None)
    chance = constant[measure]
    if score["value"] <= chance:
        return f"dev {measure} {score['value']:.3g} is no better than {words} ({chance:.3g})"
    if score["low"] > chance or _tells_classes_apart(task, dev, predictions):
        return None
    interval = f"95% interval {score['low']:.3g} to {score['high']:.3g}"
    return f"dev {measure} {score['value']:.3g} ({interval}) is not significantly better than {words} ({chance:.3g})"


def constant_answer(task: Task, train: Sequence[Example]) -> tuple[str, Any] | None:
    """The commonest answer in training, or the mean: in words, and as a prediction (of tags: a tag)."""
    labels = [label for label in map(label_of, train) if label is not None]
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
    return f"always answering '{_words(commonest)}'", ClassPrediction(commonest, {})


def _commonest(labels: Iterable[Any]) -> Any:
    return Counter(labels).most_common(1)[0][0]


def _tagged(examples: Sequence[Example], tag: str) -> list[TagPrediction]:
    return [TagPrediction((tag,) * len(each.words), ()) for each in examples]


def _tells_classes_apart(task: Task, dev: Sequence[Example], predictions: list) -> bool:
    """Whether the correlation of predicted and right classes is above 0, interval and all."""
    if not isinstance(task, Classification) or task.output.problem != "single":
        return False
    correlation = replace(task, measures=("matthews",))
    return with_intervals(correlation, dev, predictions)["matthews"]["low"] > 0


def degenerate(task: Task, examples: Sequence[Example], predictions: list, losses: list[float]) -> str | None:
    """In words, what shows that a run learned nothing; None when nothing does."""
    if isinstance(task, Classification) and len(examples) > 1:
        if task.output.problem == "number":
            spread, right = np.std(predictions), np.std([example.label for example in examples])
            if spread < CONSTANT_SHARE * right:
                return f"it answers about {np.mean(predictions):.2f} whatever the text"
        else:
            said, right = {each.label for each in predictions}, {example.label for example in examples}
            if len(said) == 1 and len(right) > 1:
                return f"it answers '{_words(next(iter(said)))}' whatever the text"
    if isinstance(task, Tagging):
        said, right = ({tag for each in side for tag in each.tags} for side in (predictions, examples))
        if len(said) == 1 and len(right) > 1:
            return f"it tags every word '{next(iter(said))}'"
    if isinstance(task, Choice) and len(examples) >= ENOUGH_CHOICES:
        places, right = {each.choice for each in predictions}, {example.label for example in examples}
        if len(places) == 1 and len(right) > 1:
            return f"it takes ending {next(iter(places)) + 1} whatever the endings"
    has_answers = isinstance(task, Spans) and any(example.answers for example in examples)
    if has_answers and not any(each.answer for each in predictions):
        return "it leaves every question unanswered"
    tenth = len(losses) // 10
    if tenth and np.mean(losses[-tenth:]) > 0.97 * np.mean(losses[:tenth]):
        return f"its training loss did not move ({np.mean(losses[:tenth]):.3f} to {np.mean(losses[-tenth:]):.3f})"
    return None


def _words(label: str | tuple[str, ...]) -> str:
    return label if isinstance(label, str) else ", ".join(label) or "no class"
