"""What an objective is: the one thing that differs between pre-training, fine-tuning and distilling.

An objective first *draws* its targets for the whole step, without the model. Their counts are added up over
micro-batches; only then does each micro-batch backpropagate the sum over terms of weight x sum / total count. So
splitting a batch, or spreading it over machines, changes nothing but rounding.

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
    """What one loss term wants, at chosen tokens: at `positions_K` the value `values_K`, counted `weights_K` times.

    `starts_host` has N + 1 entries: the targets of sequence i are `starts_host[i]` to `starts_host[i + 1]`. The host
    knows these sizes without asking the device; a target that turned out not to be wanted has weight 0.
    """

    positions_K: Tensor  # int64, into the flat run of tokens
    values_K: Tensor  # a value a target, or a row of them
    weights_K: Tensor  # float32; 0 or 1, or the weight of its class
    starts_host: np.ndarray

    @property
    def count(self) -> Tensor:
        return self.weights_K.sum()

    def part(self, first: int, last: int, token_start: int) -> "Targets":
        start, stop = int(self.starts_host[first]), int(self.starts_host[last])
        return Targets(
            positions_K=self.positions_K[start:stop] - token_start,
            values_K=self.values_K[start:stop],
            weights_K=self.weights_K[start:stop],
            starts_host=self.starts_host[first : last + 1] - start,
        )

    def padded_to(self, num_targets: int, num_sequences: int) -> "Targets":
        """The same targets and then ones of weight 0, up to this number, for a batch of so many sequences."""
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
    """A batch as the model will see it, and the targets of each loss term by its name."""

    batch: Batch
    targets: dict[str, Targets]

    def counts(self) -> dict[str, Tensor]:
        return {term: targets.count for term, targets in self.targets.items()}

    def split(self, micro_tokens: int) -> list["StepInputs"]:
        """Few parts of at most so many tokens, of about equal size; what is longer alone is a part of its own.
        Sequences that are judged together stay together."""
        together = self.batch.group_size
        starts = self.batch.starts_host[::together]
        num_groups = len(starts) - 1
        least = max(1, -(-int(starts[-1]) // micro_tokens))
        for num_parts in range(least, 2 * least + 1):
            cuts = np.searchsorted(starts, np.arange(1, num_parts) * (starts[-1] / num_parts))
            edges = np.unique(np.concatenate([[0], cuts, [num_groups]]))
            if np.diff(starts[edges]).max() <= micro_tokens:
                break
        else:  # lengths too uneven for equal parts: each is filled as far as it goes
            edges = [0]
            while edges[-1] < num_groups:
                end = int(np.searchsorted(starts, starts[edges[-1]] + micro_tokens, side="right")) - 1
                edges.append(max(end, edges[-1] + 1))
        return [self.part(int(a) * together, int(b) * together) for a, b in pairwise(edges)]

    def part(self, first: int, last: int) -> "StepInputs":
        if (first, last) == (0, self.batch.num_sequences):
            return self
        token_start = int(self.batch.starts_host[first])
        return StepInputs(
            self.batch.part(first, last),
            {term: targets.part(first, last, token_start) for term, targets in self.targets.items()},
        )


class Objective(Protocol):
    """Implemented in `objectives/`. `weights` says how much each loss term counts."""

    weights: dict[str, float]

    def prepare(self, batch: Batch, generator: torch.Generator) -> StepInputs:
        """The inputs and targets of one step, a function of the batch and the generator's seed alone."""
        ...

    def sums(self, model: nn.Module, step_inputs: StepInputs) -> dict[str, Tensor]:
        """The loss of each term, summed over its targets (not averaged)."""
        ...

    def evaluate(self, model: nn.Module, step_inputs: StepInputs) -> dict[str, Tensor]:
        """For validation: besides the sums, `<term>_accuracy` (and others, `<term>_...`) summed over targets."""
        ...
