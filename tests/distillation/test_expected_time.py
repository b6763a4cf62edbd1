"""A distillation reports how long it will take before it starts."""

import re
from pathlib import Path

import pytest
from distillation.lessons import ONCE, SMALL
from finetuning import rules
from tiny import TINY_MODEL
from tiny_runs import run, same

from hornbook.runs.distillation.distill import distill
from hornbook.runs.finetuning import job as expected
from hornbook.runs.finetuning.finetune import finetune
from hornbook.runs.pretraining import minutes

QUIET = {"log": lambda words: None}
SHAPE = {f"model.{name}": value for name, value in SMALL.items()} | {"model.num_heads": 4}


def rows() -> list[dict]:
    return [{"text": f"{rules.PLACES[i % 4]} {i}", "label": str(i % 2)} for i in range(40)]


@pytest.fixture(scope="module")
def teacher(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("teacher")
    encoder = rules.random_encoder(folder / "encoder")
    return finetune(encoder, rows(), out=folder / "run", epochs=1, overrides=dict(ONCE), **QUIET).out


def taught(teacher, out, said, **overrides):
    words = {"task": "classification", "data": rows(), "epochs": 1, "log": said.append}
    return distill(teacher, "bert-tiny", out, overrides=ONCE | SHAPE | {"stages.1.epochs": 3} | overrides, **words)


def test_on_a_task_with_each_stage_and_before_the_first(tmp_path, teacher, monkeypatch):
    monkeypatch.setattr(expected, "seconds_per_step", lambda *_: 10.0)
    said: list[str] = []
    taught(teacher, tmp_path / "run", said)
    place = next(i for i, words in enumerate(said) if words.startswith("expected time"))
    # 36 examples in batches of 32: 6 steps, then 2, and a validation on 4 examples after each stage
    assert re.fullmatch(r"expected time: about 1 min 21 s \(stage 1: 1 min 0 s, stage 2: 20 s\)", said[place])
    assert any(words.startswith("stage 1 of 2") for words in said[place:])
    assert not any("recipe='distilbert'" in words for words in said)


def test_a_long_one_names_the_quick_recipe(tmp_path, teacher, monkeypatch):
    monkeypatch.setattr(expected, "seconds_per_step", lambda *_: 1000.0)
    said: list[str] = []
    taught(teacher, tmp_path / "run", said)
    assert any("recipe='distilbert' has one stage on a task, and takes about 34 min" in words for words in said)
    said.clear()
    taught(teacher, tmp_path / "one", said, **{"objective.recipe": "distilbert", "stages.1.epochs": 2})
    assert any("fewer epochs" in words for words in said)


def test_on_plain_text_and_the_weights_do_not_change(tmp_path, tiny_corpus, monkeypatch):
    run(tmp_path / "teacher", tiny_corpus, steps=2)
    words = {"corpora": [tiny_corpus], "steps": 3, "batch_tokens": 512, "overrides": TINY_MODEL}
    said: list[str] = []
    distill(tmp_path / "teacher", "bert-tiny", tmp_path / "run", log=said.append, **words)
    assert any(re.fullmatch(r"expected time: about .* for 3 steps", each) for each in said)
    monkeypatch.setattr(minutes, "mean_seconds_per_step", lambda *_: 3600.0)
    distill(tmp_path / "teacher", "bert-tiny", tmp_path / "unmeasured", log=said.append, **words)
    assert "expected time: about 3 h 18 min for 3 steps" in said
    assert not any("make the run shorter" in each for each in said)  # its length was given
    assert same(tmp_path / "run", tmp_path / "unmeasured")
