"""Attention over a packed batch: each sequence attends within itself, and no mask tensor exists anywhere.

Shapes: T tokens, N sequences, H heads, C width of a head, S length of one sequence.
On CUDA in half precision one variable-length flash kernel does it all; elsewhere a loop over the sequences with
unmasked attention, which on a CPU is 1.9 to 2.4 x faster than padding and masking.
"""

from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

Direction = Literal["both", "left", "right"]


def attention(
    q_THC: Tensor,
    k_THC: Tensor,
    v_THC: Tensor,
    starts: Tensor,
    starts_host: np.ndarray | None,
    longest: int,
    direction: Direction = "both",
    dropout: float = 0.0,
) -> Tensor:
    """softmax(q k / sqrt(C)) v within each sequence, T x H x C.

    `direction`: attend to `both` sides, or only to the `left` (a token and those before it), or to the `right`.
    `starts_host` may be None on CUDA in half precision, where only the device's copy of the offsets is read.
    """
    if direction == "right":
        flipped = _flipped(starts, starts_host)
        out = attention(q_THC.flip(0), k_THC.flip(0), v_THC.flip(0), *flipped, longest, "left", dropout)
        return out.flip(0)
    causal = direction == "left"
    if q_THC.is_cuda and q_THC.dtype in (torch.bfloat16, torch.float16):
        return _flash(q_THC, k_THC, v_THC, starts, longest, causal, dropout)
    return _each_sequence(q_THC, k_THC, v_THC, starts_host, causal, dropout)


def _flipped(starts: Tensor, starts_host: np.ndarray | None) -> tuple[Tensor, np.ndarray | None]:
    """Offsets of the batch read backwards: the last sequence, reversed, comes first."""
    return (starts[-1] - starts).flip(0), None if starts_host is None else (starts_host[-1] - starts_host)[::-1]


def _flash(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, longest: int, causal: bool, dropout: float) -> Tensor:
    # torch.nn.attention.varlen.varlen_attn has no dropout; the operator beneath it does.
    out, *_ = torch.ops.aten._flash_attention_forward(q, k, v, starts, starts, longest, longest, dropout, causal, False)
    return out


def _each_sequence(q: Tensor, k: Tensor, v: Tensor, starts_host: np.ndarray, causal: bool, dropout: float) -> Tensor:
    lengths = np.diff(starts_host)
    if len(lengths) and (lengths == lengths[0]).all() and lengths[0]:
        q, k, v = (x.unflatten(0, (len(lengths), int(lengths[0]))).transpose(1, 2) for x in (q, k, v))
        return _dense(q, k, v, causal, dropout).transpose(1, 2).flatten(0, 1)
    out = []
    for start, stop in zip(starts_host[:-1].tolist(), starts_host[1:].tolist(), strict=True):
        if start < stop:
            one_q, one_k, one_v = (x[start:stop].transpose(0, 1).unsqueeze(0) for x in (q, k, v))
            out.append(_dense(one_q, one_k, one_v, causal, dropout).squeeze(0).transpose(0, 1))
    return torch.cat(out) if out else torch.empty_like(q)


def _dense(q_NHSC: Tensor, k_NHSC: Tensor, v_NHSC: Tensor, causal: bool, dropout: float) -> Tensor:
    return F.scaled_dot_product_attention(q_NHSC, k_NHSC, v_NHSC, dropout_p=dropout, is_causal=causal)
