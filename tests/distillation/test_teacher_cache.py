"""Cached teacher outputs: a run with them differs from one without only by rounding."""

import dataclasses
import json
import re
import shutil
import signal
from pathlib import Path

import pytest
import torch
from distillation.lessons import ONCE, QUIET, SMALL, rows_of
from finetuning import rules
from forked import status_of
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from hornbook import cli
from hornbook.objectives.distillation.objective import Distillation, DistillationSettings
from hornbook.runs.distillation import teacher_cache
from hornbook.runs.distillation.distill import distill
from hornbook.runs.distillation.teacher import Teacher, open_teacher
from hornbook.runs.distillation.teacher_cache import TeacherCache, open_teacher_cache
from hornbook.runs.finetuning import job as expected
from hornbook.runs.finetuning.finetune import finetune
from hornbook.runs.finetuning.inputs import FinetuneInputs, open_inputs
from hornbook.runs.finetuning.job import TaskBatches, with_teacher
from hornbook.runs.finetuning.layers import with_head
from hornbook.runs.finetuning.record import FinetuneRequest
from hornbook.tasks.objective import TaskObjective
from hornbook.train.runtime import choose_runtime
from hornbook.train.step import bucketed

TASKS = {
    "classification": rules.keyword_pair,
    "multi-label": rules.things_there,
    "regression": rules.count_of_lamps,
    "spans": rules.who_is_where,
    "spans-or-none": rules.place_if_told,
    "tagging": rules.titled_names,
    "choice": rules.choice_with_the_thing,
}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory) -> Path:
    return rules.random_encoder(tmp_path_factory.mktemp("random") / "encoder")


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    return rules.random_encoder(tmp_path_factory.mktemp("random") / "small", "distilbert", **SMALL)


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return rules.write_rows(tmp_path_factory.mktemp("data"), rows_of(rules.keyword_pair, 60), 20)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory, encoder, data) -> Path:
    return finetune(encoder, data, out=tmp_path_factory.mktemp("t") / "run", epochs=1, overrides=ONCE, **QUIET).out


def opened(student: Path, teacher: Path, data: Path, task: str, overrides: dict) -> tuple[FinetuneInputs, Teacher]:
    request = FinetuneRequest(str(student), task, str(data), overrides=ONCE | overrides, teacher=str(teacher))
    opened_teacher = open_teacher(str(teacher))
    return open_inputs(request, data, lambda words: None, teacher=opened_teacher), opened_teacher


def kept_of(inputs: FinetuneInputs, teacher: Teacher, folder: Path, on_progress=lambda status: None) -> TeacherCache:
    inputs = dataclasses.replace(inputs, teacher=teacher)
    return open_teacher_cache(
        inputs, choose_runtime(inputs.settings.runtime, 0.0), folder, on_progress, lambda words: None
    )


@pytest.mark.parametrize("task", TASKS)
def test_losses_are_those_of_a_teacher_that_runs(tmp_path, encoder, small, task):
    """For each stage of every kind of task; in micro-batches, and padded to a bucket. The teacher itself is not
    available."""
    data = rules.write_rows(tmp_path / "data", rows_of(TASKS[task], 40), 10)
    overrides = {"task.no_answer": "classifier"} if task == "spans-or-none" else {}
    teacher_name = finetune(encoder, data, task, tmp_path / "t", epochs=0.1, overrides=ONCE | overrides, **QUIET).out
    overrides |= {"objective.recipe": "tinybert", "objective.cache": "all", "batch.micro_tokens": 100}
    inputs, teacher = opened(small, teacher_name, data, task, overrides)
    kept = kept_of(inputs, teacher, tmp_path)
    head_config = inputs.spec.task.head_config
    batch = TaskBatches(inputs.encoded_train, 7, 0)(1)
    for recipe in inputs.settings.objective.stages(is_task=True):
        student = with_head(inputs.pretrained, head_config, 0)[0].eval()
        pair, plain = with_teacher(student, TaskObjective(head_config), recipe, teacher, 0, None)
        wanted = plain.loss_sums(pair, plain.prepare(batch, 0))
        pair, objective = with_teacher(student, TaskObjective(head_config), recipe, teacher, 0, kept)
        pair._teacher = (None,)
        step_inputs = objective.prepare(batch, 0)
        for name, drawings in {
            "whole": [step_inputs],
            "parts": step_inputs.split(40),
            "bucket": [bucketed(step_inputs, 256)],
        }.items():
            sums = [objective.loss_sums(pair, each) for each in drawings]
            assert len(sums) > 1 or name != "parts"
            for term, value in wanted.items():
                found = sum(each[term] for each in sums)
                torch.testing.assert_close(found, value, rtol=2e-5, atol=1e-6, msg=f"{name} {term}")


@pytest.mark.parametrize(
    ("cache", "recipe", "num_taught"), [("none", "distilbert", 8), ("logits", "distilbert", 0), ("all", "tinybert", 2)]
)
def test_a_run_is_the_same(tmp_path, teacher, small, data, cache, recipe, num_taught, monkeypatch):
    """Weights to 1e-6. With all outputs cached, the teacher runs only on the dev split of the first stage. Steps timed
    before the run do not count."""
    monkeypatch.setattr(expected, "seconds_per_step", lambda *_: 1.0)
    overrides = ONCE | {"objective.cache": cache, "stages.1.epochs": 2}
    keywords = {"task": "classification", "data": data, "recipe": recipe, "epochs": 2, "lr": 1e-4, "batch_size": 10}
    without = overrides | {"objective.cache": "none"}
    plain = distill(teacher, small, tmp_path / "plain", overrides=without, **keywords, **QUIET)
    taught, run = [], Distillation._teacher_pass
    monkeypatch.setattr(Distillation, "_teacher_pass", lambda *arguments: (taught.append(1), run(*arguments))[1])
    result = distill(teacher, small, tmp_path / "run", overrides=overrides, **keywords, **QUIET)
    assert len(taught) == num_taught
    ours, theirs = (load_file(each.out / "model.safetensors") for each in (result, plain))
    for name, value in ours.items():
        torch.testing.assert_close(value, theirs[name], rtol=0, atol=1e-6)
    assert (result.out / "teacher" / "cache.json").exists() == (cache != "none")


def test_one_weight_of_the_teacher(tmp_path, teacher, small, data):
    copy = tmp_path / "copy"
    shutil.copytree(teacher, copy)
    overrides = {"objective.recipe": "minilm", "objective.cache": "logits"}
    inputs, first = opened(small, copy, data, "classification", overrides)
    kept_of(inputs, first, tmp_path / "run")
    assert kept_of(inputs, first, tmp_path / "run").open() > 0
    weights = load_file(copy / "model.safetensors")
    next(iter(weights.values())).view(-1)[0] += 1e-3
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    _, other = opened(small, copy, data, "classification", overrides)
    with pytest.raises(ValueError, match="computed with other teacher: remove that folder"):
        kept_of(inputs, other, tmp_path / "run")
    fewer, _ = opened(small, copy, data, "classification", overrides | {"examples": 20})
    with pytest.raises(ValueError, match="computed with other data"):
        kept_of(fewer, first, tmp_path / "run")


def test_too_much_to_keep(tmp_path, teacher, small, data):
    overrides = {"objective.recipe": "tinybert", "objective.cache": "all", "objective.cache_gigabytes": 1e-6}
    inputs, opened_teacher = opened(small, teacher, data, "classification", overrides)
    with pytest.raises(ValueError, match=r"would take \S+ GB on disk: raise objective.cache_gigabytes"):
        kept_of(inputs, opened_teacher, tmp_path)
    said: list[str] = []
    settings = dataclasses.replace(inputs.settings.objective, cache_gigabytes=1.0)
    inputs = inputs.replaced(settings=dataclasses.replace(inputs.settings, objective=settings))
    runtime = choose_runtime(inputs.settings.runtime, 0.0)
    cache = open_teacher_cache(inputs, runtime, tmp_path, lambda status: None, said.append)
    on_disk = sum(file.stat().st_size for file in cache.folder.glob("*.npy"))
    kilobytes = float(re.search(r"outputs: (\S+) kB in", said[0]).group(1))
    assert kilobytes == pytest.approx(on_disk / 1e3, rel=1e-2)


KILLED = """
import os, sys
from hornbook.runs.distillation.distill import distill
from hornbook.runs.distillation import teacher_cache
teacher, student, data, out, stop = sys.argv[1:]
teacher_cache.BATCHES_BETWEEN_SAVES = 2
def watch(status):
    if "loss" not in status.values and status.step == int(stop):
        os.kill(os.getpid(), 9)
distill(teacher, student, out, task="classification", data=data, recipe="minilm", epochs=2, lr=1e-3, on_progress=watch,
        resume=True, log=lambda words: None, overrides={"runtime.threads": 1, "validation.every_steps": 10_000,
        "objective.cache": "logits", "batch.micro_tokens": 40})
"""


def test_resume_after_kill(tmp_path, teacher, small, data, monkeypatch):
    """With the same bits, and without computing again what was saved."""
    monkeypatch.setattr(teacher_cache, "BATCHES_BETWEEN_SAVES", 2)
    overrides = ONCE | {"objective.cache": "logits", "batch.micro_tokens": 40}
    keywords = {
        "task": "classification",
        "data": data,
        "recipe": "minilm",
        "epochs": 2,
        "lr": 1e-3,
        "overrides": overrides,
    }
    whole = distill(teacher, small, tmp_path / "whole", **keywords, **QUIET).out
    out = tmp_path / "killed"
    for stop in (1, 5):
        assert status_of(KILLED, teacher, small, data, out, stop) == -signal.SIGKILL
    assert json.loads((out / "teacher" / "cache.json").read_text())["done_batches"] == 4
    shown = []
    distill(teacher, small, out, on_progress=shown.append, resume=True, **keywords, **QUIET)
    assert shown[0].step == 5
    for name in ("teacher/groups.npy", "model.safetensors"):
        assert (out / name).read_bytes() == (whole / name).read_bytes()


def test_restarts_share_it(tmp_path, teacher, small, data):
    overrides = ONCE | {"objective.cache": "logits"}
    keywords = {"task": "classification", "data": data, "recipe": "minilm", "epochs": 1, "seeds": 2}
    out = distill(teacher, small, tmp_path / "run", overrides=overrides, **keywords, **QUIET).out
    assert (out / "teacher" / "groups.npy").exists() and not list(out.glob("trials/*/teacher"))


def test_the_flag(tmp_path, teacher, small, data):
    asked = ["distill", str(teacher), "--student", str(small), "--task", "classification", "--data", str(data)]
    asked += ["--recipe", "minilm", "--epochs", "0.2", "--set", "runtime.threads=1"]
    done = CliRunner().invoke(cli.app, [*asked, "--cache-teacher", "logits", "--out", str(tmp_path / "run")])
    assert done.exit_code == 0 and "caching the teacher's outputs" in done.output, (done.output, done.exception)
    wrong = CliRunner().invoke(cli.app, [*asked, "--cache-teacher", "some", "--out", str(tmp_path / "other")])
    assert "objective.cache must be one of none, logits, all" in str(wrong.exception)
    wrong = CliRunner().invoke(
        cli.app, ["distill", str(teacher), "--corpus", "c", "--out", "o", "--cache-teacher", "all"]
    )
    assert "--cache-teacher has no effect with --corpus: leave it out" in str(wrong.exception)
    with pytest.raises(ValueError, match=r"objective\.cache is for tasks"):
        DistillationSettings(cache="logits").stages(is_task=False)
