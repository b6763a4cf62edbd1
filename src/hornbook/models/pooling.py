"""Pooling of token states into one vector per sequence.

Shapes: T tokens, N sequences, D width.
"""

from typing import Literal

import torch
from torch import Tensor

from hornbook.batch import Batch

TokenPooling = Literal["cls", "lasttoken"]  # the first or the last token, as in `sentence-transformers`


def upcast(x: Tensor) -> Tensor:
    """Half precision to float32; float32 and float64 are unchanged."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def token_indices(x_TD: Tensor, batch: Batch, pooling: TokenPooling) -> Tensor:
    """Index of the first or last token of each sequence, N; for an empty padding sequence at the end, the last token
    before it."""
    if pooling == "cls":
        return batch.offsets[:-1].long().clamp(max=x_TD.shape[0] - 1)
    return batch.offsets[:-1].long() + batch.lengths_N - 1


def pool_tokens(x_TD: Tensor, batch: Batch, pooling: str) -> Tensor:
    """One vector per sequence, N x D, float32: `mean`, `max`, `cls` (first token), `lasttoken`, or
    `mean_sqrt_len_tokens` (sum divided by the root of the number of tokens). Special tokens count; padding sequences
    get arbitrary values."""
    if pooling in ("cls", "lasttoken"):
        return upcast(x_TD[token_indices(x_TD, batch, pooling)])
    if pooling == "max":
        return torch.segment_reduce(upcast(x_TD), "max", lengths=batch.lengths_N, initial=None, unsafe=True)
    sums_ND = torch.segment_reduce(upcast(x_TD), "sum", lengths=batch.lengths_N, unsafe=True)
    lengths_N = batch.lengths_N.clamp(min=1)
    return sums_ND / (lengths_N if pooling == "mean" else lengths_N.sqrt())[:, None]
