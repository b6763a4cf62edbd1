"""One Transformer block, the one that every model here is a stack of.

Shapes: T tokens, D width, H heads, C = D / H.
Post-norm, as BERT has it: x = norm(x + part(x)). Pre-norm, as GPT-2 has it: x = x + part(norm(x)).
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from hornbook.nn.activation import activated
from hornbook.nn.attention import Direction, attention
from hornbook.nn.cache import KeyValueCache
from hornbook.nn.qkv import queries_keys_values, split_qkv
from hornbook.nn.residual import dropout_add_norm

_ATTENTION, _FFN = ("attention", "attention_norm"), ("fc1", "fc2", "norm")
SHARED_PARTS = {"none": (), "attention": _ATTENTION, "ffn": _FFN, "all": _ATTENTION + _FFN}


class SelfAttention(nn.Module):
    """Queries, keys and values in one matrix product, attention within each sequence, and the matrix of the way out."""

    def __init__(self, width: int, num_heads: int, dropout: float, direction: Direction, window: int | None = None):
        super().__init__()
        self.num_heads = num_heads
        self.dropout = dropout
        self.direction = direction
        self.window = window
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(
        self,
        x_TD: Tensor,
        starts: Tensor | None,
        starts_host: np.ndarray | None,
        longest: int,
        cached: KeyValueCache | None = None,
        kept: list[Tensor] | None = None,
    ) -> Tensor:
        """`cached` keeps the keys and values; in a step, a token attends to those it has kept. `kept` gets the
        queries, keys and values, T x 3 x H x C. What comes out has not gone through `out`, which ends in the stream."""
        if kept is None and cached is None:
            q, k, v = split_qkv(x_TD, self.qkv, self.num_heads)
        else:
            qkv_T3HC = queries_keys_values(x_TD, self.qkv, self.num_heads)
            q, k, v = qkv_T3HC.unbind(1)
        if kept is not None:
            kept.append(qkv_T3HC)
        if cached is not None:
            cached.write(qkv_T3HC[:, 1:])
            if cached.attends:
                return cached.attend(q, self.window).flatten(1)
        dropout = self.dropout if self.training else 0.0
        y_THC = attention(q, k, v, starts, starts_host, longest, self.direction, dropout, self.window)
        return y_THC.flatten(1)


class Block(nn.Module):
    """Attention, then a feed-forward network of `inner_width`, each with dropout and a residual, and a norm after the
    sum or, `pre_norm`, before the part."""

    def __init__(
        self,
        width: int,
        num_heads: int,
        inner_width: int,
        activation: str,
        dropout: float,
        attention_dropout: float,
        norm_eps: float,
        direction: Direction = "both",
        pre_norm: bool = False,
        window: int | None = None,
    ):
        super().__init__()
        self.pre_norm = pre_norm
        self.activation = activation
        self.dropout = dropout
        self.attention = SelfAttention(width, num_heads, attention_dropout, direction, window)
        self.attention_norm = nn.LayerNorm(width, norm_eps)
        self.fc1 = nn.Linear(width, inner_width)
        self.fc2 = nn.Linear(inner_width, width)
        self.norm = nn.LayerNorm(width, norm_eps)

    def forward(
        self,
        x_TD: Tensor,
        normed_TD: Tensor | None,
        next_norm: nn.LayerNorm | None,
        starts: Tensor | None,
        starts_host: np.ndarray | None,
        longest: int,
        cached: KeyValueCache | None = None,
        kept: list[Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The stream after this block, and what the next one reads of it.

        With pre-norm that is what `next_norm`, which must then be given, makes of it, done here, where it costs no
        passes of its own over memory; `normed_TD` is what the block before has made for this one, None in the first.
        With post-norm both results are one, and neither argument is read.
        """
        dropout = self.dropout if self.training else 0.0
        out = self.attention.out
        if self.pre_norm:
            normed_TD = self.attention_norm(x_TD) if normed_TD is None else normed_TD
            attended_TD = self.attention(normed_TD, starts, starts_host, longest, cached, kept)
            x_TD, normed_TD = dropout_add_norm(x_TD, attended_TD, out, self.norm, dropout)
            fed_TI = activated(normed_TD, self.fc1, self.activation)
            return dropout_add_norm(x_TD, fed_TI, self.fc2, next_norm, dropout)
        # Under autocast a norm answers in float32; what goes on is of the type that came in, half the memory traffic.
        kind = x_TD.dtype
        attended_TD = self.attention(x_TD, starts, starts_host, longest, cached, kept)
        x_TD = dropout_add_norm(x_TD, attended_TD, out, self.attention_norm, dropout)[1].to(kind)
        fed_TI = activated(x_TD, self.fc1, self.activation)
        x_TD = dropout_add_norm(x_TD, fed_TI, self.fc2, self.norm, dropout)[1].to(kind)
        return x_TD, x_TD


def stack(num_layers: int, sharing: str = "none", windows: Sequence[int | None] = (None,), **of_block) -> nn.ModuleList:
    """So many blocks, each with weights of its own, or with those of the first in `all` of it, or only in its
    `attention`, or only in its feed-forward network (`ffn`). They have the `windows` by turns."""
    if sharing == "all":
        return nn.ModuleList([Block(**of_block)] * num_layers)
    blocks = nn.ModuleList(Block(**of_block, window=windows[i % len(windows)]) for i in range(num_layers))
    for block in blocks[1:]:
        for part in SHARED_PARTS[sharing]:
            setattr(block, part, getattr(blocks[0], part))
    return blocks


def initialise(module: nn.Module, std: float, generator: torch.Generator, wider: float = 1.0) -> None:
    """Published start: matrices and tables from a normal cut off at two deviations, biases 0, norms 1. The matrices may
    be drawn so many times `wider`."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            own = std * wider if isinstance(part, nn.Linear) else std
            nn.init.trunc_normal_(part.weight, std=own, a=-2 * own, b=2 * own, generator=generator)
        if isinstance(part, nn.Linear) and part.bias is not None:
            nn.init.zeros_(part.bias)
        if isinstance(part, nn.LayerNorm):
            nn.init.ones_(part.weight)
            nn.init.zeros_(part.bias)
        if isinstance(part, nn.Conv1d | nn.LSTM):  # these have no published start: the one that torch gives them
            bound = (part.hidden_size if isinstance(part, nn.LSTM) else part.weight[0].numel()) ** -0.5
            for parameter in part.parameters():
                nn.init.uniform_(parameter, -bound, bound, generator=generator)
