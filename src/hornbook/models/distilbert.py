"""DistilBERT (Sanh et al. 2019, arXiv 1910.01108).

BERT with half the layers, distilled from a BERT (`objectives/distillation`). It has no segment embeddings and no
pre-trained layer over `[CLS]`: each task adds one, with a ReLU.
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import torch.nn.functional as F

from hornbook.config import setting
from hornbook.models.encoder import Encoder, EncoderConfig, MlmHead
from hornbook.models.head_config import HeadConfig, reads_cls
from hornbook.models.heads import PoolingLayer
from hornbook.models.naming import BERT_ENCODER, Naming

NORM_EPS = 1e-12  # fixed in its `transformers` class


@dataclass(frozen=True)
class DistilbertConfig(EncoderConfig):
    supports_causal: ClassVar[bool] = False

    num_layers: int = setting(6, "number of blocks")
    num_segments: int = setting(0, "number of segment types; always 0")
    norm_eps: float = setting(NORM_EPS, "added to the variance in each layer norm")
    head_dropout: float = setting(0.2, "dropout before the classifier of a sequence task", low=0, below=1)
    span_head_dropout: float = setting(0.1, "dropout before the span head", low=0, below=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_segments:
            raise ValueError(f"distilbert has no segments: set model.num_segments=0, not {self.num_segments}")
        if self.norm_eps != NORM_EPS:
            raise ValueError(f"model.norm_eps of distilbert is always {NORM_EPS:g}: leave out {self.norm_eps:g}")

    @property
    def token_head_dropout(self) -> float:
        return self.dropout


class Distilbert(Encoder):
    """
    >>> model = Distilbert(DistilbertConfig(), ())
    >>> round(sum(p.numel() for p in model.parameters()) / 1e6)
    66
    """

    config_class = DistilbertConfig
    head_factories = MappingProxyType({"mlm": MlmHead})
    naming = Naming(
        "distilbert",
        "DistilBert",
        encoder={name: BERT_ENCODER[name] for name in BERT_ENCODER if name not in ("pooler", "embeddings.segments")},
        heads={
            "mlm.dense": "vocab_transform",
            "mlm.norm": "vocab_layer_norm",
            "mlm.bias": "vocab_projector.bias",
            "mlm.weight": "vocab_projector.weight",
        },
        classes=((("mlm",), "ForMaskedLM"),),
        block={
            "attention.qkv": ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
            "attention.out": ("attention.out_lin",),
            "attention_norm": ("sa_layer_norm",),
            "fc1": ("ffn.lin1",),
            "fc2": ("ffn.lin2",),
            "norm": ("output_layer_norm",),
        },
        block_prefix=lambda config, i: f"transformer.layer.{i}",
        task={kind: {"task.cls.dense": "pre_classifier", "task.out": "classifier"} for kind in ("sequence", "choice")},
        settings={
            "vocab_size": "vocab_size",
            "num_layers": "n_layers",
            "width": "dim",
            "num_heads": "n_heads",
            "inner_width": "hidden_dim",
            "max_positions": "max_position_embeddings",
            "dropout": "dropout",
            "attention_dropout": "attention_dropout",
            "head_dropout": "seq_classif_dropout",
            "span_head_dropout": "qa_dropout",
            "init_std": "initializer_range",
            "tied": "tie_word_embeddings",
        },
        activation="activation",
    )

    @classmethod
    def pooling_layer(cls, config: EncoderConfig, head_config: HeadConfig) -> PoolingLayer | None:
        return PoolingLayer(config.width, F.relu, 0.0) if reads_cls(head_config) else None

    @classmethod
    def config_from_hf(cls, hf_config: dict) -> DistilbertConfig:
        settings = cls.naming.settings_in(hf_config)
        positions = "sinusoidal" if hf_config.get("sinusoidal_pos_embds") else "learned"
        return DistilbertConfig(**settings | {"positions": positions})

    def hf_config(self) -> dict:
        hf_config = super().hf_config()
        hf_config.pop("position_kind", None)
        return hf_config | {"sinusoidal_pos_embds": self.config.positions == "sinusoidal"}
