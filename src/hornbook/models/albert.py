"""ALBERT (Lan et al. 2019, arXiv 1909.11942).

All blocks share their weights (or only their attention, or only their feed-forward network). Token embeddings are
narrow (E) and projected to the width of the blocks (D), so that a large vocabulary costs little. Besides MLM, it is
pre-trained to tell whether two consecutive segments are in order or swapped (SOP).
"""

from collections import OrderedDict
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Literal

from torch import nn

from hornbook.config import setting
from hornbook.models.encoder import Encoder, EncoderConfig, MlmHead, pooler
from hornbook.models.naming import BERT_ENCODER, BERT_SETTINGS, Naming
from hornbook.models.transformer import Activation

Sharing = Literal["all", "attention", "ffn", "none"]


@dataclass(frozen=True)
class AlbertConfig(EncoderConfig):
    """Without dropout, as in version 2 and as the paper found best for xxlarge; base to xlarge of version 1 were
    trained with 0.1. The published code uses the tanh approximation of GELU."""

    supports_causal: ClassVar[bool] = False

    vocab_size: int = setting(30000, "vocabulary size; taken from the corpus")
    dropout: float = setting(0.0, "dropout of the hidden states")
    attention_dropout: float = setting(0.0, "dropout of the attention weights")
    activation: Activation = setting("gelu_tanh", "activation of the feed-forward network")
    embedding_width: int = setting(
        128, "width of the token embeddings, which are projected to the width of the blocks", low=1, high=2**20
    )
    sharing: Sharing = setting(
        "all", "weights shared by all blocks: all, attention, ffn (feed-forward network), or none"
    )
    head_dropout: float = setting(
        0.1, "dropout before the sentence head and before the classifier of a task", low=0, below=1
    )


def sentence_head(config: AlbertConfig) -> nn.Module:
    """Dropout, then logits of (in order, swapped) from the pooled `[CLS]`."""
    return nn.Sequential(OrderedDict(dropout=nn.Dropout(config.head_dropout), out=nn.Linear(config.width, 2)))


class Albert(Encoder):
    """
    >>> model = Albert(AlbertConfig())
    >>> sum(p.numel() for p in model.parameters()) < 12e6
    True
    """

    config_class = AlbertConfig
    head_factories = MappingProxyType({"pooler": pooler, "mlm": MlmHead, "sentence": sentence_head})
    always_projects = True
    naming = Naming(
        "albert",
        "Albert",
        heads={
            "mlm.dense": "predictions.dense",
            "mlm.norm": "predictions.LayerNorm",
            "mlm.bias": "predictions.bias",
            "mlm.weight": "predictions.decoder.weight",
            "sentence.out": "sop_classifier.classifier",
        },
        classes=((("mlm", "sentence"), "ForPreTraining"), (("mlm",), "ForMaskedLM")),
        encoder=BERT_ENCODER | {"pooler": "pooler", "project": "encoder.embedding_hidden_mapping_in"},
        block={
            "attention.qkv": ("attention.query", "attention.key", "attention.value"),
            "attention.out": ("attention.dense",),
            "attention_norm": ("attention.LayerNorm",),
            "fc1": ("ffn",),
            "fc2": ("ffn_output",),
            "norm": ("full_layer_layer_norm",),
        },
        # In `transformers`, layers are in groups that share all their weights.
        block_prefix=lambda config, i: (
            f"encoder.albert_layer_groups.{0 if config.sharing == 'all' else i}.albert_layers.0"
        ),
        settings={
            **BERT_SETTINGS,
            "embedding_width": "embedding_size",
            "head_dropout": "classifier_dropout_prob",
            "sharing": "sharing",
        },
        defaults={"num_attention_heads": 64, "intermediate_size": 16384},  # as in xxlarge
        tied_bias_names=("predictions.bias", "predictions.decoder.bias"),
    )

    @classmethod
    def config_from_hf(cls, hf_config: dict) -> AlbertConfig:
        settings = cls.naming.settings_in(hf_config)
        return AlbertConfig(**settings | {"sharing": _sharing_in(hf_config)})

    def hf_config(self) -> dict:
        """`transformers` has no class for layers that share only some weights: those are saved as separate layers, and
        the setting under our own name, `sharing`."""
        num_groups = 1 if self.config.sharing == "all" else self.config.num_layers
        return super().hf_config() | {"num_hidden_groups": num_groups, "inner_group_num": 1}


def _sharing_in(hf_config: dict) -> str:
    num_layers, num_groups = hf_config["num_hidden_layers"], hf_config.get("num_hidden_groups", 1)
    if hf_config.get("inner_group_num", 1) != 1:
        raise ValueError(f"its inner_group_num is {hf_config['inner_group_num']}; only 1 is supported")
    if num_groups not in (1, num_layers):
        raise ValueError(
            f"its num_hidden_groups is {num_groups}; 1 (all {num_layers} layers share their weights) and {num_layers} "
            "(each has its own) are supported"
        )
    sharing = hf_config.get("sharing", "all" if num_groups == 1 else "none")
    if (sharing == "all") != (num_groups == 1) and num_layers != 1:
        raise ValueError(f"its sharing is '{sharing}', which contradicts num_hidden_groups={num_groups}")
    return sharing
