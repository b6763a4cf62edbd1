"""Keys and values of what was read before, so that going on with a text costs one token a step.

Shapes: T tokens, N sequences, H heads, L room for tokens, C width of a head.
The shapes never change: sequences of different lengths lie side by side in the same room, and each token attends to as
much of it as its own sequence has filled. Nothing here reads a number back from the device, so a step can be captured.
Where the host knows that all sequences are equally long, as a single one is, no mask is made and nothing is scattered.
They may be kept in a shorter type than the model's; attention is then computed in it.
"""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass
class CachePositions:
    """Where the tokens that are read now belong, the same for all blocks."""

    rows_T: Tensor  # int64, the sequence of each token
    positions_T: Tensor  # int64, its place there
    is_step: bool  # one token of each sequence, in order, which attends to all that is there
    num_seen: int  # nothing beyond so many places is filled
    common: int | None = None  # in a step: the place of every token, where it is the same
    _seen: dict[int | None, Tensor] = field(default_factory=dict)

    def seen(self, window: int | None) -> Tensor:
        """Where each token of a step may look, N x 1 x 1 x L; made once for the blocks that have the same window."""
        if window not in self._seen:
            places_L = torch.arange(self.num_seen, device=self.positions_T.device)
            is_seen_NL = places_L <= self.positions_T[:, None]
            if window is not None:
                is_seen_NL &= places_L > self.positions_T[:, None] - window
            self._seen[window] = is_seen_NL[:, None, None]
        return self._seen[window]


def shortest_kind(like: Tensor) -> torch.dtype:
    """What keys and values are kept in where they may be rounded. A step over a batch waits for them, and bfloat16 is
    half of them; only processors that multiply it are faster for it. (float16 took as long as float32.)"""
    is_faster = like.device.type == "cpu" and like.dtype == torch.float32 and torch.cpu._is_avx512_bf16_supported()
    return torch.bfloat16 if is_faster else like.dtype


class KeyValueCache:
    """Those of one block."""

    def __init__(self, shape_NHLC: tuple[int, int, int, int], like: Tensor, kind: torch.dtype | None = None):
        self.held_2NHLC = like.new_zeros((2, *shape_NHLC), dtype=kind)  # keys, then values
        self.places: CachePositions | None = None

    @property
    def attends(self) -> bool:
        """Whether tokens attend to what is kept here, and not to each other."""
        return self.places.is_step

    def write(self, kv_T2HC: Tensor) -> None:
        places = self.places
        if places.common is not None:
            self.held_2NHLC[:, :, :, places.common] = kv_T2HC.transpose(0, 1)
        else:
            self.held_2NHLC[:, places.rows_T, :, places.positions_T] = kv_T2HC.to(self.held_2NHLC.dtype)

    def attend(self, q_NHC: Tensor, window: int | None) -> Tensor:
        """softmax(q k / sqrt(C)) v of one token a sequence over what its sequence has, N x H x C."""
        places = self.places
        first, is_seen = 0, None
        if places.common is None:
            is_seen = places.seen(window)
        elif window is not None:
            first = max(places.common + 1 - window, 0)
        keys_NHLC, values_NHLC = self.held_2NHLC.narrow(3, first, places.num_seen - first).unbind()
        q_NH1C = q_NHC.unsqueeze(2).to(keys_NHLC.dtype)
        return F.scaled_dot_product_attention(q_NH1C, keys_NHLC, values_NHLC, is_seen).squeeze(2).to(q_NHC.dtype)

    def choose(self, rows_N: Tensor, num_seen: int) -> None:
        """Sequence i becomes a copy of what sequence `rows_N[i]` was."""
        self.held_2NHLC[:, :, :, :num_seen] = self.held_2NHLC[:, :, :, :num_seen].index_select(1, rows_N)
