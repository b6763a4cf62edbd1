"""The objective interface: the one thing that differs between pre-training, fine-tuning and distillation.

An objective first *prepares* the inputs and targets of the whole step, without the model. Target counts are totalled
over the micro-batches; each micro-batch then backpropagates the sum over terms of weight x sum / total count. Splitting
a batch, or spreading it over machines, therefore changes nothing but rounding.

Shapes: T tokens, N sequences, K targets, D width.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from hornbook.batch import Batch


@dataclass(frozen=True)
class Targets:
    """The K targets of one loss term: at token `positions_K` the target `values_K`, with loss weight `weights_K`.

    The targets of sequence i are `starts_host[i]` to `starts_host[i + 1]`. The host knows these sizes without
    synchronising with the device; a target that turns out to be unneeded gets weight 0.
    """

    positions_K: Tensor  # int64, indices into the packed tokens
    values_K: Tensor  # one value per target, or one row of values
    weights_K: Tensor  # float32; 0 or 1, or a class weight
    starts_host: np.ndarray  # int64, N + 1

    @property
    def count(self) -> Tensor:
        return self.weights_K.sum()

    def slice(self, first: int, last: int, token_start: int) -> "Targets":
        """The targets of sequences `first` to `last` (exclusive), for a batch whose first token is `token_start`."""
        start, stop = int(self.starts_host[first]), int(self.starts_host[last])
        return Targets(
            positions_K=self.positions_K[start:stop] - token_start,
            values_K=self.values_K[start:stop],
            weights_K=self.weights_K[start:stop],
            starts_host=self.starts_host[first : last + 1] - start,
        )

    def padded_to(self, num_targets: int, num_sequences: int) -> "Targets":
        """The targets followed by targets of weight 0, to exactly `num_targets`, for a batch of `num_sequences`."""
        missing = num_targets - len(self.positions_K)
        if missing < 0:
            raise ValueError(f"{len(self.positions_K)} targets do not fit a bucket of {num_targets}")
        ends = np.full(num_sequences + 1 - len(self.starts_host), num_targets, self.starts_host.dtype)
        return Targets(
            positions_K=torch.cat([self.positions_K, self.positions_K.new_zeros(missing)]),
            values_K=torch.cat([self.values_K, self.values_K.new_zeros((missing, *self.values_K.shape[1:]))]),
            weights_K=torch.cat([self.weights_K, self.weights_K.new_zeros(missing)]),
            starts_host=np.concatenate([self.starts_host, ends]),
        )


@dataclass(frozen=True)
class StepInputs:
    """A batch as the model will read it, and the targets of each loss term by name."""

    batch: Batch
    targets: dict[str, Targets]

    def counts(self) -> dict[str, Tensor]:
        return {term: targets.count for term, targets in self.targets.items()}

    def split(self, micro_tokens: int) -> list["StepInputs"]:
        """Micro-batches of at most `micro_tokens` tokens, as few and as equal in size as possible. A group of sequences
        (`group_size`) is never split, so a group longer than `micro_tokens` becomes a micro-batch by itself."""
        group_size = self.batch.group_size
        starts = self.batch.starts_host[::group_size]
        num_groups = len(starts) - 1
        min_parts = max(1, -(-int(starts[-1]) // micro_tokens))
        for num_parts in range(min_parts, 2 * min_parts + 1):
            cuts = np.searchsorted(starts, np.arange(1, num_parts) * (starts[-1] / num_parts))
            edges = np.unique(np.concatenate([[0], cuts, [num_groups]]))
            if np.diff(starts[edges]).max() <= micro_tokens:
                break
        else:  # lengths too uneven for equal micro-batches: fill them greedily
            edges = [0]
            while edges[-1] < num_groups:
                end = int(np.searchsorted(starts, starts[edges[-1]] + micro_tokens, side="right")) - 1
                edges.append(max(end, edges[-1] + 1))
        return [self.slice(int(a) * group_size, int(b) * group_size) for a, b in pairwise(edges)]

    def slice(self, first: int, last: int) -> "StepInputs":
        """The inputs and targets of sequences `first` to `last` (exclusive)."""
        if (first, last) == (0, self.batch.num_sequences):
            return self
        token_start = int(self.batch.starts_host[first])
        return StepInputs(
            self.batch.slice(first, last),
            {term: targets.slice(first, last, token_start) for term, targets in self.targets.items()},
        )


class Objective(Protocol):
    """Implemented in `objectives/`. `weights` holds the weight of each loss term by name."""

    weights: dict[str, float]

    def prepare(self, batch: Batch, generator: torch.Generator) -> StepInputs:
        """The inputs and targets of one step, a pure function of the batch and the generator's seed."""
        ...

    def sums(self, model: nn.Module, step_inputs: StepInputs) -> dict[str, Tensor]:
        """The loss of each term, summed over its targets (not averaged)."""
        ...

    def evaluate(self, model: nn.Module, step_inputs: StepInputs) -> dict[str, Tensor]:
        """For validation: the loss sums, and metrics such as `<term>_accuracy` (any `<term>_*`) summed over targets."""
        ...
