"""RoBERTa (Liu et al. 2019, arXiv 1907.11692).

BERT's architecture, pre-trained by MLM only, on full sentences packed across document boundaries, in far larger
batches. It has one segment type, and the row of position 0 is the pad token's id + 1. No layer over `<s>` is
pre-trained: each task adds one.
"""

import dataclasses
from dataclasses import dataclass
from types import MappingProxyType

import torch

from hornbook.config import setting
from hornbook.models.encoder import Encoder, EncoderConfig, gelu_mlm_head, pooler, sentence_head
from hornbook.models.head_config import HeadConfig, reads_cls
from hornbook.models.heads import PoolingLayer
from hornbook.models.naming import Naming


@dataclass(frozen=True)
class RobertaConfig(EncoderConfig):
    vocab_size: int = setting(50265, "vocabulary size; taken from the corpus")
    num_segments: int = setting(1, "number of segment types")
    norm_eps: float = setting(1e-5, "added to the variance in each layer norm")
    position_offset: int = setting(
        2,
        "row of position 0 in the position table: the pad token's id + 1; taken from the corpus",
        low=1,
        high=2**24,
    )


class Roberta(Encoder):
    """
    >>> model = Roberta(RobertaConfig(), ("mlm",))
    >>> model.hf_config()["max_position_embeddings"]
    514
    """

    config_class = RobertaConfig
    head_factories = MappingProxyType({"pooler": pooler, "mlm": gelu_mlm_head, "sentence": sentence_head})
    naming = Naming(
        "roberta",
        "Roberta",
        heads={
            "mlm.dense": "lm_head.dense",
            "mlm.norm": "lm_head.layer_norm",
            "mlm.bias": "lm_head.bias",
            "mlm.weight": "lm_head.decoder.weight",
            "sentence": "hornbook_sentence",  # published without a sentence task
        },
        classes=((("mlm",), "ForMaskedLM"),),
        causal="ForCausalLM",
        task={"sequence": {"task.cls.dense": "classifier.dense", "task.out": "classifier.out_proj"}},
        defaults={
            "type_vocab_size": 2,
            "layer_norm_eps": 1e-12,
            "max_position_embeddings": 512,
            "pad_token_id": 1,
        },
        tied_bias_names=("lm_head.bias", "lm_head.decoder.bias"),
    )

    @classmethod
    def heads_for(cls, head_config: HeadConfig) -> tuple[str, ...]:
        """Multiple choice uses the pooler, as published; other tasks add a layer."""
        return ("pooler",) if head_config.output_type.is_grouped else ()

    @classmethod
    def pooling_layer(cls, config: EncoderConfig, head_config: HeadConfig) -> PoolingLayer | None:
        if head_config.output_type.is_grouped or not reads_cls(head_config):
            return super().pooling_layer(config, head_config)
        return PoolingLayer(config.width, torch.tanh, config.head_dropout)

    @classmethod
    def for_tokenizer(cls, config: EncoderConfig, pad_id: int | None, eos_id: int | None = None) -> EncoderConfig:
        """Sets the position offset: `transformers` counts positions from the pad token's id + 1."""
        return config if pad_id is None else dataclasses.replace(config, position_offset=pad_id + 1)

    @classmethod
    def config_from_hf(cls, hf_config: dict) -> RobertaConfig:
        settings = cls.naming.settings_in(hf_config)
        pad_id = hf_config.get("pad_token_id", cls.naming.defaults["pad_token_id"])
        if not isinstance(pad_id, int):
            raise ValueError(f"its pad_token_id is {pad_id}, but must be a number, as positions are counted from it")
        settings["max_positions"] -= pad_id + 1
        return cls.config_class(**settings, position_offset=pad_id + 1)

    def hf_config(self) -> dict:
        offset = self.config.position_offset
        num_rows = self.config.max_positions + offset
        return super().hf_config() | {"max_position_embeddings": num_rows, "pad_token_id": offset - 1}
