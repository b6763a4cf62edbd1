"""Runs a model over encoded examples: its outputs, its predictions, and the task's standard metrics with confidence
intervals."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from hornbook.batch import Batch
from hornbook.devices import device_of, evaluation_mode
from hornbook.metrics.breakdown import Judged, as_tables
from hornbook.metrics.confidence_intervals import intervals, wilson_interval
from hornbook.tasks.encoded import EncodedExamples, Outputs
from hornbook.tasks.objective import TaskObjective
from hornbook.tasks.records import Example
from hornbook.tasks.task import Task

AutoCast = Callable[[], object]
ACCURACY = "accuracy"  # the share of the examples that are right


class RunResult(NamedTuple):
    outputs: Outputs
    loss: float | None


@torch.no_grad()
def run_model(
    model: nn.Module,
    encoded: EncodedExamples,
    autocast: AutoCast,
    micro_tokens: int,
    on_progress: Callable[[int], None] | None = None,
) -> RunResult:
    """Runs batches of at most `micro_tokens` tokens, short sequences first; the outputs are in the order of
    `encoded`. `on_progress` receives the number of groups done."""
    device = device_of(model)
    objective = TaskObjective(model.head_config)
    has_labels = encoded.labels is not None or encoded.token_labels is not None
    loss = count = 0.0

    def run(batch: Batch) -> np.ndarray:
        nonlocal loss, count
        batch = batch.to(device)
        with autocast():
            outputs = model.outputs(batch)
        if has_labels:
            step_inputs = objective.prepare(batch, seed=0)
            loss += float(objective.sums_of(outputs, step_inputs)["task"])
            count += float(step_inputs.total_weights()["task"])
        return outputs.float().cpu().numpy()

    with evaluation_mode(model):
        outputs = outputs_by_group(run, encoded, model.head_config.output_type.per_token, micro_tokens, on_progress)
    return RunResult(outputs, loss / count if count else None)


def outputs_by_group(
    run: Callable[[Batch], np.ndarray],
    encoded: EncodedExamples,
    per_token: bool,
    max_tokens: int,
    on_progress: Callable[[int], None] | None = None,
) -> Outputs:
    """What `run` returns for batches of at most `max_tokens` tokens, short sequences first, by group in the order of
    `encoded`. `per_token`: `run` returns a row per token, otherwise one per group."""
    outputs: list[np.ndarray | None] = [None] * encoded.num_groups
    num_done = 0
    for groups in encoded.length_batches(max_tokens):
        batch = encoded.packed(encoded.sequences_of(groups))
        rows = run(batch)
        by_group = np.split(rows, batch.offsets_host[1:-1]) if per_token else rows
        for group, output in zip(groups, by_group, strict=True):
            outputs[group] = output
        num_done += len(groups)
        if on_progress:
            on_progress(num_done)
    return outputs


@dataclass(frozen=True)
class Evaluation:
    """`predictions`: one per example, in order. Without labels, `scores` is empty and `loss` is None."""

    predictions: list
    scores: dict[str, float] = field(default_factory=dict)
    loss: float | None = None


def evaluate_split(
    model: nn.Module,
    task: Task,
    examples: Sequence[Example],
    encoded: EncodedExamples,
    autocast: AutoCast,
    micro_tokens: int,
) -> Evaluation:
    """The predictions of a model for a split, with their scores and loss if all examples have labels, which may be
    missing in test splits."""
    result = run_model(model, encoded, autocast, micro_tokens)
    predictions = task.decode(result.outputs, encoded, examples)
    if not examples or any(example.gold is None for example in examples):
        return Evaluation(predictions)
    return Evaluation(predictions, task.scorer(examples, predictions)(), result.loss)


def with_intervals(task: Task, examples: Sequence[Example], predictions: list) -> dict[str, dict[str, float]]:
    """Every score (`value`) with its 95% interval over the examples (`low`, `high`): Wilson's for accuracy, for other
    scores by bootstrap."""
    score = task.scorer(examples, predictions)
    scores, bounds = score(), intervals(score, len(examples))
    if ACCURACY in scores:
        bounds[ACCURACY] = wilson_interval(scores[ACCURACY], len(examples))
    return {name: {"value": value, "low": bounds[name][0], "high": bounds[name][1]} for name, value in scores.items()}


def rescored(task: Task, examples: Sequence[Example], evaluation: Evaluation) -> Evaluation:
    """The evaluation with the threshold of `task` applied and the scores recomputed."""
    predictions = task.apply_threshold(evaluation.predictions)
    if predictions is evaluation.predictions:
        return evaluation
    return replace(evaluation, predictions=predictions, scores=task.scorer(examples, predictions)())


def prediction_rows(task: Task, examples: Sequence[Example], predictions: list) -> list[dict[str, Any]]:
    """Predictions as written to `predictions-dev.jsonl`: the example's key, its gold label, and the prediction."""
    return [
        {"key": example.key, "gold": example.gold, **task.describe(example, prediction)}
        for example, prediction in zip(examples, predictions, strict=True)
    ]


def score_tables(task: Task, examples: Sequence[Example], predictions: list) -> dict[str, Any]:
    """Scores per class and the confusion matrix, where the task has them."""
    has_entities = "entity_f1" in task.metrics
    judged = Judged(
        prediction_rows(task, examples, predictions), list(task.head_config.labels), task.allows_no_answer, has_entities
    )
    return as_tables(task.tallies(judged), task.confusion(judged))
