"""Predictions and the task's standard metrics with confidence intervals of a fine-tuned model on a data split."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hornbook.metrics.bootstrap import intervals, wilson_interval
from hornbook.metrics.breakdown import Judged, as_tables
from hornbook.tasks.encoded import EncodedExamples
from hornbook.tasks.records import Example
from hornbook.tasks.running import AutoCast, run_model
from hornbook.tasks.task import Task

if TYPE_CHECKING:
    from torch import nn

ACCURACY = "accuracy"  # the share of the examples that are right


@dataclass(frozen=True)
class Evaluation:
    """`predictions`: one per example, in order. Without labels, `scores` is empty and `loss` is None."""

    predictions: list
    scores: dict[str, float] = field(default_factory=dict)
    loss: float | None = None


def evaluate_split(
    model: "nn.Module",
    task: Task,
    examples: Sequence[Example],
    encoded: EncodedExamples,
    autocast: AutoCast,
    micro_tokens: int,
) -> Evaluation:
    result = run_model(model, encoded, autocast, micro_tokens)
    predictions = task.decode(result.outputs, encoded, examples)
    if not examples or any(example.gold is None for example in examples):
        return Evaluation(predictions)
    return Evaluation(predictions, task.scorer(examples, predictions)(None), result.loss)


def with_intervals(task: Task, examples: Sequence[Example], predictions: list) -> dict[str, dict[str, float]]:
    """Every score (`value`) with its 95% interval over the examples (`low`, `high`): Wilson's for accuracy, for other
    scores by bootstrap."""
    score = task.scorer(examples, predictions)
    scores, bounds = score(None), intervals(score, len(examples))
    if ACCURACY in scores:
        bounds[ACCURACY] = wilson_interval(scores[ACCURACY], len(examples))
    return {name: {"value": value, "low": bounds[name][0], "high": bounds[name][1]} for name, value in scores.items()}


def rescored(task: Task, examples: Sequence[Example], evaluation: Evaluation) -> Evaluation:
    """The evaluation with the threshold of `task` applied and the scores recomputed."""
    predictions = task.thresholded(evaluation.predictions)
    if predictions is evaluation.predictions:
        return evaluation
    return replace(evaluation, predictions=predictions, scores=task.scorer(examples, predictions)(None))


def rows(task: Task, examples: Sequence[Example], predictions: list) -> list[dict[str, Any]]:
    """Predictions as written to `predictions-dev.jsonl`: the example's key, its gold label, and the prediction."""
    return [
        {"key": example.key, "gold": example.gold, **task.describe(example, prediction)}
        for example, prediction in zip(examples, predictions, strict=True)
    ]


def tables(task: Task, examples: Sequence[Example], predictions: list) -> dict[str, Any]:
    """Scores per class and the confusion matrix, where the task has them."""
    has_entities = "entity_f1" in task.metrics
    judged = Judged(
        rows(task, examples, predictions), list(task.head_config.labels), task.allows_no_answer, has_entities
    )
    return as_tables(task.tallies(judged), task.confusion(judged))
