"""Distillation on a task: every kind end to end, the gain of a student, resuming after a kill, and errors."""

import dataclasses
import json
import shutil
import signal
from pathlib import Path

import pytest
import torch
import transformers
from distillation.lessons import ONCE, QUIET, SMALL, bytes_of, rows_of
from finetuning import rules
from forked import status_of
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import hornbook
from hornbook import cli
from hornbook.interop.folder import load_folder
from hornbook.runs.distillation.distill import distill
from hornbook.runs.finetuning.finetune import FinetuneResult, finetune
from hornbook.runs.pretraining import presets
from hornbook.text.training import train_tokenizer

NUM_DEV = 100


@pytest.fixture(scope="module")
def encoder(tmp_path_factory) -> Path:
    return rules.random_encoder(tmp_path_factory.mktemp("random") / "encoder")


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    """A student in the shape of DistilBERT: a layer, half as wide."""
    size = SMALL | {"head_dropout": 0.0, "span_head_dropout": 0.0}
    return rules.random_encoder(tmp_path_factory.mktemp("random") / "small", "distilbert", **size)


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return rules.write_rows(tmp_path_factory.mktemp("data"), rows_of(rules.keyword_pair, 600), NUM_DEV)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory, encoder, data) -> FinetuneResult:
    out = tmp_path_factory.mktemp("teacher") / "run"
    return finetune(encoder, data, out=out, epochs=5, lr=3e-3, seed=0, overrides=ONCE, **QUIET)


def learn(teacher: Path, student: Path | str, out: Path, data: Path, task="classification", overrides=None, **more):
    settings = ONCE | {"objective.earlier_epochs": 3} | (overrides or {})
    return distill(teacher, student, out, task=task, data=data, overrides=settings, **{"lr": 3e-3, **QUIET} | more)


@pytest.mark.parametrize("recipe", ["distilbert", "tinybert", "minilm"])
def test_a_student_learns_what_its_teacher_knows(tmp_path, teacher, small, data, recipe):
    assert teacher.score >= 0.98
    before = bytes_of(teacher.out)
    result = learn(teacher.out, small, tmp_path / "run", data, recipe=recipe, epochs=6)
    assert result.score >= 0.95 and result.degenerate is None
    assert bytes_of(teacher.out) == before


def test_more_than_from_few_labels(tmp_path, teacher, small, data):
    """Texts without labels, which the teacher knows an answer for, are worth more than few labels."""
    few = rules.write_rows(tmp_path / "few", rows_of(rules.keyword_pair, 600)[:24] + _dev(data), NUM_DEV)
    alone = finetune(small, few, out=tmp_path / "alone", epochs=60, lr=3e-3, overrides=ONCE, **QUIET)
    wrong = [row | {"label": "no" if i % 2 else "yes"} for i, row in enumerate(rows_of(rules.keyword_pair, 500))]
    unlabelled = rules.write_rows(tmp_path / "unlabelled", wrong + _dev(data), NUM_DEV)
    taught = learn(teacher.out, small, tmp_path / "taught", unlabelled, epochs=6)
    assert taught.score >= 0.95 > alone.score + 0.1


def _dev(data: Path) -> list[dict]:
    return [json.loads(line) for line in (data / "dev.jsonl").read_text().splitlines()]


def test_the_last_stage_starts_where_the_one_before_ended(tmp_path, teacher, small, data):
    """Of which it makes one step only."""
    result = learn(teacher.out, small, tmp_path / "run", data, epochs=0.01)
    folders = (small, tmp_path / "run" / "stages" / "1", result.out)
    start, between, end = (load_file(folder / "model.safetensors") for folder in folders)
    shared = [name for name in between if "transformer" in name and name.endswith("weight")]
    moved = [float((between[name] - start[name.removeprefix("distilbert.")]).abs().max()) for name in shared]
    after = [float((end[name] - between[name]).abs().max()) for name in shared]
    assert min(moved) > 0.01 > 0.004 > max(after)


TASKS = {  # a rule, the task, what is predicted of, the class that opens it
    "classification": (rules.keyword_pair, "the lamp", "SequenceClassification"),
    "multi-label": (rules.things_there, "the lamp", "SequenceClassification"),
    "regression": (rules.count_of_lamps, "the lamp", "SequenceClassification"),
    "spans": (rules.who_is_where, ("Where is Mary?", "Mary went to the office."), "QuestionAnswering"),
    "spans-or-none": (rules.place_if_told, ("Where is Mary?", "Mary is in the office."), "QuestionAnswering"),
    "tagging": (rules.titled_names, "Doctor Woods said hello", "TokenClassification"),
    "choice": (rules.choice_with_the_thing, ("what has that lamp ?", ["the lamp", "two apple"] * 2), "MultipleChoice"),
}


@pytest.mark.parametrize("task", TASKS)
def test_every_kind_of_task(tmp_path, encoder, small, task):
    """A few steps of each stage, by every term; the run is used as a fine-tuned one is."""
    rule, item, kind = TASKS[task]
    data = rules.write_rows(tmp_path / "data", rows_of(rule, 100), 30)
    overrides = ONCE | ({"task.no_answer": "classifier"} if task == "spans-or-none" else {})
    teacher_name = finetune(encoder, data, task, tmp_path / "teacher", epochs=1, overrides=overrides, **QUIET)
    settings = overrides | {"objective.earlier_epochs": 1, "objective.hard_label_weight": 0.5}
    result = learn(teacher_name.out, small, tmp_path / "run", data, task, settings, epochs=1)
    assert result.scores["dev"].keys() == teacher_name.scores["dev"].keys()
    assert len(result.predict([item])) == 1
    record = json.loads((result.out / "run.json").read_text())
    assert (record["command"], record["inputs"]["teacher"]["folder"]) == ("distill", str(teacher_name.out.resolve()))
    first = [json.loads(line) for line in (result.out / "stages" / "1" / "metrics.jsonl").read_text().splitlines()]
    assert {"embeddings", "hidden", "attention"} <= first[0].keys()
    last = [json.loads(line) for line in (result.out / "metrics.jsonl").read_text().splitlines()]
    assert {"logits", "task"} <= last[0].keys()
    opened = getattr(transformers, f"AutoModelFor{kind}").from_pretrained(result.out)
    assert type(opened).__name__ == f"DistilBertFor{kind}"
    page = hornbook.write_report(result.out).read_text()
    assert str(teacher_name.out) in page and "batch.micro_tokens" in page and "batch.tokens" not in page
    assert hornbook.describe(result.out)["teacher"] == str(teacher_name.out)
    assert result.evaluate(data)["splits"]["dev"].keys() == result.scores["dev"].keys()


@pytest.mark.parametrize(
    ("of_teacher", "of_student", "overrides"),
    [("electra", "distilbert", {}), ("bert", "albert", {"embedding_width": 8}), ("roberta", "bert", {})],
)
def test_between_families(tmp_path, data, of_teacher, of_student, overrides):
    projected = {"embedding_width": 16} if of_teacher == "electra" else {}
    large = rules.random_encoder(tmp_path / "large", of_teacher, **projected)
    student = rules.random_encoder(tmp_path / "student", of_student, **SMALL | overrides)
    teacher_name = finetune(large, data, out=tmp_path / "teacher", epochs=0.2, overrides=ONCE, **QUIET)
    faster = {"objective.earlier_epochs": 0.2}
    result = learn(teacher_name.out, student, tmp_path / "run", data, overrides=faster, epochs=0.2)
    assert load_folder(result.out)[0].model_type == of_student


def test_layers_and_separate_pairs(tmp_path, encoder, small):
    """Both texts of a pair are adjacent in a batch; layer-wise learning rates apply to a student too."""
    data = rules.write_rows(tmp_path / "data", rows_of(rules.same_kind, 80), 20)
    overrides = ONCE | {"task.pair_encoding": "separate"}
    teacher_name = finetune(encoder, data, out=tmp_path / "teacher", epochs=1, overrides=overrides, **QUIET)
    decayed = overrides | {"layers.lr_decay": 0.5, "layers.head_lr_ratio": 2.0, "objective.earlier_epochs": 1}
    result = learn(teacher_name.out, small, tmp_path / "run", data, overrides=decayed, epochs=1)
    assert result.scores["dev"]
    with pytest.raises(ValueError, match="its pair_encoding is separate, and the data needs joint"):
        learn(teacher_name.out, small, tmp_path / "other", data)


def test_a_preset_starts_from_the_teacher(tmp_path, teacher, data, monkeypatch):
    found = presets.PRESETS["distilbert"]
    size = {"num_layers": 1, "width": 64, "num_heads": 4, "inner_width": 128}
    tiny = dataclasses.replace(found, model=dataclasses.replace(found.model, **size))
    monkeypatch.setitem(presets.PRESETS, "distilbert", tiny)
    said: list[str] = []
    few = {"objective.earlier_epochs": 0.1}
    result = learn(
        teacher.out, "distilbert", tmp_path / "run", data, overrides=few, epochs=0.1, lr=1e-9, log=said.append
    )
    assert any("is initialised from layer 1 of the teacher and its embeddings" in words for words in said)
    student, taught = load_folder(result.out)[0], load_folder(teacher.out)[0]
    torch.testing.assert_close(student.blocks[0].fc1.weight, taught.blocks[0].fc1.weight, rtol=0, atol=1e-5)
    again = learn(teacher.out, "distilbert", tmp_path / "run", data, overrides=few, epochs=0.1, lr=1e-9, resume=True)
    assert again.scores == result.scores


def test_a_preset_in_another_shape(tmp_path, teacher, small, data):
    shape = {"num_layers": 1, "width": 64, "num_heads": 4, "inner_width": 128}
    named = {f"model.{name}": str(value) for name, value in shape.items()}
    few = named | {"objective.earlier_epochs": 0.1}
    keywords = {"epochs": 0.1, "lr": 3e-3}
    result = learn(teacher.out, "tinybert-4", tmp_path / "run", data, overrides=few, **keywords)
    config = load_folder(result.out)[0].config
    assert {name: getattr(config, name) for name in shape} == shape
    weights = bytes_of(result.out)
    for path in result.out.iterdir():  # as if it had been killed before its first checkpoint
        if path.name != "run.json":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert bytes_of(distill(teacher.out, None, result.out, resume=True, **QUIET).out) == weights != {}
    with pytest.raises(ValueError, match=r"model\.num_layers.* not "):
        learn(
            teacher.out, None, tmp_path / "run", data, overrides=few | {"model.num_layers": 2}, resume=True, **keywords
        )
    with pytest.raises(ValueError, match=r"model\.num_layers cannot be changed, as .*small.* give a preset"):
        learn(teacher.out, small, tmp_path / "other", data, overrides=few)
    with pytest.raises(ValueError, match=r"no setting 'model\.num_layer'; did you mean 'model\.num_layers'"):
        learn(teacher.out, "tinybert-4", tmp_path / "other", data, overrides={"model.num_layer": 2})
    with pytest.raises(ValueError, match=r"bert has no setting 'model\.sharing'; albert has it"):
        learn(teacher.out, "tinybert-4", tmp_path / "other", data, overrides={"model.sharing": "all"})
    with pytest.raises(ValueError, match=r"model\.vocab_size is that of the teacher"):
        learn(teacher.out, "tinybert-4", tmp_path / "other", data, overrides={"model.vocab_size": 99})
    with pytest.raises(ValueError, match=r"model\.max_positions is at most the teacher's \d+"):
        learn(teacher.out, "tinybert-4", tmp_path / "other", data, overrides={"model.max_positions": 100_000})
    assert not (tmp_path / "other").exists()
    words = ["distill", teacher.out, "--student", "tinybert-4", "--task", "classification", "--show", "--json"]
    shown = CliRunner().invoke(cli.app, [*map(str, words), "--set", "model.num_layers=3"])
    assert shown.exit_code == 0 and json.loads(shown.stdout)["model.num_layers"] == 3


HIDDEN = {"quantity": "hidden", "projection": "student-to-teacher"}


@pytest.mark.parametrize("between", [(), ("logits",)], ids=["next", "after another"])
def test_projections_continue_from_plain_text_and_from_stage_to_stage(tmp_path, teacher, small, data, between):
    """Those that fit; others are new."""
    student, ours = shutil.copytree(small, tmp_path / "student"), SMALL["width"]
    theirs = load_folder(teacher.out)[0].config.width
    learned = {"of-hidden.weight": torch.full((theirs, ours), 0.5), "of-hidden.bias": torch.full((theirs,), 0.25)}
    of_another = {"of-embeddings.weight": torch.full((theirs, ours + 8), 0.5), "of-keys.bias": torch.zeros(theirs)}
    save_file(learned | of_another, student / "projections.safetensors")
    first = {"matches": [HIDDEN, HIDDEN | {"quantity": "embeddings"}]}
    stages = [first, *({"matches": [{"quantity": name, "loss": "kl"}]} for name in between), {"matches": [HIDDEN]}]
    overrides = {"objective.earlier_epochs": 1, "optimizer.lr": 1e-12, "optimizer.weight_decay": 0.0}
    said = []
    asked = {"task": "classification", "data": data, "recipe": json.dumps(stages), "epochs": 1, "log": said.append}
    overrides = ONCE | overrides | {"stages.1.optimizer.lr": 1e-3}
    run = distill(teacher.out, student, tmp_path / "run", overrides=overrides, **asked)
    assert [words for words in said if "projections" in words] == [
        "projections of hidden are initialised from those that the student learned earlier",
        "projections of embeddings are newly initialised: the student has none that fit this teacher",
    ]
    folders = run.out / "stages" / "1", run.out
    after_first, after_last = (load_file(folder / "projections.safetensors") for folder in folders)
    moved = (after_first["of-hidden.weight"] - 0.5).abs()
    assert 1e-4 < moved.mean() < 0.1  # a new one would be near 0
    assert after_first["of-embeddings.weight"].mean().abs() < 0.1
    torch.testing.assert_close(after_last["of-hidden.weight"], after_first["of-hidden.weight"], atol=1e-7, rtol=0)


def test_projections_that_cannot_be_read(tmp_path, teacher, small, data):
    student = shutil.copytree(small, tmp_path / "student")
    (student / "projections.safetensors").write_bytes(b"cut off")
    with pytest.raises(ValueError, match=r"projections\.safetensors cannot be read .* or remove it"):
        learn(teacher.out, student, tmp_path / "run", data, recipe="tinybert")
    assert not (tmp_path / "run").exists()
    learn(teacher.out, student, tmp_path / "run", data, recipe="distilbert", epochs=0.1)  # which has none


KILLED = """
import os, sys
from hornbook.runs.distillation.distill import distill
teacher, student, data, out, stop, stage = sys.argv[1:]
def watch(status):
    first = "hidden" in status.values
    if status.step == int(stop) and first == (stage == "1"):
        os.kill(os.getpid(), 9)
distill(teacher, student, out, task="classification", data=data, epochs=1, lr=3e-3, resume=True, on_progress=watch,
        log=lambda words: None, overrides={"runtime.threads": 1, "checkpoint.every_steps": 2,
        "runtime.log_every_steps": 1, "objective.earlier_epochs": 1})
"""


def test_resume_after_kill_is_bit_exact(tmp_path, teacher, small):
    """In either stage."""
    rows = rows_of(rules.keyword_pair, 240)
    data = rules.write_rows(tmp_path / "data", rows, 40)
    overrides = {"checkpoint.every_steps": 2, "runtime.log_every_steps": 1, "objective.earlier_epochs": 1}
    del (settings := ONCE | overrides)["validation.every_steps"]
    keywords = {"task": "classification", "data": data, "epochs": 1, "lr": 3e-3, "overrides": settings, **QUIET}
    whole = distill(teacher.out, small, tmp_path / "whole", **keywords)
    for stage, stop in (("1", 1), ("1", 5), ("2", 1), ("2", 3)):  # the third before the stage has a checkpoint
        words = (teacher.out, small, data, tmp_path / "killed", stop, stage)
        assert status_of(KILLED, *words) == -signal.SIGKILL, (stage, stop)
    said = []
    last = distill(teacher.out, small, tmp_path / "killed", resume=True, **keywords | {"log": said.append})
    assert sum(words.startswith("resuming at step ") for words in said) == 1
    assert bytes_of(whole.out) == bytes_of(last.out) and whole.scores == last.scores
    stages = [bytes_of(each / "stages" / "1") for each in (whole.out, last.out)]
    assert stages[0] == stages[1] and "projections.safetensors" in stages[0]


def test_what_is_refused(tmp_path, teacher, encoder, small, data):
    with pytest.raises(ValueError, match="has no head for a task: fine-tune it first"):
        learn(encoder, small, tmp_path / "run", data)
    other = rules.write_rows(tmp_path / "other", rows_of(rules.same_kind, 60), 20)
    with pytest.raises(ValueError, match="its labels are no, yes, and the data needs other, same"):
        learn(teacher.out, small, tmp_path / "run", other)
    with pytest.raises(ValueError, match=r"was made for another task: its output is sequence"):
        tagged = rules.write_rows(tmp_path / "tagged", rows_of(rules.titled_names, 60), 20)
        learn(teacher.out, small, tmp_path / "run", tagged, "tagging")
    train_tokenizer(["other words"] * 20, vocab_size=60).save(small_copy := _copied(small, tmp_path / "copy"))
    with pytest.raises(ValueError, match=r"the student and the teacher .* different vocabularies"):
        learn(teacher.out, small_copy, tmp_path / "run", data)
    longer = rules.random_encoder(tmp_path / "longer", "distilbert", **SMALL | {"max_positions": 96})
    with pytest.raises(ValueError, match=r"set task\.max_length=48"):
        learn(teacher.out, longer, tmp_path / "run", data)
    with pytest.raises(ValueError, match=r"there is no folder 'tinybert-5'.* did you mean tinybert-\d or tinybert-\d"):
        learn(teacher.out, "tinybert-5", tmp_path / "run", data)
    with pytest.raises(ValueError, match="from_scratch is for a model without a teacher"):
        learn(teacher.out, small, tmp_path / "run", data, from_scratch=True)
    with pytest.raises(ValueError, match=r"small is a folder, and on plain text a student is a preset"):
        distill(encoder, small, tmp_path / "run", corpora=[tmp_path], **QUIET)
    with pytest.raises(ValueError, match=r"there is no file nowhere\.json: check the path"):
        learn(teacher.out, small, tmp_path / "run", data, recipe="nowhere.json")
    for second in ({"quantity": "hidden"}, {"quantity": "hidden", "projection": "student-to-teacher", "layers": "odd"}):
        stages = json.dumps([{"matches": [{"quantity": "logits"}]}, {"matches": [second]}])
        with pytest.raises(ValueError, match=r"cannot be matched with a teacher|layers must be one of"):
            learn(teacher.out, small, tmp_path / "run", data, overrides={"augment.copies": 2}, recipe=stages)
    with pytest.raises(ValueError, match=r"all layers but the last, .* set objective\.without=hidden"):
        one = rules.random_encoder(tmp_path / "one", "bert", **SMALL | {"num_layers": 1, "width": 32})
        learn(teacher.out, one, tmp_path / "run", data, recipe="patient")
    with pytest.raises(ValueError, match=r"objective\.layers='top', but the recipe matches nothing layer by layer"):
        learn(teacher.out, small, tmp_path / "run", data, recipe="distilbert", overrides={"objective.layers": "top"})
    with pytest.raises(ValueError, match=r"GB on disk: raise objective\.cache_gigabytes"):
        room = {"objective.cache": "all", "objective.cache_gigabytes": 1e-6}
        learn(teacher.out, small, tmp_path / "run", data, overrides=room)
    assert not (tmp_path / "run").exists()


def test_a_teacher_of_another_data_set_is_noted(tmp_path, encoder, small, data):
    """SST-2 and CoLA both call their classes 0 and 1."""
    folders = {"sst-2": tmp_path / "SST-2", "cola": tmp_path / "CoLA"}
    for folder in folders.values():
        folder.mkdir()
    rows = [(f"{'good' if i % 2 else 'bad'} film {i}", i % 2) for i in range(20)]
    for split in ("train", "dev"):
        table = "sentence\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows)
        (folders["sst-2"] / f"{split}.tsv").write_text(table)
        table = "".join(f"x\t{label}\t\t{text}\n" for text, label in rows)
        (folders["cola"] / f"{split}.tsv").write_text(table)
    settings = ONCE | {"task.max_length": 16}
    own = finetune(encoder, folders["sst-2"], "sst-2", tmp_path / "own", epochs=1, overrides=settings, **QUIET)
    for name in folders:
        said: list[str] = []
        more = {"epochs": 1, "recipe": "minilm", "log": said.append, "overrides": {"task.max_length": 16}}
        learn(own.out, small, tmp_path / name, folders[name], name, **more)
        noted = [words for words in said if "was fine-tuned on sst-2, and this is cola" in words]
        assert len(noted) == (name == "cola")


def _copied(folder: Path, to: Path) -> Path:
    to.mkdir()
    for name in ("config.json", "model.safetensors"):
        (to / name).write_bytes((folder / name).read_bytes())
    return to


def test_command(tmp_path, teacher, small, data):
    out = str(tmp_path / "run")
    base = ["distill", str(teacher.out), "--student", str(small), "--out", out]
    settings = ["--set", "runtime.threads=1", "--set", "objective.earlier_epochs=0.2"]
    asked = ["--task", "classification", "--data", str(data), "--epochs", "0.2", *settings, "--json"]
    done = CliRunner().invoke(cli.app, base + asked)
    assert done.exit_code == 0, (done.output, done.exception)
    assert "accuracy" in json.loads(done.stdout)["scores"]["dev"]
    again = CliRunner().invoke(cli.app, [*base, *asked[:-1], "--resume"])
    assert again.exit_code == 0 and "in 2 stages" in again.stdout
    assert CliRunner().invoke(cli.app, [*base[:2], "--out", out, "--resume"]).exit_code == 0
    assert "already holds a run" in str(CliRunner().invoke(cli.app, base + asked).exception)
    shown = CliRunner().invoke(
        cli.app, [*base[:4], "--task", "classification", "--recipe", "patient", "--show", "--json"]
    )
    assert json.loads(shown.stdout)["objective.recipe"] == "patient"
    wrong = CliRunner().invoke(cli.app, [*base, "--task", "classification", "--data", str(data), "--steps", "3"])
    assert "--steps has no effect with --task: leave it out" in str(wrong.exception)
    assert "distill needs --corpus, or --task and --data" in str(
        CliRunner().invoke(cli.app, base[:4] + base[4:]).exception
    )
