"""Token + position + segment, a norm, dropout: what goes into the first block.

Tables are read by `F.embedding`: the backward of `weight[ids]` is not deterministic on a CPU.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Embeddings(nn.Module):
    """`positions` is `learned` (a table that trains) or `sinusoidal` (Vaswani et al. 2017, a table that does not).
    Without a `norm_eps` there is no norm."""

    def __init__(
        self,
        vocab_size: int,
        width: int,
        max_positions: int,
        num_segments: int,
        positions: str,
        dropout: float,
        norm_eps: float | None,
        position_offset: int = 0,
    ):
        super().__init__()
        self.dropout = dropout
        self.position_offset = position_offset  # rows of the table before that of position 0
        self.tokens = nn.Embedding(vocab_size, width)
        self.positions = nn.Embedding(max_positions + position_offset, width)
        self.segments = nn.Embedding(num_segments, width) if num_segments else None
        self.norm = None if norm_eps is None else nn.LayerNorm(width, norm_eps)
        self.is_sinusoidal = positions == "sinusoidal"
        self.positions.weight.requires_grad_(not self.is_sinusoidal)

    def forward(self, ids_T: Tensor, positions_T: Tensor, segments_T: Tensor) -> Tensor:
        if self.position_offset:
            positions_T = positions_T + self.position_offset
        x_TD = F.embedding(ids_T, self.tokens.weight) + F.embedding(positions_T, self.positions.weight)
        if self.segments is not None:
            x_TD = x_TD + self._of_segments(segments_T)
        if self.norm is not None:
            x_TD = self.norm(x_TD)
        return F.dropout(x_TD, self.dropout, self.training)

    def _of_segments(self, segments_T: Tensor) -> Tensor:
        """One or two rows are not looked up: on the way back, thousands of tokens would wait for each other to add to
        the same row."""
        kinds = self.segments.weight
        if len(kinds) == 1:  # the two segments of a pair are of one kind
            return kinds[0]
        if len(kinds) == 2:
            return torch.where(segments_T[:, None] == 0, kinds[0], kinds[1])
        return F.embedding(segments_T, kinds)

    def fill_sinusoidal(self) -> None:
        """Writes sin and cos of each position at geometrically spaced frequencies into the table."""
        if self.is_sinusoidal:
            with torch.no_grad():
                self.positions.weight.copy_(sinusoids(*self.positions.weight.shape))


def sinusoids(num_positions: int, width: int) -> Tensor:
    """sin(p / 10000^(2i/D)) in even columns, cos in odd ones."""
    frequencies = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10000.0) / width))
    angles = torch.arange(num_positions, dtype=torch.float64)[:, None] * frequencies
    table = torch.zeros(num_positions, width, dtype=torch.float64)
    table[:, 0::2] = angles.sin()
    table[:, 1::2] = angles.cos()[:, : width // 2]
    return table.float()
