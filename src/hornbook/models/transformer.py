"""What every family is made of: embeddings, a stack of blocks, heads. A family says in its own file what is unusual
about it, which heads it was published with, and the names that the outside world gives to all this.

Shapes: T tokens, N sequences, D width, E width of the token vectors, H heads, C width of a head.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from hornbook.batch import Batch
from hornbook.config import Typed, setting
from hornbook.models.naming import Naming
from hornbook.models.outputs import MASKED_LOGIT, ClsLayer, Output, reads_cls, task_head
from hornbook.nn.attention import Direction, prefers_dense, runs_flash
from hornbook.nn.block import SHARED_PARTS, initialise, stack
from hornbook.nn.cache import KeyValueCache
from hornbook.nn.embeddings import Embeddings

Activation = Literal["gelu", "gelu_tanh", "relu"]
BASE_WIDTH = 768
VOCABULARY_MULTIPLE = 64  # matrix products over the vocabulary run on whole tiles
# Rows beyond the true vocabulary.
PADDED = {"embeddings.tokens.weight": 0.0, "mlm.bias": MASKED_LOGIT, "mlm.weight": 0.0, "clm.weight": 0.0}


@dataclass(frozen=True)
class TransformerConfig(Typed, group="model"):
    vocab_size: int = setting(30522, "number of tokens; taken from the corpus", low=1, high=2**24)
    num_layers: int = setting(12, "number of blocks", low=1, high=10_000)
    width: int = setting(768, "width of the hidden states", low=1, high=2**20)
    num_heads: int = setting(12, "attention heads in each block; must divide the width", low=1, high=2**20)
    inner_width: int = setting(3072, "width inside the feed-forward network", low=1, high=2**22)
    max_positions: int = setting(512, "longest sequence", low=1, high=2**20)
    dropout: float = setting(0.1, "dropout in the hidden states", low=0, below=1)
    attention_dropout: float = setting(0.1, "dropout of attention weights", low=0, below=1)
    activation: Activation = setting("gelu", "of the feed-forward network")
    positions: Literal["learned", "sinusoidal"] = setting("learned", "position vectors: trained, or sines and cosines")
    norm_eps: float = setting(1e-12, "added to the variance in each norm", low=0, high=1)
    init_std: float = setting(0.02, "standard deviation of the first weights", above=0, high=100)
    init_by_width: bool = setting(
        False, "draw the first matrices wider by the root of 768 / width, so that narrow layers act as a BERT-base's do"
    )
    tied: bool = setting(True, "the vocabulary head reads the token embedding as its matrix")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.num_heads:
            near = [h for h in range(1, self.width + 1) if self.width % h == 0]
            best = min(near, key=lambda h: abs(h - self.num_heads))
            raise ValueError(
                f"model.num_heads={self.num_heads} does not divide model.width={self.width}; {best} would do"
            )

    @property
    def num_matrix_parameters(self) -> int:
        """Parameters of the blocks' matrices and of the token and position vectors: nearly all of them, counted
        without building the network."""
        attention, feed_forward = 4 * self.width**2, 2 * self.width * self.inner_width
        copies = {"all": (1, 1), "attention": (1, self.num_layers), "ffn": (self.num_layers, 1)}
        num_attention, num_feed_forward = copies.get(self.sharing, (self.num_layers, self.num_layers))
        table = (self.padded_vocab_size + self.max_positions) * self.embedding_width
        return num_attention * attention + num_feed_forward * feed_forward + table

    @property
    def padded_vocab_size(self) -> int:
        return -(-self.vocab_size // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE

    # What most families leave as it is here; one that does not has a setting of this name.

    @property
    def num_segments(self) -> int:
        return 0

    @property
    def direction(self) -> Direction:
        return "both"

    @property
    def windows(self) -> tuple[int | None, ...]:
        """How many tokens the blocks attend to, by turns; none: all."""
        return (None,)

    @property
    def pre_norm(self) -> bool:
        """The norms stand before attention and feed-forward network, and one more after the last block."""
        return False

    @property
    def has_embedding_norm(self) -> bool:
        return True

    @property
    def embedding_width(self) -> int:
        return self.width

    @property
    def sharing(self) -> str:
        return "none"

    @property
    def position_offset(self) -> int:
        return 0

    @property
    def embedding_dropout(self) -> float:
        return self.dropout

    @property
    def head_dropout(self) -> float:
        return self.dropout

    @property
    def token_dropout(self) -> float:
        return self.head_dropout

    @property
    def span_dropout(self) -> float:
        return 0.0


class Transformer(nn.Module):
    """The stack of blocks and, as far as `heads` names them, those of its family's pre-training heads; and, where an
    `output` is wanted, the head of a task."""

    family: ClassVar[str]
    config_kind: ClassVar[type[TransformerConfig]]
    head_makers: ClassVar[Mapping[str, Callable[[Any], nn.Module]]]  # the published heads, by name
    vocabulary_head: ClassVar[str]  # the head with logits over the vocabulary
    naming: ClassVar[Naming]
    always_projects: ClassVar[bool] = False  # from E to D, even where both are the same
    scores_with_bias: ClassVar[bool] = True  # of classes, in a task's head

    def __init__(self, config: TransformerConfig, heads: tuple[str, ...] | None = None, output: Output | None = None):
        super().__init__()
        self.config = config
        self.heads = tuple(self.head_makers) if heads is None else tuple(heads)
        if unknown := [name for name in self.heads if name not in self.head_makers]:
            has = ", ".join(self.head_makers)
            raise ValueError(f"{self.family} has no {unknown[0]} head, so it cannot train for that; it has {has}")
        self.output = output
        self.embeddings = Embeddings(
            config.padded_vocab_size,
            config.embedding_width,
            config.max_positions,
            config.num_segments,
            config.positions,
            config.embedding_dropout,
            config.norm_eps if config.has_embedding_norm else None,
            config.position_offset,
        )
        is_factorised = self.always_projects or config.embedding_width != config.width
        self.project = nn.Linear(config.embedding_width, config.width) if is_factorised else None
        self.blocks = stack(
            config.num_layers,
            config.sharing,
            config.windows,
            width=config.width,
            num_heads=config.num_heads,
            inner_width=config.inner_width,
            activation=config.activation,
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
            norm_eps=config.norm_eps,
            direction=config.direction,
            pre_norm=config.pre_norm,
        )
        self.norm = nn.LayerNorm(config.width, config.norm_eps) if config.pre_norm else None
        for name, make in self.head_makers.items():
            setattr(self, name, make(config) if name in self.heads else None)
        cls = None if output is None else self.cls_layer(config, output)
        self.task = None if output is None else task_head(config, output, cls, self.scores_with_bias)

    @classmethod
    def in_words(cls) -> str:
        """The family with its article, as a sentence names it."""
        return f"{'an' if cls.family[0] in 'aeiou' else 'a'} {cls.family}"

    @classmethod
    def heads_for(cls, output: Output) -> tuple[str, ...]:
        """What of the pre-training heads a task goes through."""
        return ()

    @classmethod
    def cls_layer(cls, config: TransformerConfig, output: Output) -> ClsLayer | None:
        """The layer between the token that is read and the task's own, for families that pre-train no pooler."""
        return None

    @classmethod
    def for_tokenizer(
        cls, config: TransformerConfig, pad_id: int | None, end_id: int | None = None
    ) -> TransformerConfig:
        """The config of a new model that is to read what a tokenizer writes, where that decides more than its size."""
        return config

    @classmethod
    def finetuning(cls, config: TransformerConfig, task: str) -> dict[str, Any]:
        """Settings that this family was published with in fine-tuning, by dotted name, where they are its own."""
        return {}

    @classmethod
    def config_from_outside(cls, outside: dict) -> TransformerConfig:
        """Our config for a `config.json` of this family; `ValueError` for what it cannot do."""
        return cls.config_kind(**cls.naming.settings_in(outside))

    def hf_config(self) -> dict:
        """What `config.json` says of this model."""
        return self.naming.hf_config(self)

    def initialise(self, generator: torch.Generator) -> None:
        """Published start of every weight; rows that pad the vocabulary are 0 and stay 0."""
        wider = math.sqrt(BASE_WIDTH / self.config.width) if self.config.init_by_width else 1.0
        initialise(self, self.config.init_std, generator, wider)
        self.embeddings.fill_sinusoidal()
        with torch.no_grad():
            self.embeddings.tokens.weight[self.config.vocab_size :] = 0

    def compile_parts(self) -> None:
        """Compiles the block, which all layers share as code, and the two ends; the number of tokens stays open."""
        # Dropout that no kernel of ours does is the library's: four numbers from one round of the generator, where a
        # compiled kernel makes a round for each, and the same draws as without compiling.
        options = {"fallback_random": True}
        heads = [head for name in self.head_makers if (head := getattr(self, name)) is not None and name != "pooler"]
        for part in dict.fromkeys((self.embeddings, *self.blocks, *heads)):
            part.compile(dynamic=True, options=options)

    def forward(
        self,
        batch: Batch,
        kept: list[Tensor] | None = None,
        cached: Sequence[KeyValueCache] | None = None,
        qkv: dict[int, Tensor | None] | None = None,
    ) -> Tensor:
        """The last block's hidden states, after the last norm if there is one, T x D. `kept` gets what goes into each
        block, and these; `cached`, one for each block, its keys and values. `qkv` gets the queries, keys and values,
        T x 3 x H x C, of the blocks that it names, counted from 1."""
        if batch.longest > self.config.max_positions:
            raise ValueError(
                f"a sequence of {batch.longest} tokens is longer than the model's {self.config.max_positions} positions"
            )
        x_TD = self.embeddings(batch.ids_T, batch.positions_T, batch.segments_T)
        if self.project is not None:
            x_TD = self.project(x_TD)
        is_half = runs_flash(x_TD)
        if x_TD.is_cuda and torch.is_autocast_enabled("cuda"):
            is_half = True
            # The stream between blocks in half precision, where post-norm brings it back to unit size after every part.
            # With pre-norm it grows from block to block, and what one adds would be lost to rounding.
            x_TD = x_TD if self.config.pre_norm else x_TD.to(torch.get_autocast_dtype("cuda"))
        starts_host = None if is_half else batch.starts_host
        starts = None if is_half and prefers_dense(batch.longest) and batch.is_even else batch.starts
        normed_TD = None
        parts = zip(self.blocks, self._next_norms(), cached or [None] * len(self.blocks), strict=True)
        for number, (block, next_norm, its) in enumerate(parts, 1):
            if kept is not None:
                kept.append(x_TD)
            asked: list[Tensor] | None = [] if qkv is not None and number in qkv else None
            x_TD, normed_TD = block(x_TD, normed_TD, next_norm, starts, starts_host, batch.longest, its, asked)
            if asked is not None:
                qkv[number] = asked[0]
        if kept is not None:
            kept.append(normed_TD)
        return normed_TD

    def _next_norms(self) -> list[nn.LayerNorm | None]:
        """The norm that follows each block, where norms stand before the parts."""
        if not self.config.pre_norm:
            return [None] * len(self.blocks)
        return [*(block.attention_norm for block in self.blocks[1:]), self.norm]

    def hidden_states(self, batch: Batch) -> list[Tensor]:
        """What goes into the first block and what comes out of each, T x D: one more than there are blocks."""
        kept: list[Tensor] = []
        self(batch, kept)
        return kept

    def sequence_tokens(self, x_TD: Tensor, batch: Batch) -> Tensor:
        """The places of the tokens that stand for their sequences in a task, N."""
        raise NotImplementedError

    def pooled(self, read_ND: Tensor) -> Tensor:
        """What a task sees of them, N x D."""
        return read_ND

    def outputs(self, batch: Batch) -> Tensor:
        """What the task wants of each sequence or token (`models/outputs.py` lists the shapes)."""
        return self.outputs_of(self(batch), batch)

    def outputs_of(self, x_TD: Tensor, batch: Batch) -> Tensor:
        """The same from the last hidden states."""
        if not reads_cls(self.output) and not self.output.answerable:
            return self.task(x_TD, batch, None)
        read_ND = x_TD[self.sequence_tokens(x_TD, batch)]
        if self.output.answerable:
            return self.task(x_TD, batch, read_ND)
        read = self.pooled if self.task.cls is None else self.task.cls
        return self.task(x_TD, batch, read(read_ND))

    def depth_of(self, name: str) -> int:
        """How far up a parameter stands: 0 the embeddings, 1 to L the blocks, L + 1 pooler and heads.

        What all blocks share stands where the highest does. As the lowest, which its name says, it would learn at
        decay^(L - 1) of the rate, 0.31 of it for 12 layers and a decay of 0.9, and freezing one layer would freeze all.
        """
        part, _, rest = name.partition(".")
        if part in ("embeddings", "project"):
            return 0
        if part != "blocks":
            return self.config.num_layers + 1
        number, inside, *_ = rest.split(".")
        return self.config.num_layers if inside in SHARED_PARTS[self.config.sharing] else int(number) + 1


@dataclass(frozen=True)
class Preset:
    """A published size, and the settings of pre-training that it was published with, by dotted name."""

    model: TransformerConfig
    published: Mapping[str, Any] = field(default_factory=dict)
