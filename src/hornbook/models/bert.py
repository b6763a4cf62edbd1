"""BERT (Devlin et al. 2018, arXiv 1810.04805).

Bidirectional attention, pre-trained by predicting masked tokens (MLM) and, from the pooled `[CLS]`, whether the second
segment follows the first (NSP). Post-norm blocks, GELU, learned positions.
"""

from dataclasses import dataclass
from types import MappingProxyType

from hornbook.models.encoder import Encoder, EncoderConfig, MlmHead, pooler, sentence_head
from hornbook.models.naming import Naming


@dataclass(frozen=True)
class BertConfig(EncoderConfig):
    """The defaults of every encoder."""


class Bert(Encoder):
    """
    >>> model = Bert(BertConfig(num_layers=2, width=128, num_heads=2, inner_width=512))
    >>> sum(p.numel() for p in model.parameters()) > 4e6
    True
    """

    config_class = BertConfig
    head_factories = MappingProxyType({"pooler": pooler, "mlm": MlmHead, "sentence": sentence_head})
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
        tied_bias_names=("cls.predictions.bias", "cls.predictions.decoder.bias"),
    )
