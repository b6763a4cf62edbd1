"""Attention over padded sequences, for exported graphs, which have no loop over sequences.

Shapes: T = N x S tokens, N sequences, S padded length, H heads, C head width.
Sequences are padded at the end. `PaddedRows` has the interface of `KeyValueCache` (`nn/cache.py`), so that the blocks
need no change.
"""

import torch
from torch import Tensor

from hornbook.nn.attention import Direction

MASKED = -1e4  # added to masked scores: exp underflows to 0, and a sequence without tokens gives no NaN


class PaddedRows:
    """Padded attention with `mask_NS`, True at real tokens; one instance serves all blocks."""

    attends = True

    def __init__(self, mask_NS: Tensor, direction: Direction):
        self.mask_NS = mask_NS
        self.direction = direction
        self._biases: dict[int | None, Tensor] = {}

    def write(self, kv_T2HC: Tensor) -> None:
        self.keys_THC, self.values_THC = kv_T2HC.unbind(1)

    def attend(self, q_THC: Tensor, window: int | None) -> Tensor:
        """softmax(q k / sqrt(C)) v within each sequence, T x H x C."""
        each = (q_THC, self.keys_THC, self.values_THC)
        q_NHSC, k_NHSC, v_NHSC = (x.unflatten(0, self.mask_NS.shape).transpose(1, 2) for x in each)
        scores_NHSS = (q_NHSC * q_NHSC.shape[-1] ** -0.5) @ k_NHSC.transpose(-2, -1) + self._bias(window)
        return (scores_NHSS.softmax(-1) @ v_NHSC).transpose(1, 2).flatten(0, 1)

    def _bias(self, window: int | None) -> Tensor:
        """The additive attention mask, N x 1 x (S or 1) x S; computed once per window size."""
        if window not in self._biases:
            mask = self.mask_NS[:, None, None]
            if self.direction != "both":
                positions_S = torch.arange(self.mask_NS.shape[1])
                distance_SS = positions_S - positions_S[:, None]
                distance_SS = distance_SS if self.direction == "right" else -distance_SS
                mask_SS = distance_SS >= 0 if window is None else (distance_SS >= 0) & (distance_SS < window)
                mask = mask & mask_SS
            self._biases[window] = torch.where(mask, 0.0, MASKED)
        return self._biases[window]
