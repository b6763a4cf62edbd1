"""Augmented copies in runs: trained on together with the examples, made once, resumed after a kill, refused where they
do not match."""

import json
import shutil
import signal
from pathlib import Path

import pytest
from distillation.lessons import ONCE, QUIET, rows_of
from finetuning import rules
from forked import status_of
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from hornbook import cli
from hornbook.runs.augmentation import stored_copies
from hornbook.runs.augmentation.copies import Augmenter
from hornbook.runs.distillation.distill import distill
from hornbook.runs.finetuning.finetune import finetune

NUM_TRAIN = 40
FEW = ONCE | {"stages.1.epochs": 0.1}


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    return rules.random_encoder(tmp_path_factory.mktemp("base") / "encoder", heads=("mlm",))


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return rules.write_rows(tmp_path_factory.mktemp("data"), rows_of(rules.keyword_pair, NUM_TRAIN + 20), 20)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory, base, data) -> Path:
    return finetune(base, data, out=tmp_path_factory.mktemp("t") / "run", epochs=0.1, overrides=ONCE, **QUIET).out


def learn(teacher: Path, student: Path, data: Path, out: Path, overrides=None, **more):
    keywords = {"task": "classification", "data": data, "epochs": 1, **QUIET} | more
    return distill(teacher, student, out, overrides=FEW | {"augment.copies": 5} | (overrides or {}), **keywords)


def lines(run: Path) -> list[list[dict]]:
    return [json.loads(line) for line in (run / stored_copies.LINES).read_text(encoding="utf-8").splitlines()]


def test_a_student_reads_the_copies_too(tmp_path, teacher, base, data):
    said: list[str] = []
    shown = []
    out = learn(teacher, base, data, tmp_path / "run", log=said.append, on_progress=shown.append).out
    record = json.loads((out / "run.json").read_text())
    num_copies = sum(map(len, lines(out)))
    assert len(lines(out)) == NUM_TRAIN and 3 * NUM_TRAIN < num_copies <= 5 * NUM_TRAIN
    assert (record["train_examples"], record["augmented_examples"]) == (NUM_TRAIN, num_copies)
    steps = record["settings"]["schedule"]["steps"]
    assert steps == -(-(NUM_TRAIN + num_copies) // record["settings"]["batch_size"])
    assert any(f"examples with {base}" in words for words in said)  # what the teacher was fine-tuned from
    assert any((each.step, each.num_steps) == (NUM_TRAIN, NUM_TRAIN) for each in shown)


def test_copies_are_made_once(tmp_path, teacher, base, data, monkeypatch):
    """Shared by all trials of a run, and by a resumed run."""
    made = []
    make = stored_copies.StoredCopies.make
    monkeypatch.setattr(stored_copies.StoredCopies, "make", lambda *arguments: (made.append(1), make(*arguments)))
    keywords = {"seeds": 2, "overrides": ONCE | {"augment.copies": 3}, "epochs": 0.1, **QUIET}
    out = finetune(base, data, out=tmp_path / "run", **keywords).out
    finetune(base, data, out=out, resume=True, **keywords)
    assert made == [1] and len(lines(out)) == NUM_TRAIN


KILLED = """
import os, sys
from hornbook.runs.augmentation import stored_copies
from hornbook.runs.distillation.distill import distill
teacher, student, data, out, stop = sys.argv[1:]
stored_copies.CHUNK = 8
def watch(status):
    if status.num_steps == 40 and status.step == int(stop):
        with open(os.path.join(out, stored_copies.LINES), "a") as file:
            file.write('[]\\n[{"text": "cut sh')
        os.kill(os.getpid(), 9)
distill(teacher, student, out, task="classification", data=data, epochs=1, on_progress=watch, resume=True,
        overrides={"runtime.threads": 1, "augment.copies": 5}, log=lambda words: None)
"""


def test_resume_after_kill_makes_the_same_copies(tmp_path, teacher, base, data, monkeypatch):
    monkeypatch.setattr(stored_copies, "CHUNK", 8)
    whole = learn(teacher, base, data, tmp_path / "whole").out
    out = tmp_path / "killed"
    for stop in (8, 24):
        assert status_of(KILLED, teacher, base, data, out, stop) == -signal.SIGKILL, stop
    with pytest.raises(ValueError, match="already holds a run: add resume=True"):
        learn(teacher, base, data, out)
    shown = []
    learn(teacher, base, data, out, resume=True, on_progress=shown.append)
    assert shown[0].step == 24  # what was done is not done again
    assert (shown[0].unit, shown[-1].unit) == ("augmenting: example", "step")
    assert (out / stored_copies.LINES).read_bytes() == (whole / stored_copies.LINES).read_bytes()
    assert load_file(out / "model.safetensors").keys() == load_file(whole / "model.safetensors").keys()


def test_copies_of_something_else_are_refused(tmp_path, teacher, base, data):
    """By one weight of the model, or by a setting."""
    filler = tmp_path / "filler"
    shutil.copytree(base, filler)
    out = tmp_path / "run"
    learn(teacher, base, data, out, {"augment.model": str(filler)})
    (out / "run.json").unlink()
    with pytest.raises(ValueError, match=r"was made from other replace_probability: remove it and augmented\.json"):
        learn(teacher, base, data, out, {"augment.model": str(filler), "augment.replace_probability": 0.5}, resume=True)
    with open(out / stored_copies.LINES, "a") as file:
        file.write("[]\n")
    with pytest.raises(ValueError, match=r"augmented\.jsonl is damaged .*: remove it and augmented\.json"):
        learn(teacher, base, data, out, {"augment.model": str(filler)}, resume=True)
    weights = load_file(filler / "model.safetensors")
    next(iter(weights.values())).view(-1)[0] += 1
    save_file(weights, filler / "model.safetensors")
    with pytest.raises(ValueError, match="was made from other model"):
        learn(teacher, base, data, out, {"augment.model": str(filler)}, resume=True)


TASKS = {
    "regression": rules.count_of_lamps,
    "tagging": rules.titled_names,
    "choice": rules.choice_with_the_thing,
    "spans": rules.who_is_where,
}


@pytest.mark.parametrize("task", TASKS)
def test_every_kind_of_task(tmp_path, base, task):
    data = rules.write_rows(tmp_path / "data", rows_of(TASKS[task], 40), 10)
    overrides = ONCE | {"augment.copies": 2}
    result = finetune(base, data, task, tmp_path / "run", epochs=0.2, overrides=overrides, **QUIET)
    assert sum(map(len, lines(result.out))) > 30 and result.scores["dev"]


def test_without_a_model_that_fills_in_words(tmp_path, teacher, base, data):
    headless = rules.random_encoder(tmp_path / "headless")
    other = finetune(headless, data, out=tmp_path / "other", epochs=0.1, overrides=ONCE, **QUIET).out
    with pytest.raises(
        ValueError, match=r"has no mlm head .*name a masked-language model for augmentation by augment\.model"
    ):
        learn(other, base, data, tmp_path / "run")
    (other / "run.json").unlink()
    with pytest.raises(ValueError, match=r"fine-tuned from is not known.*augment.model="):
        learn(other, base, data, tmp_path / "run")
    assert learn(other, base, data, tmp_path / "run", {"augment.model": str(base)}).scores


def test_the_flags(tmp_path, teacher, base, data):
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("lamp 1 0\nriver 0 1\n")
    asked = ["distill", str(teacher), "--student", str(base), "--task", "classification", "--data", str(data)]
    options = ["--augment", "2", "--word-vectors", str(vectors), "--augment-model", str(base)]
    settings = [f"--set={name}={value}" for name, value in FEW.items()]
    out = tmp_path / "run"
    done = CliRunner().invoke(cli.app, [*asked, *options, *settings, "--out", str(out), "--epochs", "0.1"])
    assert done.exit_code == 0, (done.output, done.exception)
    kept_settings = json.loads((out / "run.json").read_text())["settings"]["augment"]
    assert (kept_settings["copies"], kept_settings["vectors"]) == (2, str(vectors))
    assert json.loads((out / stored_copies.AUGMENTED).read_text())["vectors"]
    wrong = CliRunner().invoke(cli.app, ["distill", str(teacher), "--corpus", "c", "--out", "o", "--augment", "2"])
    assert "--augment has no effect with --corpus: leave it out" in str(wrong.exception)


def test_ctrl_c_while_copies_are_made(tmp_path, teacher, base, data, monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Augmenter, "changes", interrupted)
    asked = ["distill", str(teacher), "--student", str(base), "--task", "classification", "--data", str(data)]
    settings = [f"--set={name}={value}" for name, value in FEW.items()]
    stopped = CliRunner().invoke(cli.app, [*asked, *settings, "--augment", "2", "--out", str(tmp_path / "run")])
    assert stopped.exit_code == 130
    assert "rerun with --resume" in stopped.output
    assert "augmenting: example 0 of" in stopped.output and "left" not in stopped.output.splitlines()[-2]
