"""Pooling of token states into one vector per sequence.

Shapes: T tokens, N sequences, D width.
"""

import torch
from torch import Tensor

from hornbook.batch import Batch
from hornbook.models.heads import first_tokens, last_tokens, upcast


def pool_tokens(x_TD: Tensor, batch: Batch, pooling: str) -> Tensor:
    """One vector per sequence, N x D, float32: `mean`, `max`, `cls` (first token), `lasttoken`, or
    `mean_sqrt_len_tokens` (sum divided by the root of the number of tokens). Special tokens count; padding sequences
    get arbitrary values."""
    if pooling == "cls":
        return upcast(x_TD[first_tokens(x_TD, batch)])
    if pooling == "lasttoken":
        return upcast(x_TD[last_tokens(batch)])
    if pooling == "max":
        return torch.segment_reduce(upcast(x_TD), "max", lengths=batch.lengths_N, initial=None, unsafe=True)
    sums_ND = torch.segment_reduce(upcast(x_TD), "sum", lengths=batch.lengths_N, unsafe=True)
    lengths_N = batch.lengths_N.clamp(min=1)
    return sums_ND / (lengths_N if pooling == "mean" else lengths_N.sqrt())[:, None]
