"""Extreme values of every setting are taken or refused in one sentence. All are resolved here and some are run;
`tests/faults/test_settings.py` runs all of them."""

import random

import pytest
from extremes import cases, fault_of, refusal_fault
from tiny import TINY_MODEL

from hornbook.runs.finetuning.published import settings_for
from hornbook.runs.pretraining.presets import PRESETS, preset_settings
from hornbook.runs.pretraining.pretrain import pretrain
from hornbook.tasks.datasets import find_task

RESOLVED = {
    **{
        preset: lambda overrides, preset=preset: preset_settings(preset, overrides)
        for preset in ("bert-tiny", "albert-base", "roberta-base", "electra-small", "gpt1-base", "gpt2-small")
    },
    "distilbert from a teacher": lambda overrides: preset_settings("distilbert", overrides, has_teacher=True),
    "finetune": lambda overrides: settings_for(find_task("mrpc"), None, overrides),
    "distill on a task": lambda overrides: settings_for(find_task("mrpc"), None, overrides, has_teacher=True),
}


@pytest.mark.parametrize("kind", RESOLVED)
def test_extreme_settings_are_taken_or_refused_in_a_sentence(kind):
    resolve = RESOLVED[kind]
    faults = [
        f"{name}={value[:20]} {fault}"
        for name, value in cases(resolve({}))
        if (fault := refusal_fault(lambda name=name, value=value: resolve({name: value})))
    ]
    assert not faults, f"{len(faults)} faults:\n" + "\n".join(faults[:8])


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("model.width", "1e18", "model.width must be at least 1 and at most"),
        ("model.init_std", "-1", "model.init_std must be above 0, not -1"),
        ("runtime.threads", "1e18", "runtime.threads must be at least 0 and at most"),
        ("runtime.loader_workers", "1e18", "runtime.loader_workers must be at least -1 and at most"),
        ("checkpoint.every_minutes", "inf", "checkpoint.every_minutes must be at least 0 and at most"),
        ("optimizer.eps", "nan", "optimizer.eps must be a number, not 'nan'"),
    ],
)
def test_what_is_out_of_range_is_named(name, value, words):
    with pytest.raises(ValueError, match=f"^{words}"):
        preset_settings("bert-tiny", {name: value})


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"model.width": 2**20, "model.num_heads": 2**14}, "parameters of this model need .* GiB, but cpu has"),
        ({"model.num_layers": 10_000, "model.width": 8192, "model.num_heads": 64}, "parameters of this model need"),
        ({"model.max_positions": 2**20, "model.width": 2**16}, "lower model.num_layers, model.width"),
    ],
)
def test_a_model_that_no_memory_holds_is_refused_before_it_is_made(tmp_path, tiny_corpus, overrides, words):
    with pytest.raises(ValueError, match=words):
        pretrain("bert-tiny", tiny_corpus, tmp_path / "run", steps=1, overrides=TINY_MODEL | overrides)
    assert not (tmp_path / "run").exists()


def test_some_extreme_settings_are_run(tmp_path, tiny_corpus):
    accepted = []
    for name, value in cases(preset_settings("bert-tiny", TINY_MODEL)):
        try:
            preset_settings("bert-tiny", TINY_MODEL | {name: value})
        except ValueError:
            continue
        accepted.append((name, value))
    for number, (name, value) in enumerate(random.Random(0).sample(accepted, 5)):
        overrides = TINY_MODEL | {"batch.tokens": 512, "schedule.steps": 1} | {name: value}
        out = tmp_path / str(number)
        fault = fault_of(
            lambda out=out, overrides=overrides: pretrain("bert-tiny", tiny_corpus, out, overrides=overrides), 60
        )
        assert fault is None, f"{name}={value[:20]} {fault}"


def test_every_preset_is_within_the_ranges():
    for preset in PRESETS:
        preset_settings(preset)
