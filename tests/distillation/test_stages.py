"""What each stage of a recipe on a task is trained with: published, set for the run, or set for one stage."""

import json
import signal
from pathlib import Path

import pytest
from distillation.lessons import ONCE, QUIET, rows_of
from finetuning import rules

from hornbook.report.finetuned import ReportedTaskRun
from hornbook.report.info import describe
from hornbook.report.page import write_report
from hornbook.report.run_files import ReportedRun, read_stages
from hornbook.runs.distillation.distill import distill
from hornbook.runs.finetuning.finetune import finetune
from hornbook.runs.finetuning.published import settings_for
from hornbook.runs.finetuning.settings import FinetuneSettings, TaskDistillationSettings
from hornbook.tasks.datasets import find_task
from hornbook.train.job import Stopped

TINYBERT = {"objective.recipe": "tinybert"}


def resolved(overrides: dict, num_examples: int = 1000) -> TaskDistillationSettings:
    return settings_for(find_task("sst-2"), None, TINYBERT | overrides, True, num_examples)


def run_by(settings: FinetuneSettings) -> tuple[float, float, int]:
    return settings.epochs, settings.optimizer.lr, settings.batch_size


def test_published_stages():
    assert run_by(resolved({}).of_stage(1)) == (20.0, 5e-5, 32)
    assert run_by(resolved({})) == (3.0, 3e-5, 32)
    assert run_by(resolved({}, 100_000).of_stage(1)) == (10.0, 5e-5, 32)


def test_what_the_person_sets():
    """For the run it holds in every stage, but for the epochs; for a stage in that one."""
    whole = resolved({"optimizer.lr": "1e-3", "batch_size": "8", "epochs": "2"})
    assert run_by(whole.of_stage(1)) == (20.0, 1e-3, 8) and run_by(whole) == (2.0, 1e-3, 8)
    one = resolved({"stages.1.optimizer.lr": "1e-3", "stages.1.schedule.warmup_fraction": "0.3", "stages.2.epochs": 7})
    assert run_by(one.of_stage(1)) == (20.0, 1e-3, 32) and run_by(one) == (7.0, 3e-5, 32)
    assert (one.of_stage(1).schedule.warmup_fraction, one.schedule.warmup_fraction) == (0.3, 0.1)
    both = resolved({"objective.earlier_epochs": 4, "stages.1.batch_size": 16})
    assert run_by(both.of_stage(1)) == (4.0, 5e-5, 16)
    own = '[{"matches": [{"quantity": "hidden"}], "settings": {"epochs": 5}}, {"matches": [], "hard_label_weight": 1}]'
    mine = resolved({"objective.recipe": own})
    assert mine.of_stage(1).epochs == 5 and mine.epochs == 3 and mine.optimizer.lr == 5e-5


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("stages.3.epochs", "the recipe has 2 stages"),
        ("stages.1.task.head", "task.head cannot be set per stage"),
        ("stages.1.optimizer.rate", "there is no setting 'optimizer.rate'"),
    ],
)
def test_what_a_stage_has_not(name, words):
    with pytest.raises(ValueError, match=words):
        resolved({name: "1"})


@pytest.fixture(scope="module")
def lesson(tmp_path_factory) -> tuple[Path, Path, Path]:
    """A teacher, a student and data of 40 examples, with 20 for dev."""
    folder = tmp_path_factory.mktemp("lesson")
    encoder = rules.random_encoder(folder / "encoder")
    data = rules.write_rows(folder / "data", rows_of(rules.keyword_pair, 60), 20)
    return finetune(encoder, data, out=folder / "teacher", epochs=1, overrides=ONCE, **QUIET).out, encoder, data


def asked_of(data: Path) -> dict:
    overrides = {"stages.1.epochs": 2, "stages.1.optimizer.lr": 1e-3, "stages.1.batch_size": 10, "optimizer.lr": 1e-4}
    return {"task": "classification", "data": data, "overrides": ONCE | overrides, "epochs": 1}


def test_a_run_of_two_rates(tmp_path, lesson):
    teacher, encoder, data = lesson
    keywords = asked_of(data) | QUIET
    out = distill(teacher, encoder, tmp_path / "run", **keywords).out
    first, last = (_train_lines(folder) for folder in (out / "stages" / "1", out))
    assert (len(first), len(last)) == (8, 2)
    assert max(each["lr"] for each in first) > 5e-4 > 1.01e-4 > max(each["lr"] for each in last)
    assert distill(teacher, encoder, out, resume=True, **keywords).scores


def test_both_stages_are_logged(tmp_path, lesson):
    teacher, encoder, data = lesson
    out = distill(teacher, encoder, tmp_path / "run", **asked_of(data), **QUIET).out
    said = dict(describe(out)["lines"])
    assert said["state"] == "finished after 8 and 2 steps"
    assert said["stage 1"].startswith("embeddings, hidden, attention; 8 steps at learning rate 0.001, ")
    (stage,) = read_stages(out)
    last = ReportedRun.load(out).seconds
    assert ReportedTaskRun.load(out).seconds == last + stage.run.seconds > last
    assert "task" not in stage.run.terms and {"embeddings", "hidden", "attention"} <= set(stage.run.terms)
    page = write_report(out).read_text()
    assert "Stage 1 of 2: embeddings, hidden, attention</h2>" in page and "Stage 2 of 2: logits</h2>" in page
    assert (out / "stages" / "1" / "curves.png").exists()
    card = (out / "README.md").read_text()
    assert "- stage 1: embeddings, hidden, attention; 8 steps" in card


@pytest.mark.parametrize("ema_decay", [0.0, 0.9])
def test_a_stop_in_the_last_step_of_a_stage(tmp_path, lesson, ema_decay):
    """A stop takes effect before the next stage starts, nothing is trained twice, and the next stage starts from the
    weights that were saved."""
    teacher, encoder, data = lesson
    out, said, heard = tmp_path / "run", [], []
    asked = asked_of(data)
    asked["overrides"] = asked["overrides"] | {"optimizer.ema_decay": ema_decay}
    whole = distill(teacher, encoder, tmp_path / "whole", **asked, **QUIET)

    def interrupt(status):
        if status.step == status.num_steps and not heard:
            heard.append(status.step)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Stopped):
        distill(teacher, encoder, out, **asked, log=said.append, on_progress=interrupt)
    assert not any(words.startswith("stage 2") for words in said)
    assert dict(describe(out)["lines"])["state"] == "not finished: after stage 1 of 2"
    said.clear()
    resumed = distill(teacher, encoder, out, resume=True, **asked, log=said.append)
    assert resumed.scores and not any(words.startswith("stage 1") for words in said)
    assert len(_train_lines(out / "stages" / "1")) == 8
    assert (out / "model.safetensors").read_bytes() == (whole.out / "model.safetensors").read_bytes()


def _train_lines(folder: Path) -> list[dict]:
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [each for each in lines if each["kind"] == "train"]
