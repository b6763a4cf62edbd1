"""`distill --show` lists the settings that the run records in `run.json`."""

import json
import random as chance

import pytest
from tiny import ENGLISH
from tiny_runs import run
from typer.testing import CliRunner

from hornbook import cli
from hornbook.files import read_json
from hornbook.interop.folder import load_folder
from hornbook.runs.distillation import task_stages as task_distillation
from hornbook.runs.distillation.distill import distill
from hornbook.runs.finetuning import single_run as task_run
from hornbook.runs.finetuning.finetune import finetune
from hornbook.runs.pretraining import pretrain as text_run

QUIET = {"log": lambda words: None}
SMALL = {"model.num_layers": 1, "model.width": 16, "model.num_heads": 2, "model.inner_width": 64}
STUDENTS = {  # settings besides those of a preset
    "distilbert": {},
    "distilgpt2": {},
    "tinybert-4": {"model.width": 32, "model.num_heads": 2},
    "tinybert-6": {"model.width": 32, "model.num_heads": 2, "model.num_layers": 1},
    "bert-tiny": {"model.num_heads": 2},
    "albert-base": SMALL | {"model.embedding_width": 8},
    "roberta-base": SMALL,
    "electra-small": SMALL | {"model.embedding_width": 8},
    "gpt1-base": SMALL,
    "gpt2-small": SMALL | {"model.width": 32},
    "gpt3-125m": SMALL,
    None: {},
}


class Began(Exception):
    """The run has written what it decided."""


@pytest.fixture(scope="module")
def teachers(tmp_path_factory, tiny_corpus):
    folder, found = tmp_path_factory.mktemp("teachers"), {}
    for family in ("bert", "gpt2"):
        overrides = {"model.num_layers": 2} | ({"model.window": None} if family == "gpt2" else {})
        run(folder / family, tiny_corpus, steps=2, overrides=overrides, family=family)
        found[family, "text"] = folder / family
        found[family, "task"] = folder / f"{family}-task"
        finetune(folder / family, rows(), out=folder / f"{family}-task", epochs=1, **QUIET)
    return found


def rows() -> list[dict]:
    draw = chance.Random(1)
    texts = [" ".join(draw.choices(ENGLISH.split(), k=6)) for _ in range(40)]
    return [{"text": text, "label": "light" if "lantern" in text else "dark"} for text in texts]


@pytest.fixture
def stopped_after_deciding(monkeypatch):
    def began(*_, **__):
        raise Began

    for module in (task_run, task_distillation, text_run):
        monkeypatch.setattr(module, "train", began)
    monkeypatch.setattr(task_run, "planned_flops", lambda *_: 0.0)


@pytest.mark.parametrize("student", STUDENTS)
@pytest.mark.parametrize("kind", ["text", "task"])
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_what_is_shown_is_what_runs(student, kind, family, teachers, tiny_corpus, tmp_path, stopped_after_deciding):
    teacher, data = teachers[family, kind], tmp_path / "rows.jsonl"
    data.write_text("\n".join(map(json.dumps, rows())), encoding="utf-8")
    overrides = (
        STUDENTS[student] | {"data.length": 32, "data.short_length": 32} if kind == "text" else STUDENTS[student]
    )
    overrides = overrides | {"runtime.threads": 1}
    words = ["distill", teacher, "--show", "--json", "--seed", 3]
    words += [] if student is None else ["--student", student]
    for name, value in overrides.items():
        words += ["--set", f"{name}={value}"]
    asked = {"corpora": [tiny_corpus], "tokens": 4000, "batch_tokens": 512}
    on_text = ["--corpus", tiny_corpus, "--tokens", 4000, "--batch-tokens", 512]
    words += on_text if kind == "text" else ["--task", "classification"]
    if kind == "task":
        asked = {"task": "classification", "data": str(data), "epochs": 2.0}
        words += ["--data", data, "--epochs", 2]
    shown = CliRunner().invoke(cli.app, list(map(str, words)))
    try:
        distill(teacher, student, tmp_path / "run", overrides=overrides, seed=3, **asked, **QUIET)
    except ValueError as error:
        assert shown.exit_code and str(error) == str(shown.exception), (shown.output, shown.exception)
        return
    except Began:
        pass
    assert shown.exit_code == 0, (shown.output, shown.exception)
    recorded = flat(read_json(tmp_path / "run" / "run.json")["settings"])
    found = json.loads(shown.output.splitlines()[-1])
    assert found["objective.recipe"] == recorded["objective.recipe"]
    for name, value in found.items():
        if kind == "task" and name.startswith("model."):
            continue  # of the student, which is made in addition to the run
        assert name in recorded and same(value, recorded[name]), (name, value, recorded.get(name))


def flat(settings: dict, before: str = "") -> dict:
    found = {}
    for name, value in settings.items():
        is_group = isinstance(value, dict) and name != "stages"
        found |= flat(value, f"{before}{name}.") if is_group else {before + name: value}
    return found


def same(one, other) -> bool:
    return json.dumps(one) == json.dumps(other)


def test_the_shape_of_a_new_student_on_a_task_is_shown(teachers, tmp_path):
    words = ["distill", teachers["bert", "task"], "--task", "classification", "--show", "--json"]
    shown = CliRunner().invoke(cli.app, list(map(str, words)))
    found = json.loads(shown.output.splitlines()[-1])
    distill(teachers["bert", "task"], None, tmp_path / "run", task="classification", data=rows(), epochs=1, **QUIET)
    config = load_folder(tmp_path / "run")[0].config
    for name in ("num_layers", "width", "num_heads", "inner_width", "vocab_size", "max_positions"):
        assert found[f"model.{name}"] == getattr(config, name)
