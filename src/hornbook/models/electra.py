"""ELECTRA (Clark et al. 2020, arXiv 2003.10555).

Two encoders are trained together. A small generator predicts masked tokens; samples from it replace the masks, and the
discriminator predicts for every token whether it was replaced (RTD). The discriminator is the model that is fine-tuned.
Token embeddings may be narrower than the hidden states, with a projection in between, and there is no pooler.

Shapes: T tokens, D width.
"""

import dataclasses
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hornbook.config import setting
from hornbook.models.encoder import Encoder, EncoderConfig, gelu_mlm_head, pooler, sentence_head
from hornbook.models.head_config import HeadConfig, reads_cls
from hornbook.models.heads import PoolingLayer
from hornbook.models.naming import BERT_ENCODER, BERT_SETTINGS, Naming
from hornbook.nn.fused_ops import ACTIVATIONS

Shared = Literal["embeddings", "tokens", "followed", "none", "all"]
HEAD_MULTIPLE = 8  # head widths must be a multiple of this for attention on CUDA
GENERATOR = "generator"  # folder of the generator, within that of the discriminator


@dataclass(frozen=True)
class ElectraConfig(EncoderConfig):
    width: int = setting(256, "width of the hidden states")
    num_heads: int = setting(4, "attention heads per block; must divide the width")
    inner_width: int = setting(1024, "inner width of the feed-forward network")
    embedding_width: int = setting(
        128, "width of the token embeddings, which are projected to the width of the blocks", low=1, high=2**20
    )


class RtdHead(nn.Module):
    """Dense layer, activation, and one logit per token: above 0, the token is predicted to be replaced."""

    def __init__(self, config: ElectraConfig):
        super().__init__()
        self.activation = ACTIVATIONS[config.activation]
        self.dense = nn.Linear(config.width, config.width)
        self.out = nn.Linear(config.width, 1)

    def forward(self, x_TD: Tensor) -> Tensor:
        return self.out(self.activation(self.dense(x_TD)))[..., 0]


class Electra(Encoder):
    """The discriminator (head `rtd`) or the generator (head `mlm`): the same architecture in two sizes. A generator
    trained adversarially also predicts the reward of its samples (head `reward`).

    >>> model = Electra(ElectraConfig(width=256, num_heads=4, inner_width=1024, embedding_width=128), ("rtd",))
    >>> round(sum(p.numel() for p in model.parameters()) / 1e6)
    14
    """

    config_class = ElectraConfig
    head_factories = MappingProxyType(
        {
            "pooler": pooler,
            "mlm": gelu_mlm_head,
            "rtd": RtdHead,
            "reward": lambda config: nn.Linear(config.width, 1),
            "sentence": sentence_head,
        }
    )
    naming = Naming(
        "electra",
        "Electra",
        encoder={name: BERT_ENCODER[name] for name in BERT_ENCODER if name != "pooler"}
        | {"project": "embeddings_project"},
        heads={
            "mlm.dense": "generator_predictions.dense",
            "mlm.norm": "generator_predictions.LayerNorm",
            "mlm.bias": "generator_lm_head.bias",
            "mlm.weight": "generator_lm_head.weight",
            "rtd.dense": "discriminator_predictions.dense",
            "rtd.out": "discriminator_predictions.dense_prediction",
            # Published without a pooler and a sentence task; the adversarial generator was not released.
            "reward": "hornbook_reward",
            "pooler": "hornbook_pooler",
            "sentence": "hornbook_sentence",
        },
        classes=((("rtd",), "ForPreTraining"), (("mlm",), "ForMaskedLM")),
        causal="ForCausalLM",
        task={
            "sequence": {"task.cls.dense": "classifier.dense", "task.out": "classifier.out_proj"},
            "choice": {"task.cls.dense": "sequence_summary.summary", "task.out": "classifier"},
        },
        settings={**BERT_SETTINGS, "embedding_width": "embedding_size"},
    )

    @classmethod
    def heads_for(cls, head_config: HeadConfig) -> tuple[str, ...]:
        return ()

    @classmethod
    def pooling_layer(cls, config: EncoderConfig, head_config: HeadConfig) -> PoolingLayer | None:
        if not reads_cls(head_config):
            return None
        return PoolingLayer(config.width, F.gelu, 0.0 if head_config.output_type.is_grouped else config.head_dropout)


class ElectraPair(nn.Module):
    """A generator and a discriminator that are pre-trained together, with shared weights.

    `shared` is `embeddings` (as published: of tokens, positions and segments, with their norm), `tokens` only, `none`,
    or `all` layers, if both have the same size. With `followed`, the discriminator's token embeddings start as a copy
    of the generator's, receive their own updates and those of the generator's, but send it no gradients (He et al.
    2021, "gradient-disentangled embedding sharing").
    """

    model_type = Electra.naming.model_type

    def __init__(
        self,
        config: ElectraConfig,
        generator: ElectraConfig,
        shared: Shared = "embeddings",
        heads: tuple[str, ...] = ("rtd",),
        predicts_reward: bool = False,
    ):
        super().__init__()
        self.config = config
        self.discriminator = Electra(config, heads)
        self.generator = Electra(generator, ("mlm", "reward") if predicts_reward else ("mlm",))
        for part in {"embeddings": ("embeddings",), "all": ("embeddings", "project", "blocks")}.get(shared, ()):
            setattr(self.generator, part, getattr(self.discriminator, part))
        if shared == "tokens":
            self.generator.embeddings.tokens = self.discriminator.embeddings.tokens
        self.follows_tokens = shared == "followed"

    @property
    def followed(self) -> list[tuple[nn.Parameter, nn.Parameter]]:
        """Pairs of weights (leader, follower): the optimizer applies each update of the first to the second too."""
        tokens = (each.embeddings.tokens.weight for each in (self.generator, self.discriminator))
        return [tuple(tokens)] if self.follows_tokens else []

    @property
    def heads(self) -> tuple[str, ...]:
        return self.discriminator.heads

    def initialize(self, generator: torch.Generator) -> None:
        """Initialises both as published; shared weights are those drawn for the discriminator."""
        self.generator.initialize(generator)
        self.discriminator.initialize(generator)
        with torch.no_grad():
            for leader, follower in self.followed:
                follower.copy_(leader)
            if self.generator.mlm.weight is not None:
                self.generator.mlm.weight.copy_(self.generator.embeddings.tokens.weight)

    def compile_parts(self) -> None:
        self.generator.compile_parts()
        self.discriminator.compile_parts()


def generator_config(config: ElectraConfig, share: float, num_layers: int | None = None) -> ElectraConfig:
    """The config of the generator for a discriminator: `share` of its width, heads and inner width, with the same token
    embeddings.

    >>> small = ElectraConfig(width=256, num_heads=4, inner_width=1024, embedding_width=128)
    >>> generator_config(small, 0.25).width, generator_config(small, 0.25).num_heads
    (64, 1)
    """
    width = round(share * config.width)
    num_heads = _generator_heads(config, width)
    if not num_heads or abs(share * config.width - width) > 0.5:
        fitting = [w / config.width for w in range(HEAD_MULTIPLE, config.width + 1) if _generator_heads(config, w)]
        nearest = sorted(fitting, key=lambda fraction: abs(fraction - share))[:2]
        suggestion = " or ".join(f"{fraction:.4g}" for fraction in sorted(nearest))
        raise ValueError(
            f"objective.generator_size={share:g} of model.width={config.width} gives heads whose width is not a "
            f"multiple of {HEAD_MULTIPLE}; try {suggestion or 'a wider model'}"
        )
    return dataclasses.replace(
        config,
        width=width,
        num_heads=num_heads,
        inner_width=round(share * config.inner_width),
        num_layers=config.num_layers if num_layers is None else num_layers,
    )


def _generator_heads(config: ElectraConfig, width: int) -> int:
    """As many heads of the discriminator's head width as fit, at least 1; 0 if they do not divide the width evenly."""
    num_heads = max(1, width // (config.width // config.num_heads))
    return num_heads if width % (HEAD_MULTIPLE * num_heads) == 0 else 0
