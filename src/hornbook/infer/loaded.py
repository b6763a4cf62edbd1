"""What every opened model has: its tokenizer, its folder, its device."""

from pathlib import Path

import torch
from torch import nn

from hornbook.text.tokenizer import Tokenizer

BATCH_TOKENS = 16_384  # texts go through a model in groups of about so many tokens


class LoadedModel:
    """A model with its tokenizer, ready to use."""

    def __init__(self, model: nn.Module, tokenizer: Tokenizer, folder: Path):
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.folder = folder

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def to(self, device: str | torch.device, dtype: torch.dtype | None = None) -> "LoadedModel":
        self.model.to(device, dtype)
        return self

    def _needs(self, head: str, what: str) -> None:
        if head not in self.model.heads:
            has = ", ".join(self.model.heads) or "none"
            hint = "; give the folder of its generator" if head == "mlm" and "rtd" in self.model.heads else ""
            raise ValueError(f"{self.folder} has no {head} head (it has: {has}), which {what} needs{hint}")


def grouped(order: list[int], lengths: list[int]) -> list[list[int]]:
    """These numbers in groups of about `BATCH_TOKENS`, in the same order."""
    groups, tokens = [[]], 0
    for i in order:
        if groups[-1] and tokens + lengths[i] > BATCH_TOKENS:
            groups.append([])
            tokens = 0
        groups[-1].append(i)
        tokens += lengths[i]
    return [group for group in groups if group]
