"""Key-value cache: each decoding step computes one token per sequence and attends to the cached keys and values.

Shapes: T tokens, N sequences, H heads, L cache slots per sequence, C head width.
The shapes never change: every sequence has L slots, and its tokens attend to those that it has filled. Nothing here
reads a number back from the device, so a step can be captured as a CUDA graph. If the host knows that all sequences are
equally long (a single one always is), no mask and no scatter is needed. The cache may have a smaller dtype than the
model; attention is then computed in it.
"""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass
class CachePositions:
    """The cache slots of the tokens of a forward pass, shared by all blocks."""

    rows_T: Tensor  # int64, the sequence of each token
    positions_T: Tensor  # int64, its slot, which is its position in the sequence
    is_step: bool  # a decoding step: one token per sequence, in order, which attends to the cache
    num_seen: int  # slots from here on are empty in every sequence
    common: int | None = None  # in a step: the slot of every token, if it is the same for all sequences
    _masks: dict[int | None, Tensor] = field(default_factory=dict)

    def mask(self, window: int | None) -> Tensor:
        """The slots that each token of a step attends to, N x 1 x 1 x L; computed once per window size."""
        if window not in self._masks:
            slots_L = torch.arange(self.num_seen, device=self.positions_T.device)
            mask_NL = slots_L <= self.positions_T[:, None]
            if window is not None:
                mask_NL &= slots_L > self.positions_T[:, None] - window
            self._masks[window] = mask_NL[:, None, None]
        return self._masks[window]


def cache_dtype(like: Tensor) -> torch.dtype:
    """The dtype of a cache that may be rounded: bfloat16 on CPUs that multiply it natively, else the dtype of `like`. A
    batched step is limited by reading the cache, which bfloat16 halves. (float16 took as long as float32.)"""
    is_faster = like.device.type == "cpu" and like.dtype == torch.float32 and torch.cpu._is_avx512_bf16_supported()
    return torch.bfloat16 if is_faster else like.dtype


class KeyValueCache:
    """The keys and values of one block. Set `positions` before each forward pass."""

    def __init__(self, shape_NHLC: tuple[int, int, int, int], like: Tensor, dtype: torch.dtype | None = None):
        self.kv_2NHLC = like.new_zeros((2, *shape_NHLC), dtype=dtype)  # keys, then values
        self.positions: CachePositions | None = None

    @property
    def attends(self) -> bool:
        """Whether tokens attend to the cache (in a decoding step) rather than to each other."""
        return self.positions.is_step

    def write(self, kv_T2HC: Tensor) -> None:
        positions = self.positions
        if positions.common is not None:
            self.kv_2NHLC[:, : len(kv_T2HC), :, positions.common] = kv_T2HC.transpose(0, 1)
        else:
            self.kv_2NHLC[:, positions.rows_T, :, positions.positions_T] = kv_T2HC.to(self.kv_2NHLC.dtype)

    def attend(self, q_NHC: Tensor, window: int | None) -> Tensor:
        """softmax(q k / sqrt(C)) v of one token per sequence over the filled slots of its sequence, N x H x C. The
        tokens may be those of the first sequences only."""
        positions = self.positions
        first, mask = 0, None
        if positions.common is None:
            mask = positions.mask(window)
        elif window is not None:
            first = max(positions.common + 1 - window, 0)
        kv_2NHLC = self.kv_2NHLC[:, : len(q_NHC)]
        keys_NHLC, values_NHLC = kv_2NHLC.narrow(3, first, positions.num_seen - first).unbind()
        q_NH1C = q_NHC.unsqueeze(2).to(keys_NHLC.dtype)
        return F.scaled_dot_product_attention(q_NH1C, keys_NHLC, values_NHLC, mask).squeeze(2).to(q_NHC.dtype)

    def move(self, source: int, target: int, num_seen: int) -> None:
        self.kv_2NHLC[:, target, :, :num_seen] = self.kv_2NHLC[:, source, :, :num_seen]

    def reorder(self, rows_N: Tensor, num_seen: int) -> None:
        """Replaces sequence i by a copy of sequence `rows_N[i]`, in the first `num_seen` slots."""
        self.kv_2NHLC[:, :, :, :num_seen] = self.kv_2NHLC[:, :, :, :num_seen].index_select(1, rows_N)
