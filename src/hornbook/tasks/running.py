"""Runs a model over encoded examples: its outputs per unit, in order, and the loss if labels are known."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from hornbook.batch import Batch
from hornbook.devices import device_of, evaluation_mode
from hornbook.tasks.encoded import EncodedExamples, Outputs
from hornbook.tasks.objective import TaskObjective

AutoCast = Callable[[], object]


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
    `encoded`. `on_progress` receives the number of units done."""
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
            losses, _, weights = objective.losses(outputs, step_inputs)
            loss += float((losses * weights).sum())
            count += float(weights.sum())
        return outputs.float().cpu().numpy()

    with evaluation_mode(model):
        outputs = outputs_by_unit(run, encoded, model.head_config.output_type.per_token, micro_tokens, on_progress)
    return RunResult(outputs, loss / count if count else None)


def outputs_by_unit(
    run: Callable[[Batch], np.ndarray],
    encoded: EncodedExamples,
    per_token: bool,
    max_tokens: int,
    on_progress: Callable[[int], None] | None = None,
) -> Outputs:
    """What `run` returns for batches of at most `max_tokens` tokens, short sequences first, by unit in the order of
    `encoded`. `per_token`: `run` returns a row per token, otherwise one per unit."""
    outputs: list[np.ndarray | None] = [None] * encoded.num_units
    num_done = 0
    lengths = np.array([len(each) for each in encoded.ids]).reshape(-1, encoded.group_size)
    order = np.argsort(lengths.max(1, initial=0), kind="stable").tolist()
    for units in grouped(order, lengths.sum(1).tolist(), max_tokens):
        batch = encoded.packed([unit * encoded.group_size + i for unit in units for i in range(encoded.group_size)])
        rows = run(batch)
        by_unit = np.split(rows, batch.offsets_host[1:-1]) if per_token else rows
        for unit, output in zip(units, by_unit, strict=True):
            outputs[unit] = output
        num_done += len(units)
        if on_progress:
            on_progress(num_done)
    return outputs


def grouped(order: Iterable[int], num_tokens: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Consecutive units of `order` in groups of at most `max_tokens` tokens; a longer unit is a group of its own."""
    group: list[int] = []
    tokens = 0
    for unit in order:
        if group and tokens + num_tokens[unit] > max_tokens:
            yield group
            group, tokens = [], 0
        group.append(unit)
        tokens += num_tokens[unit]
    if group:
        yield group
