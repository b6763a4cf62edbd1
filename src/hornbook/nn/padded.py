"""Attention over padded rows, for a graph that is run elsewhere and has no loop over sequences.

Shapes: T = N x S tokens, N rows, S length of every row, H heads, C width of a head.
A row that is shorter is padded at its end. `PaddedRows` stands where kept keys and values do (`nn/cache.py`), so the
blocks are the same ones.
"""

import torch
from torch import Tensor

from hornbook.nn.attention import Direction

UNSEEN = -1e4  # added to a score: its exp underflows to 0, and a row without any token still has no NaN


class PaddedRows:
    """What the blocks attend to, one for all of them."""

    attends = True

    def __init__(self, is_there_NS: Tensor, direction: Direction):
        self.is_there_NS = is_there_NS
        self.direction = direction
        self._added: dict[int | None, Tensor] = {}

    def write(self, kv_T2HC: Tensor) -> None:
        self.keys_THC, self.values_THC = kv_T2HC.unbind(1)

    def attend(self, q_THC: Tensor, window: int | None) -> Tensor:
        """softmax(q k / sqrt(C)) v within each row, T x H x C."""
        each = (q_THC, self.keys_THC, self.values_THC)
        q_NHSC, k_NHSC, v_NHSC = (x.unflatten(0, self.is_there_NS.shape).transpose(1, 2) for x in each)
        scores_NHSS = (q_NHSC * q_NHSC.shape[-1] ** -0.5) @ k_NHSC.transpose(-2, -1) + self._unseen(window)
        return (scores_NHSS.softmax(-1) @ v_NHSC).transpose(1, 2).flatten(0, 1)

    def _unseen(self, window: int | None) -> Tensor:
        """What is added to the scores, N x 1 x (S or 1) x S; made once for the blocks that have the same window."""
        if window not in self._added:
            is_seen = self.is_there_NS[:, None, None]
            if self.direction != "both":
                places_S = torch.arange(self.is_there_NS.shape[1])
                ahead_SS = places_S - places_S[:, None]
                ahead_SS = ahead_SS if self.direction == "right" else -ahead_SS
                is_near_SS = ahead_SS >= 0 if window is None else (ahead_SS >= 0) & (ahead_SS < window)
                is_seen = is_seen & is_near_SS
            self._added[window] = torch.where(is_seen, 0.0, UNSEEN)
        return self._added[window]
