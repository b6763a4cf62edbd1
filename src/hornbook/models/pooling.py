"""Pooling of token states into one vector per sequence.

Shapes: T tokens, N sequences, D width.
"""

import torch
from torch import Tensor

from hornbook.batch import Batch


def upcast(x: Tensor) -> Tensor:
    """Half precision to float32; float32 and float64 are unchanged."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def first_token_indices(x_TD: Tensor, batch: Batch) -> Tensor:
    """Index of the first token of each sequence, N; for an empty padding sequence at the end, the last token."""
    return batch.offsets[:-1].long().clamp(max=x_TD.shape[0] - 1)


def last_token_indices(batch: Batch) -> Tensor:
    """Index of the last token of each sequence, N; for an empty padding sequence at the end, the token before it."""
    return batch.offsets[:-1].long() + batch.lengths_N - 1


def pool_tokens(x_TD: Tensor, batch: Batch, pooling: str) -> Tensor:
    """One vector per sequence, N x D, float32: `mean`, `max`, `cls` (first token), `lasttoken`, or
    `mean_sqrt_len_tokens` (sum divided by the root of the number of tokens). Special tokens count; padding sequences
    get arbitrary values."""
    if pooling == "cls":
        return upcast(x_TD[first_token_indices(x_TD, batch)])
    if pooling == "lasttoken":
        return upcast(x_TD[last_token_indices(batch)])
    if pooling == "max":
        return torch.segment_reduce(upcast(x_TD), "max", lengths=batch.lengths_N, initial=None, unsafe=True)
    sums_ND = torch.segment_reduce(upcast(x_TD), "sum", lengths=batch.lengths_N, unsafe=True)
    lengths_N = batch.lengths_N.clamp(min=1)
    return sums_ND / (lengths_N if pooling == "mean" else lengths_N.sqrt())[:, None]
