"""The Transformer block that every model is a stack of.

Shapes: T tokens, D width, I inner width, H heads, C = D / H head width.
Post-norm, as in BERT: x = norm(x + sublayer(x)). Pre-norm, as in GPT-2: x = x + sublayer(norm(x)).
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from hornbook.nn.attention import Direction, PackedLayout, attention
from hornbook.nn.fused_ops import dropout_add_norm, linear_activation, project_qkv, project_qkv_stacked
from hornbook.nn.kv_cache import KeyValueCache

_ATTENTION, _FFN = ("attention", "attention_norm"), ("fc1", "fc2", "norm")
SHARED_PARTS = {"none": (), "attention": _ATTENTION, "ffn": _FFN, "all": _ATTENTION + _FFN}


class SelfAttention(nn.Module):
    """Self-attention within each sequence, with queries, keys and values from one matrix product.

    `forward` stops before the output projection `out`, which `Block` fuses with dropout, residual and norm.
    """

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
        layout: PackedLayout,
        cache: KeyValueCache | None = None,
        qkv: list[Tensor] | None = None,
    ) -> Tensor:
        """The attended values before the output projection, T x D.

        `cache`: the keys and values are written to it; in a decoding step the tokens attend to its contents.
        `qkv`: a list to which the queries, keys and values are appended, T x 3 x H x C.
        """
        if qkv is None and cache is None:
            q, k, v = project_qkv(x_TD, self.qkv, self.num_heads)
        else:
            qkv_T3HC = project_qkv_stacked(x_TD, self.qkv, self.num_heads)
            q, k, v = qkv_T3HC.unbind(1)
        if qkv is not None:
            qkv.append(qkv_T3HC)
        if cache is not None:
            cache.write(qkv_T3HC[:, 1:])
            if cache.attends:
                return cache.attend(q, self.window).flatten(1)
        dropout = self.dropout if self.training else 0.0
        return attention(q, k, v, layout, self.direction, dropout, self.window).flatten(1)


class Block(nn.Module):
    """Self-attention, then a feed-forward network of `inner_width`, each with dropout and a residual connection, and
    with a layer norm after the sum or, if `pre_norm`, before the sublayer."""

    def __init__(
        self,
        width: int,
        num_heads: int,
        inner_width: int,
        activation: str,
        dropout: float,
        attention_dropout: float,
        norm_eps: float,
        direction: Direction = "bidirectional",
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
        layout: PackedLayout,
        cache: KeyValueCache | None = None,
        qkv: list[Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The residual stream after this block, T x D, and the input of the next block's attention, T x D.

        With pre-norm the second result is `next_norm` (required) of the first. It is computed here because it can be
        fused with the residual addition, which saves a pass over memory. `normed_TD` is that result of the previous
        block, None for the first block. With post-norm both results are the same, and neither argument is used.
        `cache` and `qkv` as in `SelfAttention`.
        """
        dropout = self.dropout if self.training else 0.0
        out = self.attention.out
        if self.pre_norm:
            normed_TD = self.attention_norm(x_TD) if normed_TD is None else normed_TD
            attended_TD = self.attention(normed_TD, layout, cache, qkv)
            x_TD, normed_TD = dropout_add_norm(x_TD, attended_TD, out, self.norm, dropout)
            h_TI = linear_activation(normed_TD, self.fc1, self.activation)
            return dropout_add_norm(x_TD, h_TI, self.fc2, next_norm, dropout)
        # Under autocast layer norm returns float32; casting back to the input's dtype halves the memory traffic.
        dtype = x_TD.dtype
        attended_TD = self.attention(x_TD, layout, cache, qkv)
        x_TD = dropout_add_norm(x_TD, attended_TD, out, self.attention_norm, dropout)[1].to(dtype)
        h_TI = linear_activation(x_TD, self.fc1, self.activation)
        x_TD = dropout_add_norm(x_TD, h_TI, self.fc2, self.norm, dropout)[1].to(dtype)
        return x_TD, x_TD


def stack(
    num_layers: int, sharing: str = "none", windows: Sequence[int | None] = (None,), **block_arguments
) -> nn.ModuleList:
    """`num_layers` blocks. `sharing` names the weights that all blocks share: `none`, `all`, only the `attention`, or
    only the feed-forward network (`ffn`). The attention `windows` are assigned to the blocks in rotation."""
    if sharing == "all":
        return nn.ModuleList([Block(**block_arguments)] * num_layers)
    blocks = nn.ModuleList(Block(**block_arguments, window=windows[i % len(windows)]) for i in range(num_layers))
    for block in blocks[1:]:
        for part in SHARED_PARTS[sharing]:
            setattr(block, part, getattr(blocks[0], part))
    return blocks


def initialize(module: nn.Module, std: float, generator: torch.Generator, linear_scale: float = 1.0) -> None:
    """BERT's initialisation: linear and embedding weights from a normal truncated at two standard deviations, biases 0,
    norms 1. The standard deviation of linear weights is multiplied by `linear_scale`."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            part_std = std * linear_scale if isinstance(part, nn.Linear) else std
            nn.init.trunc_normal_(part.weight, std=part_std, a=-2 * part_std, b=2 * part_std, generator=generator)
        if isinstance(part, nn.Linear) and part.bias is not None:
            nn.init.zeros_(part.bias)
        if isinstance(part, nn.LayerNorm):
            nn.init.ones_(part.weight)
            nn.init.zeros_(part.bias)
        if isinstance(part, nn.Conv1d | nn.LSTM):  # not in the papers: PyTorch's default
            bound = (part.hidden_size if isinstance(part, nn.LSTM) else part.weight[0].numel()) ** -0.5
            for parameter in part.parameters():
                nn.init.uniform_(parameter, -bound, bound, generator=generator)
