"""One Transformer block, the one that every model here is a stack of.

Shapes: T tokens, D width, H heads, C = D / H.
Post-norm, as BERT has it: x = norm(x + part(x)).
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hornbook.nn.attention import Direction, attention

ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
}


_ATTENTION, _FFN = ("attention", "attention_norm"), ("expand", "contract", "norm")
SHARED_PARTS = {"none": (), "attention": _ATTENTION, "ffn": _FFN, "all": _ATTENTION + _FFN}


class SelfAttention(nn.Module):
    """Queries, keys and values in one matrix product, attention within each sequence, and the way out."""

    def __init__(self, width: int, num_heads: int, dropout: float, direction: Direction):
        super().__init__()
        self.num_heads = num_heads
        self.dropout = dropout
        self.direction = direction
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(
        self,
        x_TD: Tensor,
        starts: Tensor,
        starts_host: np.ndarray | None,
        longest: int,
        kept: list[Tensor] | None = None,
    ) -> Tensor:
        """`kept` gets the queries, keys and values, T x 3 x H x C."""
        qkv_T3HC = self.qkv(x_TD).unflatten(-1, (3, self.num_heads, -1))
        if kept is not None:
            kept.append(qkv_T3HC)
        q, k, v = qkv_T3HC.unbind(1)
        dropout = self.dropout if self.training else 0.0
        y_THC = attention(q, k, v, starts, starts_host, longest, self.direction, dropout)
        return self.out(y_THC.flatten(1))


class Block(nn.Module):
    """Attention, then a feed-forward network of `inner_width`, each with dropout, a residual and a norm after it."""

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
    ):
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.dropout = dropout
        self.attention = SelfAttention(width, num_heads, attention_dropout, direction)
        self.attention_norm = nn.LayerNorm(width, norm_eps)
        self.expand = nn.Linear(width, inner_width)
        self.contract = nn.Linear(inner_width, width)
        self.norm = nn.LayerNorm(width, norm_eps)

    def forward(
        self,
        x_TD: Tensor,
        starts: Tensor,
        starts_host: np.ndarray | None,
        longest: int,
        kept: list[Tensor] | None = None,
    ) -> Tensor:
        # Under autocast a norm answers in float32; what goes on is of the type that came in, half the memory traffic.
        kind = x_TD.dtype
        attended = self.attention(x_TD, starts, starts_host, longest, kept)
        x_TD = self.attention_norm(x_TD + F.dropout(attended, self.dropout, self.training)).to(kind)
        fed = self.contract(self.activation(self.expand(x_TD)))
        return self.norm(x_TD + F.dropout(fed, self.dropout, self.training)).to(kind)


def stack(num_layers: int, sharing: str = "none", **of_block) -> nn.ModuleList:
    """So many blocks, each with weights of its own, or with those of the first in `all` of it, or only in its
    `attention`, or only in its feed-forward network (`ffn`)."""
    if sharing == "all":
        return nn.ModuleList([Block(**of_block)] * num_layers)
    blocks = nn.ModuleList(Block(**of_block) for _ in range(num_layers))
    for block in blocks[1:]:
        for part in SHARED_PARTS[sharing]:
            setattr(block, part, getattr(blocks[0], part))
    return blocks


def initialise(module: nn.Module, std: float, generator: torch.Generator) -> None:
    """Published start: matrices and tables from a normal cut off at two deviations, biases 0, norms 1."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.trunc_normal_(part.weight, std=std, a=-2 * std, b=2 * std, generator=generator)
        if isinstance(part, nn.Linear) and part.bias is not None:
            nn.init.zeros_(part.bias)
        if isinstance(part, nn.LayerNorm):
            nn.init.ones_(part.weight)
            nn.init.zeros_(part.bias)
        if isinstance(part, nn.Conv1d | nn.LSTM):  # these have no published start: the one that torch gives them
            bound = (part.hidden_size if isinstance(part, nn.LSTM) else part.weight[0].numel()) ** -0.5
            for parameter in part.parameters():
                nn.init.uniform_(parameter, -bound, bound, generator=generator)
