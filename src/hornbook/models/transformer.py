"""The base of every model family: embeddings, a stack of blocks, heads. Each family has a file of its own with what is
specific to it: its config, its pre-training heads, and the names of its weights in `transformers`.

Shapes: T tokens, N sequences, D width, E embedding width, H heads, C head width.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from hornbook.batch import Batch
from hornbook.config import ValidatedSettings, setting
from hornbook.models.head_config import MASKED_LOGIT, HeadConfig, reads_cls
from hornbook.models.heads import HEADS, PoolingLayer, TokenPooling, token_indices
from hornbook.models.kagnet import KagNetHead
from hornbook.models.naming import Naming
from hornbook.nn.block import SHARED_PARTS, Block, PackedLayout, initialize, prefers_dense, runs_flash, stack
from hornbook.nn.embeddings import Embeddings
from hornbook.nn.kv_cache import KeyValueCache

Activation = Literal["gelu", "gelu_tanh", "relu"]
BASE_WIDTH = 768
VOCABULARY_MULTIPLE = 64  # the vocabulary is padded so that its matrix products run on whole tiles
# Values of the rows beyond the true vocabulary.
VOCABULARY_PADDING = {"embeddings.tokens.weight": 0.0, "mlm.bias": MASKED_LOGIT, "mlm.weight": 0.0, "clm.weight": 0.0}


@dataclass(frozen=True)
class TransformerConfig(ValidatedSettings, group="model"):
    vocab_size: int = setting(30522, "vocabulary size; taken from the corpus", low=1, high=2**24)
    num_layers: int = setting(12, "number of blocks", low=1, high=10_000)
    width: int = setting(768, "width of the hidden states", low=1, high=2**20)
    num_heads: int = setting(12, "attention heads per block; must divide the width", low=1, high=2**20)
    inner_width: int = setting(3072, "inner width of the feed-forward network", low=1, high=2**22)
    max_positions: int = setting(512, "maximum sequence length", low=1, high=2**20)
    dropout: float = setting(0.1, "dropout of the hidden states", low=0, below=1)
    attention_dropout: float = setting(0.1, "dropout of the attention weights", low=0, below=1)
    activation: Activation = setting("gelu", "activation of the feed-forward network")
    positions: Literal["learned", "sinusoidal"] = setting("learned", "position embeddings: learned or sinusoidal")
    norm_eps: float = setting(1e-12, "added to the variance in each layer norm", low=0, high=1)
    init_std: float = setting(0.02, "standard deviation of the initial weights", above=0, high=100)
    init_by_width: bool = setting(
        False, "scale the initial matrices by sqrt(768 / width), so that narrow layers behave as in BERT-base"
    )
    tied: bool = setting(True, "tie the vocabulary head to the token embeddings")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.num_heads:
            divisors = [h for h in range(1, self.width + 1) if self.width % h == 0]
            nearest = min(divisors, key=lambda h: abs(h - self.num_heads))
            raise ValueError(
                f"model.num_heads={self.num_heads} does not divide model.width={self.width}; try {nearest}"
            )

    @property
    def num_matrix_parameters(self) -> int:
        """Number of parameters in the matrices of the blocks and in the token and position embeddings, which are nearly
        all parameters, computed without building the model."""
        attention, feed_forward = 4 * self.width**2, 2 * self.width * self.inner_width
        copies = {"all": (1, 1), "attention": (1, self.num_layers), "ffn": (self.num_layers, 1)}
        num_attention, num_feed_forward = copies.get(self.sharing, (self.num_layers, self.num_layers))
        table = (self.padded_vocab_size + self.max_positions) * self.embedding_width
        return num_attention * attention + num_feed_forward * feed_forward + table

    @property
    def padded_vocab_size(self) -> int:
        return -(-self.vocab_size // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE

    # Defaults of most families; a family that differs has a setting or an attribute of the same name. Without a type
    # annotation they are no settings.

    num_segments = 0
    direction = "bidirectional"  # of the attention, or causal
    windows = (None,)  # attention windows, assigned to the blocks in rotation; None attends to all tokens
    pre_norm = False  # norms precede attention and feed-forward network, with one more norm after the last block
    has_embedding_norm = True
    sharing = "none"  # of the blocks' weights, see `nn/block.py`
    position_offset = 0  # row of position 0 in the position table
    span_head_dropout = 0.0

    @property
    def embedding_width(self) -> int:
        return self.width

    @property
    def embedding_dropout(self) -> float:
        return self.dropout

    @property
    def head_dropout(self) -> float:
        return self.dropout

    @property
    def token_head_dropout(self) -> float:
        return self.head_dropout


class Transformer(nn.Module):
    """Embeddings and blocks, with the pre-training heads named in `heads` (default: all heads of the family) and, if
    `head_config` is given, the head of a task."""

    config_class: ClassVar[type[TransformerConfig]]
    head_factories: ClassVar[Mapping[str, Callable[[Any], nn.Module]]]  # the pre-training heads, by name
    vocabulary_head: ClassVar[str]  # the head with logits over the vocabulary
    naming: ClassVar[Naming]
    mask_offset: ClassVar[int] = 0  # how many positions before a masked token its prediction is
    initializes_from: ClassVar[tuple[str, ...]] = ()  # other families whose weights pre-training may start from
    reads_entities: ClassVar[bool] = False  # `Batch.entities`, besides the tokens
    is_capturable: ClassVar[bool] = True  # a training step may run as a CUDA graph
    always_projects: ClassVar[bool] = False  # project from E to D even if both are equal
    classifier_bias: ClassVar[bool] = True  # whether the classifier of a sequence task has a bias

    def __init__(
        self, config: TransformerConfig, heads: tuple[str, ...] | None = None, head_config: HeadConfig | None = None
    ):
        super().__init__()
        self.config = config
        self.heads = tuple(self.head_factories) if heads is None else tuple(heads)
        if unknown := [name for name in self.heads if name not in self.head_factories]:
            has = ", ".join(self.head_factories)
            raise ValueError(f"{self.model_type} has no {unknown[0]} head and cannot be trained for it; it has {has}")
        self.head_config = head_config
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
        is_factorized = self.always_projects or config.embedding_width != config.width
        self.project = nn.Linear(config.embedding_width, config.width) if is_factorized else None
        self.blocks = self.make_blocks(
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
        for name, make in self.head_factories.items():
            setattr(self, name, make(config) if name in self.heads else None)
        self.task = None
        if head_config is not None:
            self.add_task_head(head_config)

    @property
    def model_type(self) -> str:
        return self.naming.model_type

    def make_blocks(self, **arguments: Any) -> nn.ModuleList:
        """The stack of blocks; `arguments` are those of each block."""
        return stack(self.config.num_layers, self.config.sharing, self.config.windows, **arguments)

    def blocks_for(self, batch: Batch) -> Sequence[Callable[..., tuple[Tensor, Tensor]]]:
        """The blocks as functions with the arguments of `Block.forward`, for a family whose blocks read more of the
        batch than its tokens."""
        return self.blocks

    def add_task_head(self, head_config: HeadConfig) -> None:
        """Adds the head of a task; its weights, if it has any, are not initialised yet."""
        pooling = self.pooling_layer(self.config, head_config)
        make = HEADS[head_config.output] if head_config.graph is None else KagNetHead
        self.head_config, self.task = head_config, make(self.config, head_config, pooling, self.classifier_bias)

    @classmethod
    def described(cls) -> str:
        """The family's name with its indefinite article."""
        return f"{'an' if cls.naming.model_type[0] in 'aeiou' else 'a'} {cls.naming.model_type}"

    @classmethod
    def heads_for(cls, head_config: HeadConfig) -> tuple[str, ...]:
        """The pre-training heads that a task uses."""
        return ()

    @classmethod
    def pooling_layer(cls, config: TransformerConfig, head_config: HeadConfig) -> PoolingLayer | None:
        """The layer between the token that represents a sequence and the classifier, for families without a pre-trained
        pooler."""
        return None

    @classmethod
    def for_tokenizer(
        cls, config: TransformerConfig, pad_id: int | None, eos_id: int | None = None
    ) -> TransformerConfig:
        """The config adapted to a tokenizer's special tokens, for families whose config depends on them."""
        return config

    @classmethod
    def config_from_hf(cls, hf_config: dict) -> TransformerConfig:
        """Our config for the contents of a `config.json`; `ValueError` for unsupported features."""
        return cls.config_class(**cls.naming.settings_in(hf_config))

    def hf_config(self) -> dict:
        return self.naming.hf_config(self)

    def initialize(self, generator: torch.Generator) -> None:
        """Initialises all weights as published; rows that pad the vocabulary are 0 and stay 0."""
        linear_scale = math.sqrt(BASE_WIDTH / self.config.width) if self.config.init_by_width else 1.0
        initialize(self, self.config.init_std, generator, linear_scale)
        self.embeddings.fill_sinusoidal()
        with torch.no_grad():
            self.embeddings.tokens.weight[self.config.vocab_size :] = 0

    def to_empty(self, *, device: torch.device | str | None, recurse: bool = True) -> Self:
        """As for any module, but without `empty_like`: on the meta device it imports sympy, which takes half a second
        of every command that loads a model."""
        return self._apply(lambda x: torch.empty(x.shape, dtype=x.dtype, device=device), recurse=recurse)

    def compile_parts(self) -> None:
        """Compiles embeddings, blocks (once for all layers) and heads, for a dynamic number of tokens. Blocks that read
        entities too are left as they are."""
        # With `fallback_random`, dropout outside our kernels uses PyTorch's generator: the same random numbers as
        # without compiling, and four per call of the generator, where a compiled kernel would call it for each.
        options = {"fallback_random": True}
        heads = [head for name in self.head_factories if (head := getattr(self, name)) is not None and name != "pooler"]
        for part in dict.fromkeys((self.embeddings, *(each for each in self.blocks if type(each) is Block), *heads)):
            part.compile(dynamic=True, options=options)

    def forward(
        self,
        batch: Batch,
        hidden_states: list[Tensor] | None = None,
        caches: Sequence[KeyValueCache] | None = None,
        qkv: dict[int, Tensor | None] | None = None,
    ) -> Tensor:
        """The hidden states of the last block, after the final norm if there is one, T x D.

        `hidden_states`: a list to which the input of each block and the result are appended, T x D each.
        `caches`: one key-value cache per block, to write to and, in a decoding step, to attend to.
        `qkv`: a dictionary whose keys are block numbers, from 1; each value is set to the queries, keys and values of
        that block, T x 3 x H x C.
        """
        if batch.max_length > self.config.max_positions:
            raise ValueError(
                f"a sequence of {batch.max_length} tokens is longer than "
                f"model.max_positions={self.config.max_positions}"
            )
        x_TD = self.embeddings(batch.ids_T, batch.positions_T, batch.segments_T)
        if self.project is not None:
            x_TD = self.project(x_TD)
        is_half = runs_flash(x_TD)
        if x_TD.is_cuda and torch.is_autocast_enabled("cuda"):
            is_half = True
            # With post-norm the residual stream can be in half precision, as it is normalised after every sublayer.
            # With pre-norm it grows from block to block, and what a block adds would be lost to rounding.
            x_TD = x_TD if self.config.pre_norm else x_TD.to(torch.get_autocast_dtype("cuda"))
        offsets_host = None if is_half else batch.offsets_host
        offsets = None if is_half and prefers_dense(batch.max_length) and batch.is_uniform else batch.offsets
        layout = PackedLayout(offsets, offsets_host, batch.max_length, batch.num_causal)
        normed_TD = None
        next_norms = [None] * len(self.blocks)
        if self.config.pre_norm:
            next_norms = [*(block.attention_norm for block in self.blocks[1:]), self.norm]
        layers = zip(self.blocks_for(batch), next_norms, caches or [None] * len(self.blocks), strict=True)
        for layer, (block, next_norm, cache) in enumerate(layers, 1):
            if hidden_states is not None:
                hidden_states.append(x_TD)
            block_qkv: list[Tensor] | None = [] if qkv is not None and layer in qkv else None
            x_TD, normed_TD = block(x_TD, normed_TD, next_norm, layout, cache, block_qkv)
            if block_qkv is not None:
                qkv[layer] = block_qkv[0]
        if hidden_states is not None:
            hidden_states.append(normed_TD)
        return normed_TD

    def hidden_states(self, batch: Batch) -> list[Tensor]:
        """The input of the first block and the output of each block, T x D: one more than there are blocks."""
        hidden_states: list[Tensor] = []
        self(batch, hidden_states)
        return hidden_states

    @property
    def sequence_pooling(self) -> TokenPooling:
        """The token that represents a sequence in a task: the first or, in a causal model, the last, which alone
        attends to all others."""
        raise NotImplementedError

    def pooled(self, token_ND: Tensor) -> Tensor:
        """The input of the classifier, from the hidden states of the tokens that represent the sequences, N x D."""
        return token_ND

    def outputs(self, batch: Batch) -> Tensor:
        """The outputs of the task head per sequence or token (`models/head_config.py` lists the shapes)."""
        return self.outputs_of(self(batch), batch)

    def outputs_of(self, x_TD: Tensor, batch: Batch) -> Tensor:
        """The outputs of the task head from the last hidden states."""
        if not reads_cls(self.head_config) and not self.head_config.has_answer_classifier:
            return self.task(x_TD, batch, None)
        token_ND = x_TD[token_indices(x_TD, batch, self.sequence_pooling)]
        if self.head_config.has_answer_classifier:
            return self.task(x_TD, batch, token_ND)
        pool = self.pooled if self.task.cls is None else self.task.cls
        return self.task(x_TD, batch, pool(token_ND))

    def depth_of(self, name: str) -> int:
        """The depth of a parameter: 0 for the embeddings, 1 to L for the blocks, L + 1 for pooler and heads.

        Weights shared by all blocks have the depth of the last block. With that of the first, as their name suggests,
        layer-wise decay would give them decay^(L - 1) of the learning rate (0.31 for 12 layers and a decay of 0.9), and
        freezing one layer would freeze all.
        """
        part, _, rest = name.partition(".")
        if part in ("embeddings", "project"):
            return 0
        if part != "blocks":
            return self.config.num_layers + 1
        block, module, *_ = rest.split(".")
        return self.config.num_layers if module in SHARED_PARTS[self.config.sharing] else int(block) + 1


def count_parameters(network: nn.Module, is_counted: Callable[[str, nn.Parameter], bool] | None = None) -> int:
    """The number of parameters of a model, or of the models in a network, without the rows that pad the vocabulary.

    `is_counted`: which parameters count, by name and values (default: all).
    """
    num_padding = {
        parameter: (model.config.padded_vocab_size - model.config.vocab_size) * parameter.shape[1:].numel()
        for model in network.modules()
        if isinstance(model, Transformer)
        for name, parameter in model.named_parameters()
        if name in VOCABULARY_PADDING
    }
    counted = [each for name, each in network.named_parameters() if is_counted is None or is_counted(name, each)]
    return sum(each.numel() - num_padding.get(each, 0) for each in counted)
