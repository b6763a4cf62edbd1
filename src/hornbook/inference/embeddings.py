"""Embeddings: one vector per text, as the model's `sentence-transformers` settings prescribe.

Shapes: B texts, D width.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import nn

from hornbook.batch import pack
from hornbook.devices import device_of, evaluation_mode
from hornbook.interop.sentence_transformers import POOLINGS, EmbeddingSettings
from hornbook.models.pooling import pool_tokens
from hornbook.tasks.running import index_batches
from hornbook.text.tokenizer import Tokenizer

TEXTS_AT_ONCE = 4_096  # tokenized and sorted by length together
SMALLEST_NORM = 1e-12


def l2_normalized(vectors_BD: np.ndarray) -> np.ndarray:
    """The vectors divided by their Euclidean norm; a vector of zeros is unchanged.

    >>> l2_normalized(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    norms_B = np.linalg.norm(vectors_BD, axis=-1, keepdims=True)
    return vectors_BD / np.maximum(norms_B, SMALLEST_NORM)


@torch.inference_mode()
def embed_texts(
    model: nn.Module,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    settings: EmbeddingSettings,
    prompt: str | None,
    batch_tokens: int,
    on_progress: Callable[[int], None] | None = None,
) -> np.ndarray:
    """One vector per text, B x D, float32. A text longer than the limit is truncated; a text without any token, not
    even a special one, gets zeros. `on_progress` is called with the number of texts done."""
    if settings.pooling not in POOLINGS:
        raise ValueError(f"pooling must be {', '.join(POOLINGS[:-1])} or {POOLINGS[-1]}, not '{settings.pooling}'")
    vectors_BD = np.zeros((len(texts), model.config.width), np.float32)
    num_done = 0
    with evaluation_mode(model):
        for first in range(0, len(texts), TEXTS_AT_ONCE):
            ids = encode(texts[first : first + TEXTS_AT_ONCE], tokenizer, settings, prompt, model.config.max_positions)
            lengths = list(map(len, ids))
            num_done += lengths.count(0)
            # Longest first: neighbours of equal length are cheap on a CPU, and memory runs out at once or never.
            order = sorted((i for i, length in enumerate(lengths) if length), key=lambda i: -lengths[i])
            for indices in index_batches(order, lengths, batch_tokens):
                batch = pack([ids[i] for i in indices]).to(device_of(model))
                pooled_BD = pool_tokens(model(batch), batch, settings.pooling)
                vectors_BD[[first + i for i in indices]] = pooled_BD.cpu().numpy()
                num_done += len(indices)
                if on_progress:
                    on_progress(num_done)
    return l2_normalized(vectors_BD) if settings.normalize else vectors_BD


def encode(
    texts: Sequence[str], tokenizer: Tokenizer, settings: EmbeddingSettings, prompt: str | None, max_positions: int
) -> list[list[int]]:
    """The token ids of each text after the prompt, with special tokens, truncated to the maximum length."""
    max_length = min(max_positions, settings.max_length or max_positions)
    before = settings.prompt(prompt)
    if not settings.is_default:
        texts = [text.strip() for text in texts]  # as in `sentence-transformers`
    texts = [before + text for text in texts]
    if settings.lower_case:
        texts = [text.lower() for text in texts]
    encodings = tokenizer.encode_batch(texts)
    for each in encodings:
        each.truncate(max(max_length - tokenizer.num_special(False), 0))
    return [tokenizer.with_special_tokens(each).ids for each in encodings]
