"""Running a model over features: what it answers for each unit, in their order, and the loss where labels are known."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from hornbook.tasks.objective import TaskObjective
from hornbook.tasks.task import Features

AutoCast = Callable[[], object]


class Found(NamedTuple):
    outputs: list[np.ndarray]  # a unit each; of tokens and spans, a sequence each
    loss: float | None


@torch.no_grad()
def run_model(
    model: nn.Module,
    features: Features,
    autocast: AutoCast,
    micro_tokens: int,
    progress: Callable[[int], None] | None = None,
) -> Found:
    """Short sequences first, in batches of at most `micro_tokens`; the answers come back in the features' order."""
    was_training = model.training
    model.eval()
    device = device_of(model)
    objective = TaskObjective(model.output)
    generator = torch.Generator(device)
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
            found = model.outputs(batch)
        if has_labels:
            step_inputs = objective.prepare(batch, generator)
            losses, _, weights = objective.losses(found, step_inputs)
            loss += float((losses * weights).sum())
            count += float(weights.sum())
        per_unit = found.float().cpu().numpy()
        if model.output.kind == "tokens":
            per_unit = np.split(per_unit, batch.starts_host[1:-1])
        for unit, answer in zip(units, per_unit, strict=True):
            outputs[unit] = answer
        num_done += len(units)
        if progress:
            progress(num_done)
    model.train(was_training)
    return Found(outputs, loss / count if count else None)


def device_of(model: nn.Module) -> torch.device:
    """Where a model computes; one that holds no parameters, such as an exported one, on the CPU."""
    return next((each.device for each in model.parameters()), torch.device("cpu"))


def grouped(order: Iterable[int], num_tokens: Sequence[int], most_tokens: int) -> Iterator[list[int]]:
    """Neighbours in `order` as groups of at most `most_tokens`; what alone has more is a group of its own."""
    group: list[int] = []
    tokens = 0
    for unit in order:
        if group and tokens + num_tokens[unit] > most_tokens:
            yield group
            group, tokens = [], 0
        group.append(unit)
        tokens += num_tokens[unit]
    if group:
        yield group
