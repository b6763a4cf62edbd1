"""Runs a model over features: its outputs per unit, in order, and the loss if labels are known."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from hornbook.tasks.features import Features, Outputs
from hornbook.tasks.objective import TaskObjective

AutoCast = Callable[[], object]


class RunResult(NamedTuple):
    outputs: Outputs
    loss: float | None


@torch.no_grad()
def run_model(
    model: nn.Module,
    features: Features,
    autocast: AutoCast,
    micro_tokens: int,
    progress: Callable[[int], None] | None = None,
) -> RunResult:
    """Runs batches of at most `micro_tokens` tokens, short sequences first; the outputs are in the order of the
    features. `progress` receives the number of units done."""
    was_training = model.training
    model.eval()
    device = device_of(model)
    objective = TaskObjective(model.output)
    has_labels = features.labels is not None or features.token_labels is not None
    outputs: list[np.ndarray | None] = [None] * features.num_units
    loss = count = 0.0
    num_done = 0
    lengths = np.array([len(each) for each in features.ids]).reshape(-1, features.group_size)
    order = np.argsort(lengths.max(1, initial=0), kind="stable").tolist()
    for units in grouped(order, lengths.sum(1).tolist(), micro_tokens):
        batch = features.packed([unit * features.group_size + i for unit in units for i in range(features.group_size)])
        batch = batch.to(device)
        with autocast():
            batch_outputs = model.outputs(batch)
        if has_labels:
            step_inputs = objective.prepare(batch, seed=0)
            losses, _, weights = objective.losses(batch_outputs, step_inputs)
            loss += float((losses * weights).sum())
            count += float(weights.sum())
        per_unit = batch_outputs.float().cpu().numpy()
        if model.output.type.per_token:
            per_unit = np.split(per_unit, batch.starts_host[1:-1])
        for unit, output in zip(units, per_unit, strict=True):
            outputs[unit] = output
        num_done += len(units)
        if progress:
            progress(num_done)
    model.train(was_training)
    return RunResult(outputs, loss / count if count else None)


def device_of(model: nn.Module) -> torch.device:
    """The device of the model's parameters; the CPU for a model without parameters, such as an exported one."""
    return next((each.device for each in model.parameters()), torch.device("cpu"))


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
