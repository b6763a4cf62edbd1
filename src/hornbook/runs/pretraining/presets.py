"""Presets: published model sizes with the pre-training settings that were published with them."""

import dataclasses
import math

from hornbook import config as configuration
from hornbook.models import registry
from hornbook.models.albert import AlbertConfig
from hornbook.models.bert import BertConfig
from hornbook.models.distilbert import DistilbertConfig
from hornbook.models.electra import ElectraConfig
from hornbook.models.ernie import ErnieConfig
from hornbook.models.gpt import Gpt1Config, Gpt2Config
from hornbook.models.roberta import RobertaConfig
from hornbook.objectives.clm import ClmSettings
from hornbook.objectives.distillation.objective import DistillationSettings
from hornbook.objectives.ernie import ErnieSettings
from hornbook.objectives.masking import MaskingSettings
from hornbook.objectives.mlm import MlmSettings
from hornbook.objectives.rtd import RtdSettings
from hornbook.runs.pretraining.settings import DataSettings, PretrainSettings, with_model_overrides
from hornbook.train.settings import BatchSettings, OptimizerSettings, ScheduleSettings

FULL_LENGTH = DataSettings(length=512, short_fraction=0.0)  # no part of the training with shorter sequences
LENGTH_128 = DataSettings(length=128, short_length=128)
MICRO_TOKENS = 16_384  # of a GPT: their logits over a vocabulary of 50,257 take 3.3 GB in float32
BATCH_512K, BATCH_1M, BATCH_2M, BATCH_3M = (num * 2048 for num in (256, 512, 1024, 1562))  # GPT-3's, in tokens
FIRST_TOKENS = 16 * 2048  # of GPT-3's growing batches


def _shape(num_layers: int, width: int, num_heads: int | None = None) -> dict[str, int]:
    """The shape of most models: one head per 64 units, and feed-forward layers of four times the width."""
    num_heads = width // 64 if num_heads is None else num_heads
    return {"num_layers": num_layers, "width": width, "num_heads": num_heads, "inner_width": 4 * width}


def _bert(num_layers: int, width: int) -> PretrainSettings:
    return PretrainSettings(
        model=BertConfig(**_shape(num_layers, width)),
        optimizer=OptimizerSettings(lr=1e-4),
        schedule=ScheduleSettings(steps=1_000_000, warmup_fraction=0.01),
        batch=BatchSettings(tokens=256 * 512),
    )


def _tinybert(num_layers: int, width: int, inner_width: int) -> PretrainSettings:
    """A TinyBERT student (Jiao et al. 2019, arXiv 1909.10351): a BERT of other proportions."""
    return PretrainSettings(
        model=BertConfig(num_layers=num_layers, width=width, num_heads=12, inner_width=inner_width),
        data=LENGTH_128,
        optimizer=OptimizerSettings(lr=5e-5),
        schedule=ScheduleSettings(steps=300_000, warmup_fraction=0.1),  # about three epochs of Wikipedia
        batch=BatchSettings(tokens=256 * 128),
    )


def _albert(num_layers: int, width: int, num_heads: int) -> PretrainSettings:
    return PretrainSettings(
        model=AlbertConfig(**_shape(num_layers, width, num_heads)),
        data=FULL_LENGTH,
        objective=MlmSettings(sentence="sop"),
        masking=MaskingSettings(unit="ngram", max_ngram=3),
        optimizer=OptimizerSettings(name="lamb", lr=0.00176, bias_correction=False),
        schedule=ScheduleSettings(steps=125_000, warmup_steps=3125),
        batch=BatchSettings(tokens=4096 * 512),
    )


def _roberta(num_layers: int, width: int, lr: float, warmup_steps: int) -> PretrainSettings:
    return PretrainSettings(
        model=RobertaConfig(**_shape(num_layers, width)),
        data=FULL_LENGTH,
        objective=MlmSettings(sentence="none"),
        optimizer=OptimizerSettings(lr=lr, beta2=0.98, eps=1e-6, weight_decay=0.01, max_grad_norm=0.0),
        schedule=ScheduleSettings(steps=500_000, warmup_steps=warmup_steps),
        batch=BatchSettings(tokens=8192 * 512),
    )


def _ernie(num_layers: int, width: int) -> PretrainSettings:
    """ERNIE (Zhang et al. 2019): one epoch of 4.5 billion tokens from BERT's weights; sequences of 256 tokens, twice as
    many per batch as BERT."""
    return PretrainSettings(
        model=ErnieConfig(**_shape(num_layers, width)),
        data=DataSettings(length=256, short_fraction=0.0),
        objective=ErnieSettings(),
        optimizer=OptimizerSettings(lr=5e-5),
        schedule=ScheduleSettings(steps=34_000, warmup_fraction=0.1),
        batch=BatchSettings(tokens=512 * 256),
    )


def _electra(
    num_layers: int,
    width: int,
    embedding_width: int,
    generator_size: float,
    lr: float,
    steps: int,
    batch: BatchSettings,
    data: DataSettings,
    masked: float = 0.15,
) -> PretrainSettings:
    return PretrainSettings(
        model=ElectraConfig(**_shape(num_layers, width), embedding_width=embedding_width),
        data=dataclasses.replace(data, layout="pairs", short_sequence_probability=0.05),
        objective=RtdSettings(generator_size=generator_size),
        masking=MaskingSettings(probability=masked, mask_fraction=0.85, random_fraction=0.0),
        optimizer=OptimizerSettings(lr=lr, bias_correction=False),
        schedule=ScheduleSettings(steps=steps, warmup_steps=10_000, decay_in_warmup=True),
        batch=batch,
    )


def _gpt1() -> PretrainSettings:
    """The paper trains for 100 epochs of about a billion tokens and does not give the number of steps."""
    return PretrainSettings(
        model=Gpt1Config(),
        data=FULL_LENGTH,
        objective=ClmSettings(),
        optimizer=OptimizerSettings(lr=2.5e-4, eps=1e-8, weight_decay=0.01),
        schedule=ScheduleSettings(steps=3_000_000, warmup_steps=2000, decay="cosine"),
        batch=BatchSettings(tokens=64 * 512, micro_tokens=MICRO_TOKENS),
    )


def _gpt2(
    num_layers: int,
    width: int,
    num_heads: int,
    lr: float,
    batch_tokens: int = 512 * 1024,
    max_positions: int = 1024,
    dropout: float = 0.1,
) -> PretrainSettings:
    """GPT-2's paper gives only the batch of 512 sequences of 1,024 tokens; the other settings are those of the GPT-3 of
    about the same size: 300 billion tokens, 375 million of them in the warmup, and a final learning rate of a tenth."""
    return PretrainSettings(
        model=Gpt2Config(
            **_shape(num_layers, width, num_heads),
            max_positions=max_positions,
            dropout=dropout,
            attention_dropout=dropout,
            embedding_dropout=dropout,
        ),
        data=DataSettings(length=max_positions, short_fraction=0.0),
        objective=ClmSettings(),
        optimizer=OptimizerSettings(lr=lr, beta2=0.95, eps=1e-8, weight_decay=0.1),
        schedule=ScheduleSettings(
            steps=round(300e9 / batch_tokens),
            warmup_steps=round(375e6 / batch_tokens),
            decay="cosine",
            min_lr_ratio=0.1,
        ),
        batch=BatchSettings(tokens=batch_tokens, micro_tokens=MICRO_TOKENS),
    )


def _gpt_bert(num_layers: int, width: int) -> PretrainSettings:
    """GPT-BERT's objective, sizes and schedule of lengths (Charpentier and Samuel 2024, arXiv 2410.24159, whose
    batches grow and whose blocks differ) in a GPT-2: half of the text is masked, at first 30% of its tokens."""
    settings = _gpt2(num_layers, width, width // 64, 6e-4, max_positions=512)
    return dataclasses.replace(
        settings,
        data=DataSettings(length=512, short_length=128, short_fraction=0.7),
        objective=ClmSettings(mlm_fraction=0.5),
        masking=MaskingSettings(probability=0.3, final_probability=0.15, unit="ngram"),
    )


def _gpt3(num_layers: int, width: int, num_heads: int, batch_tokens: int, lr: float) -> PretrainSettings:
    """Appendix B: batches grow from 32,000 tokens over the first 4 to 12 billion tokens, "depending on the model size";
    here over 4, 8 and 12 billion for the smallest, middle and largest batches. The learning rate decays over 260
    billion."""
    settings = _gpt2(num_layers, width, num_heads, lr, batch_tokens, 2048, 0.0)
    growing_tokens = {BATCH_512K: 4e9, BATCH_3M: 12e9}.get(batch_tokens, 8e9)
    exponent = (batch_tokens - FIRST_TOKENS) / growing_tokens
    growing_steps = math.log(batch_tokens / FIRST_TOKENS) / exponent
    steps, decay_steps = (round(growing_steps + (total - growing_tokens) / batch_tokens) for total in (300e9, 260e9))
    schedule = dataclasses.replace(
        settings.schedule,
        steps=steps,
        warmup_steps=round(math.log1p(375e6 * exponent / FIRST_TOKENS) / exponent),
        decay_fraction=decay_steps / steps,
    )
    batch = dataclasses.replace(settings.batch, first_tokens=FIRST_TOKENS, growth_fraction=growing_steps / steps)
    return dataclasses.replace(settings, schedule=schedule, batch=batch)


def _distilgpt2() -> PretrainSettings:
    """Half of GPT-2's layers. Its weights were published, but not its settings: these are DistilBERT's."""
    small = _gpt2(12, 768, 12, 5e-4)
    return dataclasses.replace(
        small,
        model=dataclasses.replace(small.model, num_layers=6),
        optimizer=dataclasses.replace(small.optimizer, beta2=0.98, weight_decay=0.0, max_grad_norm=5.0),
        schedule=ScheduleSettings(steps=5_000, warmup_steps=250),
    )


def _distilbert() -> PretrainSettings:
    return PretrainSettings(
        model=DistilbertConfig(),
        data=FULL_LENGTH,
        objective=MlmSettings(sentence="none"),
        optimizer=OptimizerSettings(lr=5e-4, beta2=0.98, weight_decay=0.0, max_grad_norm=5.0),
        schedule=ScheduleSettings(steps=5_000, warmup_fraction=0.05),  # about three epochs of Wikipedia and the books
        batch=BatchSettings(tokens=4096 * 512),
    )


PRESETS: dict[str, PretrainSettings] = {
    "bert-tiny": _bert(2, 128),
    "bert-mini": _bert(4, 256),
    "bert-small": _bert(4, 512),
    "bert-medium": _bert(8, 512),
    "bert-base": _bert(12, 768),
    "bert-large": _bert(24, 1024),
    "tinybert-4": _tinybert(4, 312, 1200),
    "tinybert-6": _tinybert(6, 768, 3072),
    "albert-base": _albert(12, 768, 12),
    "albert-large": _albert(24, 1024, 16),
    "albert-xlarge": _albert(24, 2048, 16),  # as released; the paper's one head per 64 units would be 32
    "albert-xxlarge": _albert(12, 4096, 64),
    "roberta-base": _roberta(12, 768, 6e-4, 24_000),
    "roberta-large": _roberta(24, 1024, 4e-4, 30_000),
    "electra-small": _electra(12, 256, 128, 0.25, 5e-4, 1_000_000, BatchSettings(tokens=128 * 128), LENGTH_128),
    "electra-base": _electra(12, 768, 768, 1 / 3, 2e-4, 766_000, BatchSettings(tokens=256 * 512), FULL_LENGTH),
    "electra-large": _electra(24, 1024, 1024, 0.25, 2e-4, 400_000, BatchSettings(tokens=2048 * 512), FULL_LENGTH, 0.25),
    "gpt1-base": _gpt1(),
    "distilgpt2": _distilgpt2(),
    # Not published: the proportions of BERT-tiny and BERT-mini, for a CPU, with the training settings of gpt2-small.
    "gpt2-tiny": _gpt2(2, 128, 2, 6e-4),
    "gpt2-mini": _gpt2(4, 256, 4, 6e-4),
    "gpt2-small": _gpt2(12, 768, 12, 6e-4),
    "gpt2-medium": _gpt2(24, 1024, 16, 3e-4),
    "gpt2-large": _gpt2(36, 1280, 20, 2.5e-4),
    "gpt2-xl": _gpt2(48, 1600, 25, 2e-4),
    "gpt-bert-small": _gpt_bert(12, 384),
    "gpt-bert-base": _gpt_bert(12, 768),
    "gpt3-125m": _gpt3(12, 768, 12, BATCH_512K, 6e-4),
    "gpt3-350m": _gpt3(24, 1024, 16, BATCH_512K, 3e-4),
    "gpt3-760m": _gpt3(24, 1536, 16, BATCH_512K, 2.5e-4),
    "gpt3-1.3b": _gpt3(24, 2048, 16, BATCH_1M, 2e-4),  # the paper has 24 heads, which do not divide 2,048
    "gpt3-2.7b": _gpt3(32, 2560, 32, BATCH_1M, 1.6e-4),
    "gpt3-6.7b": _gpt3(32, 4096, 32, BATCH_2M, 1.2e-4),
    "gpt3-13b": _gpt3(40, 5120, 40, BATCH_2M, 1e-4),  # the paper has a width of 5,140, which its 40 heads do not divide
    "gpt3-175b": _gpt3(96, 12288, 96, BATCH_3M, 6e-5),
    # Only the base size was published; the others have the layers of BERT-tiny and BERT-small.
    "ernie-tiny": _ernie(2, 128),
    "ernie-small": _ernie(4, 512),
    "ernie-base": _ernie(12, 768),
    "distilbert": _distilbert(),
}


def preset(name: str) -> PretrainSettings:
    """The preset of this name, or a `ValueError` with the nearest name."""
    if name not in PRESETS:
        hint = configuration.did_you_mean(name, PRESETS, "use another:")
        raise ValueError(f"there is no preset '{name}'; {hint} 'hornbook pretrain --help' lists all")
    return PRESETS[name]


def presets_of(model_type: str) -> list[str]:
    model = registry.model_class(model_type)
    return [name for name, preset in PRESETS.items() if registry.model_class_of(preset.model) is model]


def preset_settings(name: str, overrides: dict | None = None, has_teacher: bool = False) -> PretrainSettings:
    """The published settings of a preset with overrides by dotted name; with a teacher, for distillation."""
    settings = preset(name)
    if has_teacher:
        settings = dataclasses.replace(settings, objective=DistillationSettings())
    overrides = dict(overrides or {})
    if "schedule.warmup_fraction" in overrides:  # it takes precedence over a published number of warmup steps
        overrides.setdefault("schedule.warmup_steps", None)
    if "data.length" in overrides:  # the sequences of the first part of training are not longer
        length = configuration.with_overrides(settings.data, {"length": overrides["data.length"]}, "data.").length
        overrides.setdefault("data.short_length", min(length, settings.data.short_length))
    settings = with_model_overrides(settings, overrides)
    configuration.refuse_unused(settings, overrides)
    return settings
