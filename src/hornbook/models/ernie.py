"""ERNIE (Zhang et al. 2019, "Enhanced Language Representation with Informative Entities", arXiv 1905.07129).

A BERT whose upper layers (the K-encoder) also read the vectors of the entities that a text mentions, each aligned to
the first token of its mention (`Batch.entities`). Pre-training adds the prediction of these entities
(`objectives/ernie.py`). The vectors come from a knowledge graph and are not trained. In a layer of the K-encoder,
tokens attend to tokens and entities to entities, then each entity is fused with the token that it is aligned to:

    w = norm(w + attention(w))                     e = norm(e + attention(e))
    h = gelu(W_t w + W_e e + b) at a token with an entity, gelu(W_t w + b) at the others
    w = norm(w + W_t' h + b_t)                     e = norm(e + W_e' h + b_e) at the aligned tokens

So a text without entities gives what a BERT with the same weights gives. This is the published code, with two
differences: there `W_e` has a bias, which is added at every token, and `[CLS]` has an entity whose vector is 0. The
paper's formulas leave out residual connections and norms, and have a gelu around the last two, which the code has not.

`transformers` has another model named ernie (Baidu's), so folders have a `model_type` of their own, which only Hornbook
opens. The names of the weights are BERT's, and those of the published code for entities.

Shapes: T tokens, E entities, K selected positions, C candidates, D width, W width of entities, I inner width.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hornbook.batch import TOKENS, Batch
from hornbook.config import setting
from hornbook.models.bert import Bert, BertConfig
from hornbook.models.naming import BERT_BLOCK, BERT_ENCODER, BERT_SETTINGS, Naming
from hornbook.nn.block import Block, PackedLayout, SelfAttention, runs_flash
from hornbook.nn.embeddings import embedding
from hornbook.nn.fused_ops import ACTIVATIONS, dropout_add_norm
from hornbook.nn.kv_cache import KeyValueCache

ENTITY_SETTINGS = ("num_text_layers", "entity_width", "entity_heads", "num_entities", "graph")
ABLATIONS = ("fusion", "entity_vectors", "trains_entities")


@dataclass(frozen=True)
class ErnieConfig(BertConfig):
    num_text_layers: int | None = setting(
        None,
        "layers that read tokens only (T-encoder); none: half, or fewer, so that at least two also read entities",
        low=0,
        high=10_000,
    )
    entity_width: int = setting(100, "width of entity vectors; taken from the vectors", low=1, high=2**20)
    entity_heads: int = setting(4, "attention heads for entities; must divide their width", low=1, high=2**20)
    num_entities: int = setting(0, "number of entities; taken from the graph", low=0, high=2**31)
    graph: str | None = setting(None, "fingerprint of the graph; taken from the graph")
    fusion: bool = setting(True, "fuse entities with tokens; false: read tokens only, as a BERT (ablation)")
    entity_vectors: Literal["graph", "random"] = setting(
        "graph", "initial entity vectors: those of the graph (vectors=), or random ones (ablation)"
    )
    trains_entities: bool = setting(False, "train the entity vectors too (ablation)")

    supports_causal = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_text_layers is not None and self.num_text_layers >= self.num_layers:
            raise ValueError(
                f"model.num_text_layers={self.num_text_layers} leaves none of the {self.num_layers} layers for "
                "entities: lower it"
            )
        if self.entity_width % self.entity_heads:
            raise ValueError(
                f"model.entity_heads={self.entity_heads} does not divide the width of the entity vectors, "
                f"{self.entity_width}: set model.entity_heads to a divisor"
            )

    @property
    def first_fusion(self) -> int:
        """The index of the first layer that reads entities. A layer fuses them after its attention, so only the next
        one can move what it read to other tokens, such as `[CLS]`."""
        if self.num_text_layers is not None:
            return self.num_text_layers
        return max(0, min(self.num_layers // 2, self.num_layers - 2))

    @property
    def num_matrix_parameters(self) -> int:
        return super().num_matrix_parameters + self.num_entities * self.entity_width


class AlignedEntities(NamedTuple):
    """Where the entities of a batch are: the index of each one's token, and the sequences."""

    indices_E: Tensor
    layout: PackedLayout


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
        layout: PackedLayout,
        cache: KeyValueCache | None = None,
        qkv: list[Tensor] | None = None,
        e_EW: Tensor | None = None,
        entities: AlignedEntities | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The hidden states of tokens, T x D, and of entities, E x W; without entities those of `Block`."""
        if entities is None:
            return super().forward(x_TD, normed_TD, next_norm, layout, cache, qkv)
        dropout, dtype = self.dropout if self.training else 0.0, x_TD.dtype
        attended_TD = self.attention(x_TD, layout, None, qkv)
        x_TD = dropout_add_norm(x_TD, attended_TD, self.attention.out, self.attention_norm, dropout)[1].to(dtype)
        attended_EW = self.entity_attention(e_EW, entities.layout)
        out = self.entity_attention.out
        e_EW = dropout_add_norm(e_EW, attended_EW, out, self.entity_attention_norm, dropout)[1].to(dtype)
        h_TI = self.fc1(x_TD)
        h_TI = ACTIVATIONS[self.activation](h_TI.index_add(0, entities.indices_E, self.entity_fc1(e_EW).to(h_TI.dtype)))
        if self.entity_fc2 is not None:
            h_EI = h_TI.index_select(0, entities.indices_E)
            e_EW = dropout_add_norm(e_EW, h_EI, self.entity_fc2, self.entity_norm, dropout)[1].to(dtype)
        x_TD = dropout_add_norm(x_TD, h_TI, self.fc2, self.norm, dropout)[1].to(dtype)
        return x_TD, e_EW


class Ernie(Bert):
    """
    >>> size = {"num_layers": 4, "width": 32, "num_heads": 2, "inner_width": 64, "vocab_size": 100}
    >>> model = Ernie(ErnieConfig(**size, entity_width=8, num_entities=5))
    >>> [type(block).__name__ for block in model.blocks]
    ['Block', 'Block', 'FusionBlock', 'FusionBlock']
    """

    config_class = ErnieConfig
    initializes_from = ("bert",)  # other families whose weights it can start from
    reads_entities = True
    is_capturable = False  # the number of entities of a step is read on the host
    # `entity`: from a token to the vector that its entity should have
    head_factories = MappingProxyType(
        {**Bert.head_factories, "entity": lambda config: nn.Linear(config.width, config.entity_width)}
    )
    naming = Naming(
        "hornbook-ernie",
        "HornbookErnie",
        heads={**Bert.naming.heads, "entity": "cls.predictions_ent.dense"},
        classes=((("mlm", "sentence"), "ForPreTraining"), (("mlm",), "ForMaskedLM")),
        encoder={**BERT_ENCODER, "entities": "entity_embeddings"},
        block={
            **BERT_BLOCK,
            "entity_attention.qkv": tuple(f"attention.self_ent.{name}" for name in ("query", "key", "value")),
            "entity_attention.out": ("attention.output_ent.dense",),
            "entity_attention_norm": ("attention.output_ent.LayerNorm",),
            "entity_fc1": ("intermediate.dense_ent",),
            "entity_fc2": ("output.dense_ent",),
            "entity_norm": ("output.LayerNorm_ent",),
        },
        settings=BERT_SETTINGS | {name: name for name in ENTITY_SETTINGS + ABLATIONS},
        tied_bias_names=Bert.naming.tied_bias_names,
        prefix="bert.",
    )

    def __init__(self, config: ErnieConfig, heads: tuple[str, ...] | None = None, head_config=None):
        super().__init__(config, heads, head_config)
        self.entities = embedding(config.num_entities, config.entity_width)
        self.entities.weight.requires_grad_(config.trains_entities)

    def make_blocks(self, **arguments) -> nn.ModuleList:
        config, blocks = self.config, super().make_blocks(**arguments)
        for i in range(config.first_fusion, config.num_layers):
            is_last = i == config.num_layers - 1
            blocks[i] = FusionBlock(config.entity_width, config.entity_heads, is_last, **arguments)
        return blocks

    def initialize(self, generator: torch.Generator) -> None:
        """As BERT; the vectors of entities are random with a length of about 1 until `set_entity_vectors`."""
        super().initialize(generator)
        nn.init.normal_(self.entities.weight, std=self.config.entity_width**-0.5, generator=generator)

    @torch.no_grad()
    def set_entity_vectors(self, vectors_NW: np.ndarray) -> None:
        """Takes the vectors of a graph, scaled to length 1; a vector of zeros means that an entity has none. With
        `entity_vectors="random"` only the zeros are taken."""
        vectors_NW = torch.from_numpy(np.asarray(vectors_NW, np.float32))
        if vectors_NW.shape != self.entities.weight.shape:
            expected = tuple(self.entities.weight.shape)
            raise ValueError(f"the vectors have shape {tuple(vectors_NW.shape)}, not {expected}")
        if self.config.entity_vectors == "random":
            self.entities.weight[~vectors_NW.any(1)] = 0
        else:
            self.entities.weight.copy_(F.normalize(vectors_NW, dim=1))

    @property
    def has_vector(self) -> np.ndarray:
        """For each entity, whether it has a vector; others are not read."""
        return self.entities.weight.detach().any(1).cpu().numpy()

    def blocks_for(self, batch: Batch) -> Sequence[Callable[..., tuple[Tensor, Tensor]]]:
        """The blocks; those that fuse hold the state of the entities between them."""
        entities = batch.entities
        if entities is None or not self.config.fusion:
            return self.blocks
        entities = entities.slice(0, batch.num_real_sequences, {TOKENS: 0})
        if not len(entities.ids_host):
            return self.blocks
        state = {"e_EW": self.entities(entities.ids_E)}

        def run(block: FusionBlock, x_TD: Tensor, *others, **named) -> tuple[Tensor, Tensor]:
            offsets_host = None if runs_flash(x_TD) else entities.offsets_host
            layout = PackedLayout(entities.offsets, offsets_host, batch.max_length)
            aligned = AlignedEntities(entities.indices_E, layout)
            e_EW = state["e_EW"].to(x_TD.dtype)
            x_TD, state["e_EW"] = block(x_TD, *others, **named, e_EW=e_EW, entities=aligned)
            return x_TD, x_TD

        first = self.config.first_fusion
        return [*self.blocks[:first], *(partial(run, block) for block in self.blocks[first:])]

    def entity_logits(self, x_KD: Tensor, candidates_C: Tensor) -> Tensor:
        """Logits of the candidate entities for the hidden states at selected tokens, K x C: the products of a linear
        map of the hidden state with the vectors of the candidates."""
        return F.linear(self.entity(x_KD), self.entities(candidates_C).to(x_KD.dtype))

    def depth_of(self, name: str) -> int:
        return 0 if name.startswith("entities.") else super().depth_of(name)
