"""The base class of loaded models: model, tokenizer, folder, device, embeddings and, for fine-tuned runs,
predictions."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from hornbook.devices import device_of
from hornbook.inference.embeddings import embed_texts, l2_normalized
from hornbook.inference.weight_layout import linear_layers, to_column_major
from hornbook.interop.folder import save_model
from hornbook.interop.sentence_transformers import EmbeddingPooling, EmbeddingSettings, read_embedding_settings
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

    def __repr__(self) -> str:
        num_parameters = sum(each.numel() for each in self.model.parameters())
        return f"{type(self).__name__}({str(self.folder)!r}: {self.model.family}, {num_parameters:,} parameters)"

    @property
    def device(self) -> torch.device:
        return device_of(self.model)

    def to(self, device: str | torch.device, dtype: torch.dtype | None = None) -> "LoadedModel":
        self.model.to(device, dtype)
        return self

    @cached_property
    def embedding(self) -> EmbeddingSettings:
        """How texts are embedded: as the folder's `sentence-transformers` files prescribe, else by mean pooling."""
        return read_embedding_settings(Path(self.folder))

    def embed(
        self,
        texts: Sequence[str] | str,
        pooling: EmbeddingPooling | None = None,
        normalize: bool | None = None,
        prompt: str | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> np.ndarray:
        """Returns one vector per text, float32, texts x width, from the last layer.

        `pooling` (`mean`, `cls`, `max`, `lasttoken`, `mean_sqrt_len_tokens`) and `normalize` (vectors of length 1)
        default to `self.embedding`. `prompt` is put before each text: `query` or `document`, another name of a prompt
        of the model, or its text. A text longer than the limit is truncated; one without any token, not even a special
        one, gets zeros. `on_progress` is called with the number of texts done. On a CPU, the weights of linear layers
        are stored column-major from then on (`to_column_major`).
        """
        texts = [texts] if isinstance(texts, str) else list(texts)
        overrides = {"pooling": pooling, "normalize": normalize}
        settings = replace(self.embedding, **{name: value for name, value in overrides.items() if value is not None})
        to_column_major(linear_layers(self.model))
        return embed_texts(self.model, self.tokenizer, texts, settings, prompt, BATCH_TOKENS, on_progress)

    def similarity(self, a: Sequence[str] | str, b: Sequence[str] | str) -> np.ndarray | float:
        """Returns the similarity of each text in `a` to each text in `b`, a x b: cosine, or the dot product if the
        model's settings prescribe it; a number for two single texts. Vectors may be given in place of texts."""
        normalize = self.embedding.similarity == "cosine"
        similarities = self._vectors(a, normalize) @ self._vectors(b, normalize).T
        return float(similarities[0, 0]) if isinstance(a, str) and isinstance(b, str) else similarities

    def _vectors(self, texts: Sequence[str] | str | np.ndarray, normalize: bool) -> np.ndarray:
        """The vectors of texts; vectors in place of texts are only normalised."""
        if not isinstance(texts, np.ndarray):
            return self.embed(texts, normalize=normalize or None)
        vectors = np.atleast_2d(texts)
        return l2_normalized(vectors) if normalize else vectors

    @cached_property
    def predictor(self) -> "Predictor":
        """The `Predictor` of a fine-tuned model, sharing its weights."""
        from hornbook.inference.predictor import Predictor, build_task_model, read_finished_record, with_linker

        if self.model.head_config is None:
            raise ValueError(
                f"{self.folder} has no task head, so it cannot predict: fine-tune it with "
                f"hornbook.finetune({str(self.folder)!r}, data, task)"
            )
        member = build_task_model(self.folder, self.model, self.tokenizer, read_finished_record(self.folder))
        return Predictor([with_linker(member)])

    def predict(self, items: Any, on_progress: Callable[[int], None] | None = None) -> Any:
        """Predictions of a fine-tuned model, one per item; see `Predictor.predict`."""
        return self.predictor.predict(items, on_progress)

    def evaluate(self, data: Any, **columns: Any) -> dict[str, Any]:
        """The task's standard metrics of a fine-tuned model on labelled data; see `Predictor.evaluate`."""
        return self.predictor.evaluate(data, **columns)

    def save(self, folder: str | Path) -> None:
        """Writes model and tokenizer to a folder that `transformers` opens too, with weights in float32."""
        config = self.model.config
        self.tokenizer.save(Path(folder), config.max_positions, config.num_segments)
        save_model(Path(folder), self.model)

    def _needs(self, head: str, purpose: str) -> None:
        """Raises a `ValueError` if the model does not have the head that `purpose` needs."""
        if head not in self.model.heads:
            has = ", ".join(self.model.heads) or "none"
            hint = "" if self.model.heads else "; use the model that it was fine-tuned from"
            hint = "; use the folder of its generator" if head == "mlm" and "rtd" in self.model.heads else hint
            raise ValueError(f"{self.folder} has no {head} head (it has: {has}), which {purpose} needs{hint}")
