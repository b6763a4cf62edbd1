"""The base of the encoder families: bidirectional attention, segments, a masked-language-model head, and `[CLS]`, the
first token, as the representation of a sequence.

With `direction=causal` it is the left-to-right model of the BERT paper instead: the same head predicts next tokens, and
the last token, the only one that attends to all others, represents a sequence.

Shapes: T tokens, N sequences, K selected positions, D width, E embedding width, V vocabulary (padded to a multiple of
64).
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hornbook.config import setting
from hornbook.models.head_config import MASKED_LOGIT, HeadConfig, reads_cls
from hornbook.models.heads import PoolingLayer, TokenPooling, upcast
from hornbook.models.transformer import Transformer, TransformerConfig
from hornbook.nn.block import Direction
from hornbook.nn.fused_ops import ACTIVATIONS


@dataclass(frozen=True)
class EncoderConfig(TransformerConfig):
    num_segments: int = setting(2, "number of segment types", low=0, high=1024)
    direction: Direction = setting(
        "bidirectional", "attention: bidirectional, or causal (the model then learns by predicting next tokens)"
    )
    supports_causal: ClassVar[bool] = True  # `transformers` reads the direction of this family from `config.json`

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.direction != "bidirectional" and not self.supports_causal:
            raise ValueError(
                f"model.direction={self.direction}, but transformers has no one-sided model of this family and would "
                "attend to both sides: set model.direction=bidirectional, or use a BERT, a RoBERTa or a GPT"
            )


class MlmHead(nn.Module):
    """Dense layer, activation, layer norm, then logits over the vocabulary by the token embeddings or, if `tied` is
    False, by a matrix of its own."""

    def __init__(self, config: EncoderConfig, activation: str | None = None):
        super().__init__()
        self.activation = ACTIVATIONS[activation or config.activation]
        self.dense = nn.Linear(config.width, config.embedding_width)
        self.norm = nn.LayerNorm(config.embedding_width, config.norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.padded_vocab_size))
        shape = (config.padded_vocab_size, config.embedding_width)
        self.weight = None if config.tied else nn.Parameter(torch.zeros(shape))

    def forward(self, x_KD: Tensor, embedding_VE: Tensor) -> Tensor:
        transformed_KE = self.norm(self.activation(self.dense(x_KD)))
        return F.linear(transformed_KE, embedding_VE if self.weight is None else self.weight, self.bias)


def gelu_mlm_head(config: EncoderConfig) -> MlmHead:
    """The head of families that use GELU in it, whatever the activation of the blocks."""
    return MlmHead(config, "gelu")


def pooler(config: EncoderConfig) -> nn.Module:
    """The layer over `[CLS]` that the sentence task trains; `Encoder.pooled` applies tanh to it."""
    return nn.Linear(config.width, config.width)


def sentence_head(config: EncoderConfig) -> nn.Module:
    """Logits of (in order, not in order) from the pooled `[CLS]`."""
    return nn.Linear(config.width, 2)


class Encoder(Transformer):
    config_class = EncoderConfig
    vocabulary_head = "mlm"
    vocabulary_matrix = None  # the head is more than one matrix

    @classmethod
    def heads_for(cls, head_config: HeadConfig) -> tuple[str, ...]:
        """The pre-training heads that a task uses: the pooler, if there is one and the task reads `[CLS]`."""
        return ("pooler",) if "pooler" in cls.head_factories and reads_cls(head_config) else ()

    @classmethod
    def pooling_layer(cls, config: EncoderConfig, head_config: HeadConfig) -> PoolingLayer | None:
        """A left-to-right model has no pre-trained pooler, so a task adds a layer over the last token."""
        if config.direction != "causal" or not reads_cls(head_config):
            return None
        return PoolingLayer(config.width, torch.tanh, config.head_dropout)

    def initialize(self, generator: torch.Generator) -> None:
        super().initialize(generator)
        if getattr(self, "mlm", None) is None:
            return
        with torch.no_grad():
            self.mlm.bias.zero_()
            self.mlm.bias[self.config.vocab_size :] = MASKED_LOGIT
            if self.mlm.weight is not None:
                self.mlm.weight.copy_(self.embeddings.tokens.weight)

    @property
    def sequence_pooling(self) -> TokenPooling:
        return "lasttoken" if self.config.direction == "causal" else "cls"

    def pooled(self, cls_ND: Tensor) -> Tensor:
        """tanh of the pooler layer over the hidden states at `[CLS]`, N x D."""
        return torch.tanh(self.pooler(cls_ND))

    def vocabulary_logits(self, x_KD: Tensor) -> Tensor:
        """Logits over the padded vocabulary for the hidden states at selected positions, K x V."""
        return self.mlm(x_KD, self.embeddings.tokens.weight)

    def next_token_logits(self, x_KD: Tensor) -> Tensor:
        """Logits of the next token over the true vocabulary, in at least float32."""
        return upcast(self.vocabulary_logits(x_KD)[:, : self.config.vocab_size])

    def sentence_logits(self, cls_ND: Tensor) -> Tensor:
        """Logits of (in order, not in order), N x 2. Not in order means a random second segment (NSP) or swapped
        segments (SOP)."""
        return self.sentence(self.pooled(cls_ND))
