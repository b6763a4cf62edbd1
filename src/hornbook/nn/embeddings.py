"""The input of the first block: token + position + segment embeddings, layer norm, dropout.

Lookups use `F.embedding`, because the backward of `weight[ids]` is not deterministic on a CPU.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def embedding(num_rows: int, width: int) -> nn.Embedding:
    """Returns an `nn.Embedding`. On the meta device it has no weights to draw, and torch, asked to draw them, would
    import its compiler: a second of every command that loads a model."""
    is_meta = torch.get_default_device().type == "meta"
    return nn.Embedding(num_rows, width, _weight=torch.empty(num_rows, width) if is_meta else None)


class Embeddings(nn.Module):
    """`positions` is `learned` (trained) or `sinusoidal` (fixed; Vaswani et al. 2017). If `norm_eps` is None there is
    no norm, and if `num_segments` is 0 there are no segment embeddings."""

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
        self.position_offset = position_offset  # row of position 0 in the table
        self.tokens = embedding(vocab_size, width)
        self.positions = embedding(max_positions + position_offset, width)
        self.segments = embedding(num_segments, width) if num_segments else None
        self.norm = None if norm_eps is None else nn.LayerNorm(width, norm_eps)
        self.is_sinusoidal = positions == "sinusoidal"
        self.positions.weight.requires_grad_(not self.is_sinusoidal)

    def forward(self, ids_T: Tensor, positions_T: Tensor, segments_T: Tensor) -> Tensor:
        if self.position_offset:
            positions_T = positions_T + self.position_offset
        x_TD = F.embedding(ids_T, self.tokens.weight) + F.embedding(positions_T, self.positions.weight)
        if self.segments is not None:
            x_TD = x_TD + self._segment_embeddings(segments_T)
        if self.norm is not None:
            x_TD = self.norm(x_TD)
        return F.dropout(x_TD, self.dropout, self.training)

    def _segment_embeddings(self, segments_T: Tensor) -> Tensor:
        """Avoids a lookup if there are one or two rows: in the backward pass thousands of tokens would contend for the
        same row."""
        table = self.segments.weight
        if len(table) == 1:  # both segments of a pair share it
            return table[0]
        if len(table) == 2:
            return torch.where(segments_T[:, None] == 0, table[0], table[1])
        return F.embedding(segments_T, table)

    def repeat_positions(self, num_trained: int) -> None:
        """Sets the learned embeddings of the positions from `num_trained` on to repetitions of those before."""
        if not self.is_sinusoidal:
            with torch.no_grad():
                table = self.positions.weight[self.position_offset :]
                rows = torch.arange(len(table), device=table.device) % num_trained
                table.copy_(table[rows])

    def fill_sinusoidal(self) -> None:
        """Fills the position table with `sinusoids`, if positions are sinusoidal."""
        if self.is_sinusoidal:
            with torch.no_grad():
                self.positions.weight.copy_(sinusoids(*self.positions.weight.shape))


def sinusoids(num_positions: int, width: int) -> Tensor:
    """sin(p / 10000^(2i/D)) in even columns, cos in odd ones (Vaswani et al. 2017)."""
    frequencies = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10000.0) / width))
    angles = torch.arange(num_positions, dtype=torch.float64)[:, None] * frequencies
    table = torch.zeros(num_positions, width, dtype=torch.float64)
    table[:, 0::2] = angles.sin()
    table[:, 1::2] = angles.cos()[:, : width // 2]
    return table.float()
