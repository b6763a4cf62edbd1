"""Runs a model over encoded examples: its outputs per group, in order, and the loss if labels are known."""

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
            losses, _, weights = objective.losses(outputs, step_inputs)
            loss += float((losses * weights).sum())
            count += float(weights.sum())
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
    lengths = np.array([len(each) for each in encoded.ids]).reshape(-1, encoded.group_size)
    order = np.argsort(lengths.max(1, initial=0), kind="stable").tolist()
    for groups in index_batches(order, lengths.sum(1).tolist(), max_tokens):
        batch = encoded.packed([group * encoded.group_size + i for group in groups for i in range(encoded.group_size)])
        rows = run(batch)
        by_group = np.split(rows, batch.offsets_host[1:-1]) if per_token else rows
        for group, output in zip(groups, by_group, strict=True):
            outputs[group] = output
        num_done += len(groups)
        if on_progress:
            on_progress(num_done)
    return outputs


def index_batches(order: Iterable[int], num_tokens: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Consecutive indices of `order` in batches of at most `max_tokens` tokens; a longer one is a batch of its own."""
    batch: list[int] = []
    tokens = 0
    for index in order:
        if batch and tokens + num_tokens[index] > max_tokens:
            yield batch
            batch, tokens = [], 0
        batch.append(index)
        tokens += num_tokens[index]
    if batch:
        yield batch
