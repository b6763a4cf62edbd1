"""BERT (Devlin et al. 2018, arXiv 1810.04805).

Bidirectional attention, pre-trained by predicting masked tokens (MLM) and, from the pooled `[CLS]`, whether the second
segment follows the first (NSP). Post-norm blocks, GELU, learned positions.
"""

from dataclasses import dataclass
from types import MappingProxyType

from hornbook.models.encoder import Encoder, EncoderConfig, MlmHead, pooler, sentence_head
from hornbook.models.naming import Naming
from hornbook.models.transformer import Preset


@dataclass(frozen=True)
class BertConfig(EncoderConfig):
    """The defaults of every encoder."""


class Bert(Encoder):
    """
    >>> model = Bert(PRESETS["bert-tiny"].model)
    >>> sum(p.numel() for p in model.parameters()) > 4e6
    True
    """

    family = "bert"
    config_kind = BertConfig
    head_makers = MappingProxyType({"pooler": pooler, "mlm": MlmHead, "sentence": sentence_head})
    naming = Naming(
        "bert",
        "Bert",
        heads={
            "mlm.dense": "cls.predictions.transform.dense",
            "mlm.norm": "cls.predictions.transform.LayerNorm",
            "mlm.bias": "cls.predictions.bias",
            "mlm.weight": "cls.predictions.decoder.weight",
            "sentence": "cls.seq_relationship",
        },
        classes=(
            (("mlm", "sentence"), "ForPreTraining"),
            (("mlm",), "ForMaskedLM"),
            (("sentence",), "ForNextSentencePrediction"),
        ),
        causal="LMHeadModel",
        bias_twins=("cls.predictions.bias", "cls.predictions.decoder.bias"),
    )


def _size(num_layers: int, width: int) -> Preset:
    config = BertConfig(num_layers=num_layers, width=width, num_heads=width // 64, inner_width=4 * width)
    return Preset(
        config,
        {
            "optimizer.lr": 1e-4,
            "schedule.steps": 1_000_000,
            "schedule.warmup_fraction": 0.01,
            "batch.tokens": 256 * 512,
        },
    )


def _tiny(num_layers: int, width: int, inner_width: int) -> Preset:
    """A TinyBERT student (Jiao et al. 2019, arXiv 1909.10351): a BERT of other proportions."""
    config = BertConfig(num_layers=num_layers, width=width, num_heads=12, inner_width=inner_width)
    return Preset(
        config,
        {
            "optimizer.lr": 5e-5,
            "schedule.steps": 300_000,  # about three epochs of Wikipedia
            "schedule.warmup_fraction": 0.1,
            "batch.tokens": 256 * 128,
            "data.length": 128,
            "data.short_length": 128,
        },
    )


PRESETS = {
    "bert-tiny": _size(2, 128),
    "bert-mini": _size(4, 256),
    "bert-small": _size(4, 512),
    "bert-medium": _size(8, 512),
    "bert-base": _size(12, 768),
    "bert-large": _size(24, 1024),
    "tinybert-4": _tiny(4, 312, 1200),
    "tinybert-6": _tiny(6, 768, 3072),
}
