"""Keys and values of what was read before, so that going on with a text costs one token a step.

Shapes: T tokens, N sequences, H heads, L room for tokens, C width of a head.
The shapes never change: sequences of different lengths lie side by side in the same room, and each token attends to as
much of it as its own sequence has filled. Nothing here reads a number back from the device, so a step can be captured.
"""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass
class Places:
    """Where the tokens that are read now belong, the same for all blocks."""

    rows_T: Tensor  # int64, the sequence of each token
    positions_T: Tensor  # int64, its place there
    is_step: bool  # one token of each sequence, in order, which attends to all that is there
    num_seen: int  # nothing beyond so many places is filled
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


class KeyValues:
    """Those of one block."""

    def __init__(self, shape_NHLC: tuple[int, int, int, int], like: Tensor):
        self.keys_NHLC = like.new_zeros(shape_NHLC)
        self.values_NHLC = like.new_zeros(shape_NHLC)
        self.places: Places | None = None

    @property
    def attends(self) -> bool:
        """Whether tokens attend to what is kept here, and not to each other."""
        return self.places.is_step

    def lay(self, k_THC: Tensor, v_THC: Tensor) -> None:
        rows_T, positions_T = self.places.rows_T, self.places.positions_T
        self.keys_NHLC[rows_T, :, positions_T] = k_THC
        self.values_NHLC[rows_T, :, positions_T] = v_THC

    def attend(self, q_NHC: Tensor, window: int | None) -> Tensor:
        """softmax(q k / sqrt(C)) v of one token a sequence over what its sequence has, N x H x C."""
        seen = slice(0, self.places.num_seen)
        keys_NHLC, values_NHLC = self.keys_NHLC[:, :, seen], self.values_NHLC[:, :, seen]
        is_seen = self.places.seen(window)
        return F.scaled_dot_product_attention(q_NHC[:, :, None], keys_NHLC, values_NHLC, is_seen)[:, :, 0]

    def choose(self, rows_N: Tensor, num_seen: int) -> None:
        """Sequence i becomes a copy of what sequence `rows_N[i]` was."""
        for held in (self.keys_NHLC, self.values_NHLC):
            held[:, :, :num_seen] = held[:, :, :num_seen].index_select(0, rows_N)
