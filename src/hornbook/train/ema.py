"""A running average of the weights (EMA), which is validated and saved in place of the last weights.

average = d average + (1 - d) weights after every update, where d grows to the `decay` of the settings, as the first
weights are far from the last ones and a run may be short.

A checkpoint has the average as the model, and the weights themselves among the tensors of the optimizer, so a resumed
run has the same bits.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

WEIGHTS = "weights."  # prefix of the names of the weights in a checkpoint
WARMUP_STEPS = 10


class AveragedWeights:
    """The average of the trainable weights of a module, which stay where they are."""

    def __init__(self, module: nn.Module, decay: float):
        self.decay = decay
        self.weights = {name: each for name, each in module.named_parameters() if each.requires_grad}
        self.averages = [each.detach().clone() for each in self.weights.values()]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Adds the weights after update `step`, which counts from 1."""
        decay = min(self.decay, step / (step + WARMUP_STEPS))
        torch._foreach_lerp_(self.averages, [each.detach() for each in self.weights.values()], 1 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Context in which the module has the averages as its weights, at the same addresses."""
        self.swap()
        try:
            yield
        finally:
            self.swap()

    @torch.no_grad()
    def swap(self) -> None:
        """Exchanges the weights of the module and the averages."""
        for weight, average in zip(self.weights.values(), self.averages, strict=True):
            previous = weight.detach().clone()
            weight.copy_(average)
            average.copy_(previous)

    def tensors(self) -> dict[str, Tensor]:
        """The weights themselves, for a checkpoint whose model is the average."""
        return {f"{WEIGHTS}{name}": each.detach().clone().cpu() for name, each in self.weights.items()}

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Called after a checkpoint, whose model is the average, has been loaded into the module: copies the model to
        the average, and restores the trained weights from the checkpoint's `tensors`. A finished run may have kept no
        tensors."""
        for (name, weight), average in zip(self.weights.items(), self.averages, strict=True):
            average.copy_(weight)
            if f"{WEIGHTS}{name}" in tensors:
                weight.copy_(tensors[f"{WEIGHTS}{name}"])
