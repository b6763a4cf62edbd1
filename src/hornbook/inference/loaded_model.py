"""The base class of loaded models: model, tokenizer, folder, device, embeddings and, for fine-tuned runs,
predictions.

Shapes: B texts, D width.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from hornbook.batch import length_batches, pack
from hornbook.config import short_repr
from hornbook.devices import device_of, evaluation_mode
from hornbook.files import read_json, write_json
from hornbook.interop.folder import save_model
from hornbook.interop.hub import shown_name
from hornbook.interop.sentence_transformers import (
    EmbeddingPooling,
    EmbeddingSettings,
    read_embedding_settings,
    write_embedding_settings,
)
from hornbook.models.heads import pool_tokens
from hornbook.models.transformer import count_parameters
from hornbook.nn.int8 import Int8Linear
from hornbook.nn.single_token import linear_layers, to_column_major
from hornbook.tasks.encoded import l2_normalized
from hornbook.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from hornbook.inference.predictor import Predictor

BATCH_TOKENS = 16_384  # tokens per forward pass, approximately
TEXTS_AT_ONCE = 4_096  # tokenized and sorted by length together


class LoadedModel:
    """A model with its tokenizer, ready to use."""

    def __init__(self, model: nn.Module, tokenizer: Tokenizer, folder: Path):
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.folder = folder

    def __repr__(self) -> str:
        num_parameters = count_parameters(self.model)
        return f"{type(self).__name__}({self.name!r}: {self.model.model_type}, {num_parameters:,} parameters)"

    @property
    def name(self) -> str:
        """The model in messages: the name of a built-in model, or else its folder."""
        return shown_name(self.folder)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return device_of(self.model)

    def to(self, device: str | torch.device, dtype: torch.dtype | None = None) -> "LoadedModel":
        """Moves the model to a device and, if it is given, converts the weights to a type. Returns the model itself."""
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
        texts = as_texts(texts)
        overrides = {"pooling": pooling, "normalize": normalize}
        settings = replace(self.embedding, **{name: value for name, value in overrides.items() if value is not None})
        to_column_major(linear_layers(self.model))
        return self._embed(texts, settings, prompt, on_progress)

    @torch.inference_mode()
    def _embed(
        self,
        texts: list[str],
        settings: EmbeddingSettings,
        prompt: str | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> np.ndarray:
        vectors_BD = np.zeros((len(texts), self.model.config.width), np.float32)
        num_done = 0
        with evaluation_mode(self.model):
            for first in range(0, len(texts), TEXTS_AT_ONCE):
                ids = self._ids_to_embed(texts[first : first + TEXTS_AT_ONCE], settings, prompt)
                lengths = {i: len(each) for i, each in enumerate(ids) if each}
                num_done += len(ids) - len(lengths)
                # Longest first: memory runs out at once or never.
                for indices in length_batches(lengths, BATCH_TOKENS, longest_first=True):
                    batch = pack([ids[i] for i in indices]).to(self.device)
                    pooled_BD = pool_tokens(self.model(batch), batch, settings.pooling)
                    vectors_BD[[first + i for i in indices]] = pooled_BD.cpu().numpy()
                    num_done += len(indices)
                    if on_progress:
                        on_progress(num_done)
        return l2_normalized(vectors_BD) if settings.normalize else vectors_BD

    def _ids_to_embed(self, texts: list[str], settings: EmbeddingSettings, prompt: str | None) -> list[list[int]]:
        """The token ids of each text after the prompt, with special tokens, truncated to the maximum length."""
        limit, before = self.model.config.max_positions, settings.prompt(prompt)
        num_tokens = min(limit, settings.max_length or limit) - self.tokenizer.num_special(False)
        if not settings.is_default:
            texts = [text.strip() for text in texts]  # as in `sentence-transformers`
        texts = [before + text for text in texts]
        encodings = self.tokenizer.encode_batch([text.lower() for text in texts] if settings.lower_case else texts)
        for each in encodings:
            each.truncate(max(num_tokens, 0))
        return [self.tokenizer.with_special_tokens(each).ids for each in encodings]

    def embed_for_similarity(
        self, texts: Sequence[str] | str, prompt: str | None = None, on_progress: Callable[[int], None] | None = None
    ) -> np.ndarray:
        """The vectors of `embed`, of which a dot product is the similarity that the model's settings prescribe."""
        normalize = self.embedding.similarity == "cosine" or None
        return self.embed(texts, normalize=normalize, prompt=prompt, on_progress=on_progress)

    def similarity(self, a: Sequence[str] | str, b: Sequence[str] | str) -> np.ndarray | float:
        """Returns the similarity of each text in `a` to each text in `b`, a x b: cosine, or the dot product if the
        model's settings prescribe it; a number for two single texts. Vectors may be given in place of texts."""
        similarities = self._vectors(a) @ self._vectors(b).T
        return float(similarities[0, 0]) if isinstance(a, str) and isinstance(b, str) else similarities

    def _vectors(self, texts: Sequence[str] | str | np.ndarray) -> np.ndarray:
        """The vectors of texts; vectors in place of texts are only normalised."""
        if not isinstance(texts, np.ndarray):
            return self.embed_for_similarity(texts)
        vectors = np.atleast_2d(texts)
        return l2_normalized(vectors) if self.embedding.similarity == "cosine" else vectors

    @cached_property
    def predictor(self) -> "Predictor":
        """The `Predictor` of a fine-tuned model, sharing its weights."""
        from hornbook.inference.predictor import Predictor
        from hornbook.inference.task_model import build_task_model, read_finished_record

        if self.model.head_config is None:
            raise ValueError(
                f"{self.name} has no task head, so it cannot predict: fine-tune it with "
                f"hornbook.finetune({self.name!r}, data, task)"
            )
        run = read_finished_record(self.folder)
        return Predictor([build_task_model(self.folder, self.model, self.tokenizer, run)])

    def predict(self, items: Any, on_progress: Callable[[int], None] | None = None) -> Any:
        """Predictions of a fine-tuned model, one per item; see `Predictor.predict`."""
        return self.predictor.predict(items, on_progress)

    def evaluate(self, data: Any, **columns: Any) -> dict[str, Any]:
        """The task's standard metrics of a fine-tuned model on labelled data; see `Predictor.evaluate`."""
        return self.predictor.evaluate(data, **columns)

    def save(self, folder: str | Path) -> None:
        """Writes the model, its tokenizer and the settings of its embeddings or its task to a folder that
        `transformers` opens too, with weights in float32."""
        from hornbook.tasks.spec import TASK_FILE

        if any(isinstance(part, Int8Linear) for part in self.model.modules()):
            raise ValueError(f"{self.name} was opened with int8 weights, which are rounded: open it with float weights")
        folder, config, embedding = Path(folder), self.model.config, self.embedding
        self.tokenizer.save(folder, config.max_positions, config.num_segments)
        if not embedding.is_default:
            write_embedding_settings(folder, embedding, config.width)
        if (task_file := Path(self.folder) / TASK_FILE).is_file():
            write_json(folder / TASK_FILE, read_json(task_file))
        save_model(folder, self.model)

    def _require_head(self, head: str, purpose: str) -> None:
        """Raises a `ValueError` if the model does not have the head that `purpose` needs."""
        if head not in self.model.heads:
            has = ", ".join(self.model.heads) or "none"
            hint = "" if self.model.heads else "; use the model that it was fine-tuned from"
            hint = "; use the folder of its generator" if head == "mlm" and "rtd" in self.model.heads else hint
            raise ValueError(f"{self.name} has no {head} head (it has: {has}), which {purpose} needs{hint}")


def as_texts(texts: Sequence[str] | str, name: str = "texts") -> list[str]:
    """A text or several as a list. Raises a `ValueError` that names the argument for anything else.

    >>> as_texts("a text")
    ['a text']
    """
    several = [texts] if isinstance(texts, str) else texts
    if isinstance(several, bytes | Mapping) or not isinstance(several, Iterable):
        raise ValueError(f"{name} must be a text or a list of texts, not {short_repr(texts)}")
    several = list(several)
    for i, text in enumerate(several):
        if not isinstance(text, str):
            raise ValueError(f"{name} must be a text or a list of texts, but item {i} is {short_repr(text)}")
    return several


def which_text(index: int, texts: Sequence) -> str:
    """A text in an error.

    >>> which_text(1, ["one", "two"]), which_text(0, ["one"])
    ('text 2 of 2', 'the text')
    """
    return f"text {index + 1} of {len(texts)}" if len(texts) > 1 else "the text"
