"""The objective interface: the one thing that differs between pre-training, fine-tuning and distillation.

An objective first *prepares* the inputs and targets of the whole step, without the model. The weights of the targets
are summed over the micro-batches; each micro-batch then backpropagates the sum over terms of weight x loss sum / total
weight of the targets. Splitting a batch, or spreading it over machines, therefore changes nothing but rounding.

Shapes: T tokens, N sequences, K targets, D width.
"""

import dataclasses
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from hornbook.batch import TOKENS, Batch, Stream, stream_field, to_offsets


@dataclass(frozen=True)
class Targets(Stream):
    """The K targets of one loss term: at token `indices_K` the target `values_K`, with loss weight `weights_K`.

    The host knows the number of targets of each sequence without synchronising with the device; a target that turns
    out to be unneeded gets weight 0.
    """

    indices_K: Tensor = stream_field(index_into=TOKENS)  # int64, indices into the packed tokens
    values_K: Tensor  # one value per target, or one row of values
    weights_K: Tensor = stream_field(padding=0)  # float32; 0 or 1, or a class weight


def group_targets(batch: Batch, values: Tensor, weights: Tensor | None = None) -> Targets:
    """One target per group of sequences, at the first token of the group; the weights default to 1. Padding sequences
    have no targets."""
    group_size, num_real = batch.group_size, batch.num_real_sequences // batch.group_size
    offsets_host = np.minimum((np.arange(batch.num_sequences + 1) + group_size - 1) // group_size, num_real)
    indices = batch.offsets[:-1].long()[::group_size][:num_real]
    weights = torch.ones(num_real, device=values.device) if weights is None else weights
    return Targets(indices, values, weights, offsets_host=offsets_host)


def first_token_targets(batch: Batch) -> Targets:
    """One target of value 0 per real sequence, at its first token."""
    values = torch.zeros(batch.num_real_sequences, dtype=torch.int64, device=batch.ids_T.device)
    return group_targets(dataclasses.replace(batch, group_size=1), values)


def all_token_targets(batch: Batch) -> Targets:
    """One target of value 0 per real token."""
    index_T = torch.arange(batch.num_real_tokens, device=batch.ids_T.device)
    offsets_host = batch.offsets_host.clip(max=batch.num_real_tokens)
    weights_T = torch.ones_like(index_T, dtype=torch.float32)
    return Targets(index_T, torch.zeros_like(index_T), weights_T, offsets_host=offsets_host)


def next_token_targets(batch: Batch) -> Targets:
    """The next token of each token, from the batch's `labels_T` if it has them (-1 gets weight 0), else from the
    sequence itself."""
    if batch.labels_T is None:
        return next_tokens(batch)
    values_K = batch.labels_T[: batch.num_real_tokens]
    offsets_host = np.minimum(batch.offsets_host, batch.num_real_tokens)
    indices_K = torch.arange(len(values_K), device=values_K.device)
    return Targets(indices_K, values_K.clamp(min=0), (values_K >= 0).float(), offsets_host=offsets_host)


def next_tokens(batch: Batch, each_sequence_once: bool = False) -> Targets:
    """The next token of every token but the last of each sequence. Each target has weight 1 or, if
    `each_sequence_once`, the targets of each sequence have total weight 1."""
    device, num_real = batch.ids_T.device, batch.num_real_sequences
    num_targets = np.maximum(np.diff(batch.offsets_host) - 1, 0)
    num_targets[num_real:] = 0
    offsets_host = to_offsets(num_targets)
    starts_N = batch.offsets[:num_real].long()
    num_targets_N = (batch.offsets[1 : num_real + 1] - starts_N - 1).clamp(min=0)
    sequence_K = torch.repeat_interleave(
        torch.arange(num_real, device=device), num_targets_N, output_size=int(offsets_host[-1])
    )
    # Target k is as far into its sequence as k is past the first target of that sequence.
    offsets_N = starts_N - (num_targets_N.cumsum(0) - num_targets_N)
    indices_K = torch.arange(len(sequence_K), device=device) + offsets_N[sequence_K]
    values_K = batch.ids_T[indices_K + 1]
    weights_K = 1 / num_targets_N[sequence_K] if each_sequence_once else torch.ones(len(values_K), device=device)
    return Targets(indices_K, values_K, weights_K, offsets_host=offsets_host)


@dataclass(frozen=True)
class StepInputs:
    """A batch as the model will read it. The targets of each loss term are streams of the batch, named after the term.
    `shared` holds values of the whole step, which are not split into micro-batches."""

    batch: Batch
    shared: dict[str, Tensor] = field(default_factory=dict)

    @property
    def targets(self) -> dict[str, Targets]:
        """The targets of each loss term, by its name."""
        return {name: stream for name, stream in self.batch.streams.items() if isinstance(stream, Targets)}

    def total_weights(self) -> dict[str, Tensor]:
        """The sum of the targets' weights for each loss term: what its loss is divided by."""
        return {term: targets.weights_K.sum() for term, targets in self.targets.items()}

    def split(self, micro_tokens: int) -> list["StepInputs"]:
        """Micro-batches of at most `micro_tokens` tokens, as few and as equal in size as possible. A group of sequences
        (`group_size`) is never split, so a group longer than `micro_tokens` becomes a micro-batch by itself."""
        group_size = self.batch.group_size
        offsets = self.batch.offsets_host[::group_size]
        num_groups = len(offsets) - 1
        min_parts = max(1, -(-int(offsets[-1]) // micro_tokens))
        for num_parts in range(min_parts, 2 * min_parts + 1):
            cuts = np.searchsorted(offsets, np.arange(1, num_parts) * (offsets[-1] / num_parts))
            edges = np.unique(np.concatenate([[0], cuts, [num_groups]]))
            if np.diff(offsets[edges]).max() <= micro_tokens:
                break
        else:  # lengths too uneven for equal micro-batches: fill them greedily
            edges = [0]
            while edges[-1] < num_groups:
                end = int(np.searchsorted(offsets, offsets[edges[-1]] + micro_tokens, side="right")) - 1
                edges.append(max(end, edges[-1] + 1))
        return [self.slice(int(a) * group_size, int(b) * group_size) for a, b in pairwise(edges)]

    def slice(self, first: int, last: int) -> "StepInputs":
        if (first, last) == (0, self.batch.num_sequences):
            return self
        return dataclasses.replace(self, batch=self.batch.slice(first, last))


class Objective(Protocol):
    """Implemented in `objectives/` and, for tasks, in `tasks/objective.py`. `weights` holds the weight of each loss
    term by name.

    An objective whose loss compares the sequences of the whole batch has `shares_vectors` and a method
    `vectors(model, step_inputs)`: if a batch is split, the vectors of all its micro-batches are computed first, without
    gradients, and given to each of them as `shared["vectors"]`.

    `is_capturable` (default False): the step may run as a CUDA graph; `loss_sums` then reads only tensors.
    """

    weights: dict[str, float]

    def prepare(self, batch: Batch, seed: int) -> StepInputs:
        """The inputs and targets of one step, a pure function of the batch and the seed. The random numbers of a
        sequence depend on its `step_index_host`, not on the rest of the batch."""
        ...

    def loss_sums(self, model: nn.Module, step_inputs: StepInputs, with_metrics: bool = False) -> dict[str, Tensor]:
        """The loss of each term, summed over its targets (not averaged). For validation also metrics, such as
        `<term>_accuracy` (any `<term>_*`), likewise summed."""
        ...


class TrainingModule(nn.Module):
    """A model with its objective: the inputs of a micro-batch in, the sum of each loss term out.

    Everything that training computes with the weights happens in `forward`, so that `torch.compile`,
    `DistributedDataParallel` and FSDP can wrap it like any other module. Weights are saved by their names in `model`.
    """

    def __init__(self, model: nn.Module, objective: Objective):
        super().__init__()
        self.model = model
        self.objective = objective
        self.training = model.training

    def forward(
        self, step_inputs: StepInputs, with_metrics: bool = False, only_vectors: bool = False
    ) -> dict[str, Tensor]:
        """`Objective.loss_sums`. With `only_vectors`, the vectors that an objective shares between micro-batches."""
        if only_vectors:
            return {"vectors": self.objective.vectors(self.model, step_inputs)}
        return self.objective.loss_sums(self.model, step_inputs, with_metrics)
