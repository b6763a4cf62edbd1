"""GPT-1 (Radford et al. 2018), GPT-2 (Radford et al. 2019) and GPT-3 (Brown et al. 2020, arXiv 2005.14165).

Causal attention, pre-trained by predicting every next token, so that they can generate text. No segments, no norm over
the embeddings, and a vocabulary head without bias, tied to the token embeddings. GPT-1 has post-norm blocks like BERT.
GPT-2 moved the norms to the input of each sublayer, added one after the last block, and scales the initial weights of
the layers that add to the residual stream by 1 / sqrt(number of additions). GPT-3 is GPT-2 in which every second block
may attend to a local window only. Tasks read the last token, the only one that attends to all others (GPT-1 appends a
special token for this).

Shapes: T tokens, N sequences, K selected positions, D width, V vocabulary (padded to a multiple of 64).
"""

import copy
import dataclasses
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hornbook.config import setting
from hornbook.models.head_config import MASKED_LOGIT, HeadConfig
from hornbook.models.heads import TokenPooling, upcast
from hornbook.models.naming import TASK_CLASSES, Naming
from hornbook.models.transformer import Activation, Transformer, TransformerConfig
from hornbook.nn.int8 import Int8Linear


@dataclass(frozen=True)
class GptConfig(TransformerConfig):
    has_embedding_norm = False

    activation: Activation = setting("gelu_tanh", "activation of the feed-forward network")
    norm_eps: float = setting(1e-5, "added to the variance in each layer norm")
    embedding_dropout: float = setting(0.1, "dropout of the embeddings", low=0, below=1)
    head_dropout: float = setting(0.1, "dropout before the classifier of a task", low=0, below=1)
    eos_id: int | None = setting(None, "id of the end-of-text token; taken from the corpus", low=0, high=2**24)
    pad_id: int | None = setting(
        None, "id of the padding token in transformers; taken from the corpus", low=-1, high=2**24
    )
    mask_id: int | None = setting(
        None,
        "id of the mask token of a model that learned to predict masked tokens too (objective.mlm_fraction); taken "
        "from the corpus",
        low=0,
        high=2**24,
    )
    direction: Literal["causal", "bidirectional"] = setting(
        "causal", "attention: causal, or bidirectional in a task that a hybrid model is fine-tuned on"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.direction == "bidirectional" and any(self.windows):
            raise ValueError("model.window is for a model that reads from left to right: set model.window=none")

    @property
    def is_hybrid(self) -> bool:
        """Whether the model learned to read in both directions too, with some tokens masked."""
        return self.mask_id is not None


@dataclass(frozen=True)
class Gpt1Config(GptConfig):
    vocab_size: int = setting(40478, "vocabulary size; taken from the corpus")
    activation: Literal["gelu_tanh", "relu"] = setting("gelu_tanh", "activation; transformers has no gelu for a GPT-1")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inner_width != 4 * self.width:
            raise ValueError(f"model.inner_width of a GPT-1 is 4 x model.width: set it to {4 * self.width}")


@dataclass(frozen=True)
class Gpt2Config(GptConfig):
    pre_norm = True

    vocab_size: int = setting(50257, "vocabulary size; taken from the corpus")
    max_positions: int = setting(1024, "maximum sequence length")
    window: int | None = setting(
        None,
        "attention window of every second block, in tokens including the token itself (GPT-3); none: no window",
        low=1,
        high=2**20,
    )

    @property
    def windows(self) -> tuple[int | None, ...]:
        return (None, self.window)


class ClmHead(nn.Module):
    """Logits of the next token by the token embeddings or, if `tied` is False, by a matrix of its own; no bias."""

    def __init__(self, config: GptConfig):
        super().__init__()
        self.vocab_size = config.vocab_size
        shape = (config.padded_vocab_size, config.width)
        self.weight = None if config.tied else nn.Parameter(torch.zeros(shape))
        self.int8: Int8Linear | None = None

    def matrix(self, embedding_VD: Tensor) -> Tensor:
        """The matrix of the head, V x D, including the padding rows."""
        return embedding_VD if self.weight is None else self.weight

    def forward(self, x_KD: Tensor, embedding_VD: Tensor) -> Tensor:
        """Logits over the padded vocabulary, K x V, with MASKED_LOGIT for the padding."""
        if self.int8 is not None:
            return F.pad(self.int8(x_KD), (0, len(embedding_VD) - self.vocab_size), value=MASKED_LOGIT)
        weight_VD = self.matrix(embedding_VD)
        padding_V = F.pad(
            weight_VD.new_zeros(self.vocab_size), (0, len(weight_VD) - self.vocab_size), value=MASKED_LOGIT
        )
        return F.linear(x_KD, weight_VD, padding_V)

    def unpadded_logits(self, x_KD: Tensor, embedding_VD: Tensor) -> Tensor:
        """Logits over the true vocabulary."""
        if self.int8 is not None:
            return self.int8(x_KD)
        weight_VD = self.matrix(embedding_VD)
        if x_KD.is_cuda:  # on whole tiles
            return F.linear(x_KD, weight_VD)[:, : self.vocab_size]
        return F.linear(x_KD, weight_VD[: self.vocab_size])

    def quantize(self, embedding_VD: Tensor) -> None:
        """Replaces the matrix, or a copy of the token embeddings (which stay as they are), by int8 weights."""
        self.int8 = Int8Linear(self.matrix(embedding_VD)[: self.vocab_size], None)
        self.weight = None


class Gpt(Transformer):
    """The decoder, with the next-token head (`clm`) and, in a task, a head that reads the last token."""

    head_factories = MappingProxyType({"clm": ClmHead})
    vocabulary_head = "clm"
    mask_offset: ClassVar[int] = 1
    classifier_bias = False

    @classmethod
    def config_from_hf(cls, hf_config: dict) -> GptConfig:
        settings = cls.naming.settings_in(hf_config) | {"mask_id": hf_config.get("mask_token_id")}
        settings["direction"] = hf_config.get("attention_direction", "causal")
        if settings.get("inner_width") is None:
            settings["inner_width"] = 4 * settings["width"]
        if not isinstance(settings.get("eos_id"), int):  # some folders have a list
            settings["eos_id"] = None
        return cls.config_class(**settings)

    def hf_config(self) -> dict:
        hf_config = super().hf_config() | {"bos_token_id": self.config.eos_id}
        for name in ("attention_direction", "is_decoder"):
            hf_config.pop(name, None)
        if self.config.is_hybrid:
            hf_config["mask_token_id"] = self.config.mask_id
        if self.config.direction == "bidirectional":
            hf_config["attention_direction"] = "bidirectional"
        return hf_config

    @classmethod
    def for_tokenizer(cls, config: GptConfig, pad_id: int | None, eos_id: int | None = None) -> GptConfig:
        """Sets the end-of-text and padding tokens that `transformers` reads from `config.json`."""
        return dataclasses.replace(config, eos_id=eos_id, pad_id=pad_id)

    @classmethod
    def heads_for(cls, head_config: HeadConfig) -> tuple[str, ...]:
        """Tasks may also predict the next token as an auxiliary objective."""
        return ("clm",)

    def initialize(self, generator: torch.Generator) -> None:
        super().initialize(generator)
        with torch.no_grad():
            if self.config.pre_norm:
                for block in self.blocks:
                    for part in (block.attention.out, block.fc2):
                        part.weight.mul_((2 * self.config.num_layers) ** -0.5)
            if self.clm is not None and self.clm.weight is not None:
                self.clm.weight.copy_(self.embeddings.tokens.weight)

    def quantize(self) -> Self:
        """Rounds the matrices of the blocks and of the vocabulary head to int8, in place; the model can no longer be
        trained or saved. Embeddings, of which a token reads one row, and biases and norms, which are small, are
        unchanged."""
        for block in self.blocks:
            for owner, name in ((block.attention, "qkv"), (block.attention, "out"), (block, "fc1"), (block, "fc2")):
                part = getattr(owner, name)
                if isinstance(part, nn.Linear):  # shared layers are already replaced
                    setattr(owner, name, Int8Linear(part.weight, part.bias))
        if self.clm is not None:
            self.clm.quantize(self.embeddings.tokens.weight)
        return self

    @property
    def vocabulary_matrix(self) -> Tensor:
        """The matrix of the vocabulary head, V x D, including the padding rows."""
        return self.clm.matrix(self.embeddings.tokens.weight)

    def vocabulary_logits(self, x_KD: Tensor) -> Tensor:
        """Logits over the padded vocabulary of the next token, or of a masked token from the position before it, for
        the hidden states at selected positions, K x V."""
        return self.clm(x_KD, self.embeddings.tokens.weight)

    def next_token_logits(self, x_KD: Tensor) -> Tensor:
        """Logits of the next token over the true vocabulary, in at least float32, for generating and scoring texts."""
        return upcast(self.clm.unpadded_logits(x_KD, self.embeddings.tokens.weight))

    def with_direction(self, direction: Literal["causal", "bidirectional"]) -> Self:
        """This model in an attention direction: itself, or another module that has the same weights."""
        if direction == self.config.direction:
            return self
        shared = {id(tensor): tensor for tensor in (*self.parameters(), *self.buffers())}
        other = copy.deepcopy(self, shared)
        other.config = dataclasses.replace(self.config, direction=direction)
        for block in other.blocks:
            block.attention.direction = direction
        return other

    @property
    def sequence_pooling(self) -> TokenPooling:
        return "lasttoken"


GPT_BLOCK = {
    "attention.qkv": ("attn.c_attn",),
    "attention.out": ("attn.c_proj",),
    "attention_norm": ("ln_1",),
    "fc1": ("mlp.c_fc",),
    "fc2": ("mlp.c_proj",),
    "norm": ("ln_2",),
}
GPT_SETTINGS = {
    "vocab_size": "vocab_size",
    "num_layers": "n_layer",
    "width": "n_embd",
    "num_heads": "n_head",
    "max_positions": "n_positions",
    "dropout": "resid_pdrop",
    "embedding_dropout": "embd_pdrop",
    "attention_dropout": "attn_pdrop",
    "norm_eps": "layer_norm_epsilon",
    "init_std": "initializer_range",
    "tied": "tie_word_embeddings",
    "eos_id": "eos_token_id",
    "pad_id": "pad_token_id",
    "head_dropout": "summary_first_dropout",
}
DOUBLE_HEADS = "DoubleHeadsModel"  # with a multiple-choice head and a next-token head


def _naming(model_type: str, stem: str, outer: dict[str, str], **more: Any) -> Naming:
    return Naming(
        model_type,
        stem,
        prefix="transformer.",
        encoder=outer,
        heads={"clm": "lm_head"},
        is_decoder=True,
        tied_heads=("clm",),
        classes=((("clm",), "LMHeadModel"),),
        block=GPT_BLOCK,
        block_prefix=lambda config, i: f"h.{i}",
        transposed=("attention.qkv", "attention.out", "fc1", "fc2"),
        task={"sequence": {"task.out": "score"}, "choice": {"task.out": "multiple_choice_head.summary"}},
        **more,
    )


class Gpt1(Gpt):
    """
    >>> model = Gpt1(Gpt1Config())
    >>> round(sum(p.numel() for p in model.parameters()) / 1e6)
    117
    """

    config_class = Gpt1Config
    naming = _naming(
        "openai-gpt",
        "OpenAIGPT",
        {"embeddings.tokens": "tokens_embed", "embeddings.positions": "positions_embed"},
        settings=GPT_SETTINGS,
        activation="afn",
        activations={"gelu": "gelu_tanh", "relu": "relu"},  # its gelu is the tanh approximation
        task_classes={"sequence": TASK_CLASSES["sequence"], "choice": DOUBLE_HEADS},
    )


class Gpt2(Gpt):
    """
    >>> model = Gpt2(Gpt2Config())
    >>> round(sum(p.numel() for p in model.parameters()) / 1e6)
    124
    """

    config_class = Gpt2Config
    naming = _naming(
        "gpt2",
        "GPT2",
        {"embeddings.tokens": "wte", "embeddings.positions": "wpe", "norm": "ln_f"},
        settings=GPT_SETTINGS | {"inner_width": "n_inner", "window": "attention_window"},
        activation="activation_function",
        task_classes={**TASK_CLASSES, "choice": DOUBLE_HEADS},
        defaults={"eos_token_id": 50256},
    )

    @classmethod
    def config_from_hf(cls, hf_config: dict) -> Gpt2Config:
        if hf_config.get("scale_attn_by_inverse_layer_idx") or not hf_config.get("scale_attn_weights", True):
            raise ValueError("it scales attention other than by 1 / sqrt(head width), which is not supported")
        return super().config_from_hf(hf_config)
