"""The base class of loaded models: model, tokenizer, folder, device and, for fine-tuned runs, predictions."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from hornbook.interop.folder import save_model
from hornbook.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from hornbook.inference.predictor import Predictor

BATCH_TOKENS = 16_384  # tokens per forward pass, approximately


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

    @cached_property
    def predictor(self) -> "Predictor":
        """The `Predictor` of a fine-tuned model, sharing its weights."""
        from hornbook.inference.predictor import Predictor, finished_run, member_of

        if self.model.output is None:
            raise ValueError(
                f"{self.folder} has no task head, so it cannot predict: fine-tune it with "
                f"hornbook.finetune({str(self.folder)!r}, data, task)"
            )
        return Predictor([member_of(self.folder, self.model, self.tokenizer, finished_run(self.folder))])

    def predict(self, items: Any, progress: Callable[[int], None] | None = None) -> Any:
        """Predictions of a fine-tuned model, one per item; see `Predictor.predict`."""
        return self.predictor.predict(items, progress)

    def evaluate(self, data: Any, **columns: Any) -> dict[str, Any]:
        """Official scores of a fine-tuned model on labelled data; see `Predictor.evaluate`."""
        return self.predictor.evaluate(data, **columns)

    def save(self, folder: str | Path) -> None:
        """Writes model and tokenizer to a folder that `transformers` opens too, with weights in float32."""
        config = self.model.config
        self.tokenizer.save(Path(folder), config.max_positions, getattr(config, "num_segments", 0))
        save_model(Path(folder), self.model)

    def _needs(self, head: str, what: str) -> None:
        if head not in self.model.heads:
            has = ", ".join(self.model.heads) or "none"
            hint = "; use the folder of its generator" if head == "mlm" and "rtd" in self.model.heads else ""
            raise ValueError(f"{self.folder} has no {head} head (it has: {has}), which {what} needs{hint}")
