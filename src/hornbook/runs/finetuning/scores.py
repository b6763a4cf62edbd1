"""The scores of a model or a baseline on labelled data: its score on every labelled split, its predictions on dev, and
whether it learned anything.

OUT/scores.json           standard metrics with intervals, for every split that has labels
OUT/predictions-dev.jsonl the prediction and the label of each dev example
OUT/task.json             what prediction needs besides a model: metrics, threshold, tagging scheme
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from hornbook.files import read_json, write_json, write_text
from hornbook.lifecycle.run_folder import SCORES
from hornbook.runs.finetuning.inputs import LabelledTask
from hornbook.tasks.evaluation import prediction_rows, with_intervals
from hornbook.tasks.records import Example
from hornbook.tasks.spec import save_task
from hornbook.tasks.task import Task


@dataclass(frozen=True)
class TaskResult:
    """What a finished run returns: its folder, the scores of each split, and a message if the model is degenerate."""

    out: Path
    scores: dict[str, Any]
    metric_for_best: str
    degenerate: str | None

    @property
    def score(self) -> float:
        """The dev score of the metric that selects the best model."""
        return self.scores["dev"][self.metric_for_best]["value"]

    @classmethod
    def read(cls, out: Path, **more: Any) -> Self:
        """The result that `write_scores` wrote; `more` are the fields of a subclass."""
        scores = read_json(out / SCORES)
        return cls(out, scores["splits"], scores["metric_for_best"], scores["degenerate"], **more)


class SplitScores(NamedTuple):
    task: Task  # with the threshold that is best on dev
    predictions: list  # on dev
    scores: dict[str, dict[str, dict[str, float]]]  # scores with intervals, by split


def score_splits(inputs: LabelledTask, predict: Callable[[str, list[Example]], list]) -> SplitScores:
    """The scores of every split that has labels. `predict` takes the name of a split and its examples."""
    dev, predictions = inputs.dev, predict("dev", inputs.dev)
    task = inputs.spec.task.with_best_threshold(dev, predictions)
    predictions = task.apply_threshold(predictions)
    scores = {"dev": with_intervals(task, dev, predictions)}
    if inputs.threshold_split:
        tuned_on_train = task.with_best_threshold(
            inputs.threshold_split, predict("a split of train", inputs.threshold_split)
        )
        name = "dev, threshold chosen on a split of train"
        scores[name] = with_intervals(tuned_on_train, dev, tuned_on_train.apply_threshold(predictions))
    for name, examples in inputs.other_splits().items():
        scores[name] = with_intervals(task, examples, task.apply_threshold(predict(name, examples)))
    return SplitScores(task, predictions, scores)


def write_predictions(out: Path, inputs: LabelledTask, scored: SplitScores, max_length: int | None = None) -> None:
    """Writes `task.json` and `predictions-dev.jsonl`. `max_length` is the maximum sequence length of a model."""
    save_task(out, replace(inputs.spec, task=scored.task, max_length=max_length))
    lines = [
        json.dumps(row, ensure_ascii=False) for row in prediction_rows(scored.task, inputs.dev, scored.predictions)
    ]
    write_text(out / "predictions-dev.jsonl", "\n".join(lines) + "\n")


def write_scores(out: Path, inputs: LabelledTask, scored: SplitScores, losses: list[float]) -> None:
    """Writes `scores.json`, which shows that a run is finished. `losses` are those of its training."""
    task, scores = scored.task, scored.scores
    message = degenerate(task, inputs.train, inputs.dev, scored.predictions, scores["dev"], losses)
    write_json(out / SCORES, {"metric_for_best": task.metrics[0], "degenerate": message, "splits": scores})


def degenerate(
    task: Task,
    train: Sequence[Example],
    dev: Sequence[Example],
    predictions: list,
    scores: Mapping[str, Mapping[str, float]],
    losses: list[float],
) -> str | None:
    """A message if the dev predictions are degenerate, or if their score is no better than chance; else None. `scores`
    are the dev scores with their intervals.

    The model must beat the constant prediction that is best on `train`: the lower end of the interval of
    `metric_for_best` must be above the score of that prediction. For unbalanced classes it is enough that the score is
    above it and the Matthews correlation is significantly above 0."""
    if message := learned_nothing(task, dev, predictions, losses):
        return message
    gold = [example.gold for example in train if example.gold is not None]
    constant = task.best_constant(gold) if gold else None
    if constant is None:
        return None
    description, predict = constant
    metric, score = task.metrics[0], scores[task.metrics[0]]
    chance = task.scorer(dev, predict(dev))()[metric]
    if score["value"] <= chance:
        return f"dev {metric} {score['value']:.3g} is not above {description} ({chance:.3g})"
    if score["low"] > chance:
        return None
    correlation = task.with_correlation_metric  # of predictions and labels (Matthews)
    if correlation is not None and with_intervals(correlation, dev, predictions)[correlation.metrics[0]]["low"] > 0:
        return None
    value = f"{score['value']:.3g} ({score['low']:.3g} to {score['high']:.3g})"
    return f"dev {metric} {value} is not significantly above {description} ({chance:.3g})"


def learned_nothing(task: Task, examples: Sequence[Example], predictions: list, losses: list[float]) -> str | None:
    """A message if the predictions or losses show that a run learned nothing; else None."""
    if message := task.degenerate(examples, predictions):
        return message
    if tenth := len(losses) // 10:
        first, last = np.mean(losses[:tenth]), np.mean(losses[-tenth:])
        if last > 0.97 * first:
            return f"the training loss did not move ({first:.3f} to {last:.3f})"
    return None
