"""The block of ERNIE's K-encoder (Zhang et al. 2019, arXiv 1905.07129): tokens attend to tokens and entities to
entities, then each entity is fused with the token that it is aligned to.

    w = norm(w + attention(w))                     e = norm(e + attention(e))
    h = gelu(W_t w + W_e e + b) at a token with an entity, gelu(W_t w + b) at the others
    w = norm(w + W_t' h + b_t)                     e = norm(e + W_e' h + b_e) at the aligned tokens

So a text without entities passes through it as through `Block`. This is the published code, with two differences: there
`W_e` has a bias, which is added at every token, and `[CLS]` has an entity whose vector is 0. The paper's formulas leave
out residual connections and norms, and have a gelu around the last two lines, which the code has not.

Shapes: T tokens, E entities, D width, W width of entities, I inner width.
"""

from typing import NamedTuple

import numpy as np
from torch import Tensor, nn

from hornbook.nn.block import Block, SelfAttention
from hornbook.nn.cache import KeyValueCache
from hornbook.nn.fused_ops import ACTIVATIONS, dropout_add_norm


class AlignedEntities(NamedTuple):
    """Where the entities of a batch are: the index of each one's token, and the offsets of the sequences."""

    tokens_E: Tensor
    offsets: Tensor
    offsets_host: np.ndarray | None


class FusionBlock(Block):
    """A `Block` for tokens and entities. The last one of a stack has no output for entities (`is_last`): nothing would
    read it, and nothing would train it."""

    def __init__(self, entity_width: int, entity_heads: int, is_last: bool, **block_arguments):
        super().__init__(**block_arguments)
        inner_width, norm_eps = block_arguments["inner_width"], block_arguments["norm_eps"]
        attention_dropout = block_arguments["attention_dropout"]
        self.entity_attention = SelfAttention(entity_width, entity_heads, attention_dropout, "bidirectional")
        self.entity_attention_norm = nn.LayerNorm(entity_width, norm_eps)
        self.entity_fc1 = nn.Linear(entity_width, inner_width, bias=False)
        self.entity_fc2 = None if is_last else nn.Linear(inner_width, entity_width)
        self.entity_norm = None if is_last else nn.LayerNorm(entity_width, norm_eps)

    def forward(
        self,
        x_TD: Tensor,
        normed_TD: Tensor | None,
        next_norm: nn.LayerNorm | None,
        offsets: Tensor | None,
        offsets_host: np.ndarray | None,
        max_length: int,
        cache: KeyValueCache | None = None,
        qkv: list[Tensor] | None = None,
        e_EW: Tensor | None = None,
        entities: AlignedEntities | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The hidden states of tokens, T x D, and of entities, E x W; without entities those of `Block`."""
        if entities is None:
            return super().forward(x_TD, normed_TD, next_norm, offsets, offsets_host, max_length, cache, qkv)
        dropout, dtype = self.dropout if self.training else 0.0, x_TD.dtype
        attended_TD = self.attention(x_TD, offsets, offsets_host, max_length, None, qkv)
        x_TD = dropout_add_norm(x_TD, attended_TD, self.attention.out, self.attention_norm, dropout)[1].to(dtype)
        attended_EW = self.entity_attention(e_EW, entities.offsets, entities.offsets_host, max_length)
        out = self.entity_attention.out
        e_EW = dropout_add_norm(e_EW, attended_EW, out, self.entity_attention_norm, dropout)[1].to(dtype)
        h_TI = self.fc1(x_TD)
        h_TI = ACTIVATIONS[self.activation](h_TI.index_add(0, entities.tokens_E, self.entity_fc1(e_EW).to(h_TI.dtype)))
        if self.entity_fc2 is not None:
            h_EI = h_TI.index_select(0, entities.tokens_E)
            e_EW = dropout_add_norm(e_EW, h_EI, self.entity_fc2, self.entity_norm, dropout)[1].to(dtype)
        x_TD = dropout_add_norm(x_TD, h_TI, self.fc2, self.norm, dropout)[1].to(dtype)
        return x_TD, e_EW
