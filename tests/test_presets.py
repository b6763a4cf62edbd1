"""Presets: each makes a model and has the published training settings, which given settings override."""

import pytest
import torch

from hornbook.models.registry import model_class_of
from hornbook.runs.pretraining.plan import plan
from hornbook.runs.pretraining.presets import PRESETS, preset, preset_settings

PUBLISHED = {  # steps, of them warm-up, sequences of 512 in a batch, rate, share of the steps at 128, dropout
    "bert": (1_000_000, 10_000, 256, 1e-4, 0.9, 0.1),
    "albert": (125_000, 3_125, 4096, 0.00176, 0.0, 0.0),
    "roberta-base": (500_000, 24_000, 8192, 6e-4, 0.0, 0.1),
    "roberta-large": (500_000, 30_000, 8192, 4e-4, 0.0, 0.1),
}


@pytest.mark.parametrize("preset", [name for name in PRESETS if name.startswith(("bert", "albert", "roberta"))])
def test_presets_carry_the_published_training(preset):
    settings = preset_settings(preset)
    steps, warmup, sequences, lr, short_fraction, dropout = PUBLISHED.get(preset) or PUBLISHED[preset.partition("-")[0]]
    assert settings.schedule.steps == steps and settings.batch.tokens == sequences * 512
    share = settings.schedule.warmup_fraction
    assert settings.optimizer.lr == lr and (settings.schedule.warmup_steps or share * steps) == warmup
    assert (settings.data.short_fraction, settings.data.length) == (short_fraction, 512)
    assert settings.data.short_length == 128 or not short_fraction
    assert settings.model.dropout == settings.model.attention_dropout == dropout
    optimizer = settings.optimizer
    family = preset.partition("-")[0]
    assert (optimizer.name, optimizer.bias_correction) == (("lamb", False) if family == "albert" else ("adamw", True))
    assert (optimizer.beta2, optimizer.max_grad_norm) == ((0.98, 0.0) if family == "roberta" else (0.999, 1.0))
    assert (optimizer.eps, optimizer.weight_decay) == (1e-6, 0.01)
    assert settings.masking.unit == ("ngram" if family == "albert" else "token")
    assert settings.objective.sentence == {"bert": "nsp", "albert": "sop", "roberta": "none"}[family]
    assert settings.layout == ("full-sentences" if family == "roberta" else settings.objective.sentence)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_makes_a_model(preset):
    """At its published size, without its memory."""
    config = PRESETS[preset].model
    with torch.device("meta"):
        model = model_class_of(config)(config)
    name = preset.partition("-")[0]
    family = {"gpt1": "openai-gpt", "gpt3": "gpt2", "tinybert": "bert", "distilgpt2": "gpt2", "ernie": "hornbook-ernie"}
    family = "gpt2" if preset.startswith("gpt-bert") else family.get(name, name)
    assert sum(each.numel() for each in model.parameters()) > 4e6 and model.model_type == family


@pytest.mark.parametrize(
    ("preset", "steps", "sequences", "length", "lr", "rate"),
    [
        ("electra-small", 1_000_000, 128, 128, 5e-4, 0.15),
        ("electra-base", 766_000, 256, 512, 2e-4, 0.15),
        ("electra-large", 400_000, 2048, 512, 2e-4, 0.25),
    ],
)
def test_electras_carry_the_published_training(preset, steps, sequences, length, lr, rate):
    settings = preset_settings(preset)
    assert settings.schedule.steps == steps and settings.batch.tokens == sequences * length
    assert {settings.data.length_at(step, steps)[0] for step in (0, steps - 1)} == {length}
    assert (settings.schedule.warmup_steps, settings.schedule.decay_in_warmup) == (10_000, True)
    assert settings.optimizer.lr == lr and not settings.optimizer.bias_correction
    assert (settings.masking.probability, settings.masking.mask_fraction, settings.masking.random_fraction) == (
        rate,
        0.85,
        0.0,
    )
    assert settings.layout == "pairs" and settings.objective.weights == {"mlm": 1.0, "rtd": 50.0}
    assert settings.model.dropout == settings.model.attention_dropout == 0.1


@pytest.mark.parametrize(
    ("preset", "batch_tokens", "length", "lr", "warmup_tokens"),
    [
        ("gpt1-base", 64 * 512, 512, 2.5e-4, 2000 * 64 * 512),
        ("gpt2-tiny", 512 * 1024, 1024, 6e-4, 375e6),
        ("gpt2-mini", 512 * 1024, 1024, 6e-4, 375e6),
        ("gpt2-small", 512 * 1024, 1024, 6e-4, 375e6),
        ("gpt3-125m", 0.5e6, 2048, 6e-4, 375e6),
        ("gpt3-350m", 0.5e6, 2048, 3e-4, 375e6),
        ("gpt3-760m", 0.5e6, 2048, 2.5e-4, 375e6),
        ("gpt3-1.3b", 1e6, 2048, 2e-4, 375e6),
        ("gpt3-2.7b", 1e6, 2048, 1.6e-4, 375e6),
        ("gpt3-6.7b", 2e6, 2048, 1.2e-4, 375e6),
        ("gpt3-13b", 2e6, 2048, 1e-4, 375e6),
        ("gpt3-175b", 3.2e6, 2048, 6e-5, 375e6),
    ],
)
def test_gpts_carry_the_published_training(preset, batch_tokens, length, lr, warmup_tokens):
    settings = preset_settings(preset)
    assert settings.batch.tokens == pytest.approx(batch_tokens, rel=0.05) and settings.optimizer.lr == lr
    assert {settings.data.length_at(step, 100)[0] for step in (0, 99)} == {length} == {settings.model.max_positions}
    steps, is_gpt3 = settings.schedule.steps, preset.startswith("gpt3")
    assert settings.batch.tokens_before(settings.schedule.warmup_steps, steps) == pytest.approx(warmup_tokens, rel=0.01)
    assert settings.batch.first_tokens == (32_768 if is_gpt3 else None)
    if is_gpt3:
        grown, fallen = settings.batch.growth_fraction * steps, round(settings.schedule.decay_fraction * steps)
        assert 3.99e9 < settings.batch.tokens_before(grown, steps) < 12.01e9
        assert settings.batch.tokens_before(fallen, steps) == pytest.approx(260e9, rel=1e-4)
        assert settings.schedule.lr_ratio(fallen) == 0.1 < settings.schedule.lr_ratio(fallen - 1000)
    if preset != "gpt1-base":
        assert settings.batch.mean_tokens * steps == pytest.approx(300e9, rel=1e-4)
    assert settings.schedule.decay == "cosine" and settings.layout == "documents"
    is_first = preset == "gpt1-base"
    assert settings.schedule.lr_ratio(settings.schedule.steps - 1) == pytest.approx(0.0 if is_first else 0.1, abs=1e-6)
    assert (settings.optimizer.beta2, settings.optimizer.weight_decay) == ((0.999, 0.01) if is_first else (0.95, 0.1))


@pytest.mark.parametrize(
    ("preset", "steps", "sequences", "length", "lr", "warmup", "layout"),
    [
        ("distilbert", 5_000, 4096, 512, 5e-4, 0.05, "full-sentences"),
        ("tinybert-4", 300_000, 256, 128, 5e-5, 0.1, "nsp"),
        ("tinybert-6", 300_000, 256, 128, 5e-5, 0.1, "nsp"),
    ],
)
def test_students_carry_the_published_training(preset, steps, sequences, length, lr, warmup, layout):
    settings = preset_settings(preset)
    assert settings.schedule.steps == steps and settings.batch.tokens == sequences * length
    assert {settings.data.length_at(step, steps)[0] for step in (0, steps - 1)} == {length}
    assert (settings.optimizer.lr, settings.schedule.warmup_fraction, settings.layout) == (lr, warmup, layout)
    taught = preset_settings(preset, has_teacher=True)
    assert taught.layout == "full-sentences" and taught.objective.recipe == "distilbert"


@pytest.mark.parametrize(("size", "parameters"), [("tiny", 6_960_768), ("mini", 16_287_488)])
def test_the_smallest_gpts_have_the_proportions_of_the_smallest_berts(size, parameters):
    gpt, bert = (PRESETS[f"{family}-{size}"].model for family in ("gpt2", "bert"))
    for name in ("num_layers", "width", "num_heads", "inner_width"):
        assert getattr(gpt, name) == getattr(bert, name)
    assert plan(f"gpt2-{size}").parameters == parameters


def test_no_sequence_is_longer_than_the_given_length():
    assert max(preset_settings("bert-tiny", {"data.length": "64"}).lengths) == 64
    assert preset_settings("bert-tiny", {"data.length": 256}).lengths == [128, 256]


def test_a_given_warmup_overrides_published_steps():
    settings = preset_settings("electra-small", {"schedule.warmup_fraction": 0.5})
    assert settings.schedule.warmup_steps is None and settings.schedule.warmup_fraction == 0.5
    assert preset_settings("electra-small").schedule.warmup_steps == 10_000
    with pytest.raises(ValueError, match=r"warmup_fraction would have no effect: schedule\.warmup_steps"):
        preset_settings("electra-small", {"schedule.warmup_fraction": 0.5, "schedule.warmup_steps": 7})


def test_error_for_a_setting_of_another_family_names_the_family():
    with pytest.raises(ValueError, match=r"bert has no setting 'model\.sharing'; albert has it"):
        preset_settings("bert-tiny", {"model.sharing": "all"})


def test_an_unknown_name_is_answered_with_the_nearest_one_and_the_list():
    with pytest.raises(ValueError, match=r"no preset 'brt-tiny'; did you mean bert-tiny\? 'hornbook pretrain --help'"):
        preset("brt-tiny")
    with pytest.raises(ValueError, match=r"no preset 'xyzzy'; use another: 'hornbook pretrain --help' lists all$"):
        preset("xyzzy")
