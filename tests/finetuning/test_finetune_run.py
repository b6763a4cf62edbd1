"""A fine-tuning run as a whole: its files, resuming after any end, several runs, errors."""

import json
import os
import random as chance
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
import rules
from forked import begun, status_of

import hornbook
from hornbook import cli
from hornbook.files import read_json, write_json
from hornbook.interop.folder import read_weights
from hornbook.lifecycle.run_folder import read_metrics
from hornbook.runs.finetuning import inputs, job
from hornbook.runs.finetuning import single_run as running
from hornbook.runs.finetuning.finetune import finetune
from hornbook.runs.finetuning.published import searched_lrs
from hornbook.runs.finetuning.record import FinetuneRequest
from hornbook.train.checkpoint import Checkpoints

QUIET = {"log": lambda words: None}
FAST = {"runtime.threads": 1}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory) -> Path:
    return rules.random_encoder(tmp_path_factory.mktemp("random") / "encoder", dropout=0.1)


def made_up(number: int = 160, seed: int = 1) -> list[dict]:
    draw = chance.Random(seed)
    return [rules.keyword_pair(draw) for _ in range(number)]


def same_weights(one: Path, other: Path) -> bool:
    first, second = read_weights(one), read_weights(other)
    return first.keys() == second.keys() and all(first[name].equal(second[name]) for name in first)


def test_what_a_run_leaves_opens_and_predicts(tmp_path, encoder):
    rows = made_up()
    result = finetune(encoder, rows, out=tmp_path / "run", epochs=2, lr=3e-3, overrides=FAST, **QUIET)
    names = {path.name for path in result.out.iterdir()}
    assert {
        *("run.json", "task.json", "scores.json", "predictions-dev.jsonl", "README.md", "attention.json"),
        *("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "metrics.jsonl"),
    } <= names
    found = result.scores["dev"]["accuracy"]
    assert found["low"] <= found["value"] <= found["high"]
    assert read_json(result.out / "config.json")["id2label"] == {"0": "no", "1": "yes"}
    said = result.predict([row["text"] for row in rows[:5]] + [""])
    assert len(said) == 6 and said.pop() is None and all(each.label in ("yes", "no") for each in said)
    dev = [json.loads(line) for line in (result.out / "predictions-dev.jsonl").read_text().splitlines()]
    assert len(dev) == read_json(result.out / "run.json")["inputs"]["data"]["examples"]["dev"]
    right = sum(row["gold"] == row["label"] for row in dev) / len(dev)
    assert right == pytest.approx(found["value"])


def test_the_best_weights_are_at_the_root(tmp_path, encoder):
    """At this rate the score falls again: the last weights are not the best."""
    overrides = FAST | {"validation.every_steps": 1}
    result = finetune(encoder, made_up(), out=tmp_path / "run", epochs=2, lr=0.1, overrides=overrides, **QUIET)
    lines = [json.loads(line) for line in (result.out / "metrics.jsonl").read_text().splitlines()]
    checks = [line for line in lines if line["kind"] == "validation"]
    best = max(line["accuracy"] for line in checks)
    assert result.score == pytest.approx(best)
    assert same_weights(result.out, result.out / "best")


def test_ends_early_when_nothing_gets_better(tmp_path, encoder):
    overrides = FAST | {"validation.every_steps": 1, "validation.patience": 2, "layers.frozen": -1}
    result = finetune(encoder, made_up(), out=tmp_path / "run", epochs=20, lr=1e-9, overrides=overrides, **QUIET)
    assert result.outcome.ended == "finished early" and result.outcome.step == 3
    again = finetune(
        encoder, made_up(), out=tmp_path / "run", epochs=20, lr=1e-9, overrides=overrides, resume=True, **QUIET
    )
    assert again.outcome.step == 3


KILLED = """
import json, os, sys
from pathlib import Path
from hornbook.runs.finetuning.finetune import finetune
encoder, data, out, stop = sys.argv[1:]
def watch(status):
    if status.step == int(stop):
        os.kill(os.getpid(), 9)
finetune(encoder, data, out=out, epochs=2, lr=3e-3, resume=True, on_progress=watch, log=lambda words: None,
         overrides={"runtime.threads": 1, "checkpoint.every_steps": 2, "runtime.log_every_steps": 1})
"""


def test_resume_after_kill_is_bit_exact(tmp_path, encoder):
    data = rules.write_rows(tmp_path / "data", made_up(), 40)
    overrides = FAST | {"checkpoint.every_steps": 2, "runtime.log_every_steps": 1}
    whole = finetune(encoder, data, out=tmp_path / "whole", epochs=2, lr=3e-3, overrides=overrides, **QUIET)
    for stop in (1, 5, 8):
        assert status_of(KILLED, encoder, data, tmp_path / "killed", stop) == -signal.SIGKILL, stop
        assert not (tmp_path / "killed" / "scores.json").exists()
    last = finetune(
        encoder, data, out=tmp_path / "killed", epochs=2, lr=3e-3, overrides=overrides, resume=True, **QUIET
    )
    assert same_weights(whole.out, last.out)
    assert last.scores == whole.scores
    assert (whole.out / "predictions-dev.jsonl").read_text() == (last.out / "predictions-dev.jsonl").read_text()


@pytest.mark.parametrize(("lr", "num_after"), [(3e-3, 0), (0.1, 1)])
def test_dev_is_looked_at_once_more_only_for_other_weights_than_the_last(tmp_path, encoder, monkeypatch, lr, num_after):
    """With the lower learning rate the last weights are the best, with the higher they are not. In both cases
    predictions are those of the weights at the root."""
    looks, evaluate_split = [], running.evaluate_split
    for module in (job, running):
        monkeypatch.setattr(module, "evaluate_split", lambda *each: looks.append(each) or evaluate_split(*each))
    data = rules.write_rows(tmp_path / "data", made_up(), 40)
    overrides = FAST | {"validation.every_steps": 2}
    result = finetune(encoder, data, out=tmp_path / "run", epochs=2, lr=lr, overrides=overrides, **QUIET)
    checks = [line for line in read_metrics(result.out) if line["kind"] == "validation"]
    assert (result.outcome.best_step == result.outcome.step) == (num_after == 0)
    assert len(looks) == len(checks) + num_after
    before = (result.out / "predictions-dev.jsonl").read_text()
    (result.out / "scores.json").unlink()
    again = finetune(encoder, data, out=tmp_path / "run", epochs=2, lr=lr, overrides=overrides, resume=True, **QUIET)
    assert len(looks) == len(checks) + num_after + 1
    assert again.scores == result.scores and (result.out / "predictions-dev.jsonl").read_text() == before


def test_a_run_that_was_killed_after_training_is_finished(tmp_path, encoder):
    data = rules.write_rows(tmp_path / "data", made_up(), 40)
    result = finetune(encoder, data, out=tmp_path / "run", epochs=1, overrides=FAST, **QUIET)
    for name in ("scores.json", "predictions-dev.jsonl", "task.json", "README.md"):
        (result.out / name).unlink()
    again = finetune(encoder, data, out=tmp_path / "run", epochs=1, overrides=FAST, resume=True, **QUIET)
    assert again.scores == result.scores and (result.out / "README.md").exists()


def test_a_run_that_was_killed_at_its_very_end_is_cleaned_up(tmp_path, encoder):
    words = {"data": made_up(), "out": tmp_path / "run", "epochs": 1, "overrides": FAST, **QUIET}
    finetune(encoder, **words)
    last = Checkpoints(tmp_path / "run").last()
    (last / "optimizer.safetensors").write_bytes(b"not yet removed")
    (tmp_path / "run" / "README.md").unlink()
    finetune(encoder, **words, resume=True)
    assert [path.name for path in last.iterdir()] == ["state.json"] and (tmp_path / "run" / "README.md").exists()


COMMAND = """
import os, sys
log = os.open(sys.argv.pop(1), os.O_WRONLY | os.O_CREAT)
os.dup2(log, 1), os.dup2(log, 2)
from hornbook.cli import main
main()
"""


def test_ctrl_c_saves_and_prints_how_to_resume(tmp_path, encoder):
    data = rules.write_rows(tmp_path / "data", made_up(400), 40)
    log, metrics = tmp_path / "log", tmp_path / "run" / "metrics.jsonl"
    words = ["finetune", encoder, "--data", data, "--out", tmp_path / "run", "--epochs", 200]
    process = begun(COMMAND, log, *words, "--set", "runtime.threads=1")
    while not metrics.exists() or "train" not in metrics.read_text():
        assert process.is_alive(), log.read_text()
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    process.join(60)
    assert process.exitcode == 130 and "rerun with --resume" in log.read_text()
    assert list((tmp_path / "run" / "checkpoints").glob("step-*/optimizer.safetensors"))


def test_restarts_keep_the_best_and_change_only_the_seed(tmp_path, encoder):
    result = finetune(
        encoder, made_up(), out=tmp_path / "run", epochs=1, lr=3e-3, seeds=3, seed=5, overrides=FAST, **QUIET
    )
    trials = read_json(result.out / "trials.json")
    assert [each["seed"] for each in trials["trials"]] == [5, 6, 7]
    scores = [each["score"] for each in trials["trials"]]
    assert trials["median"] == sorted(scores)[1] and trials["spread"] >= 0
    best = next(each for each in trials["trials"] if each["name"] == trials["best"])
    assert best["score"] == result.score == max(scores)
    assert same_weights(result.out, result.out / best["folder"])
    weights = [read_weights(result.out / each["folder"]) for each in trials["trials"]]
    assert not weights[0]["classifier.weight"].equal(weights[1]["classifier.weight"])
    before = {
        each["name"]: (result.out / each["folder"] / "scores.json").stat().st_mtime_ns for each in trials["trials"]
    }
    finetune(
        encoder, made_up(), out=tmp_path / "run", epochs=1, lr=3e-3, seeds=3, seed=5, overrides=FAST, resume=True,
        **QUIET,
    )  # fmt: skip
    after = {
        each["name"]: (result.out / each["folder"] / "scores.json").stat().st_mtime_ns for each in trials["trials"]
    }
    assert before == after  # what is finished is not run again


def test_a_preset_is_not_a_model(tmp_path):
    with pytest.raises(ValueError, match="bert-tiny is a preset, not a model: pre-train it first"):
        finetune("bert-tiny", [{"text": "a", "label": "b"}], out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_name_of_a_preset_and_of_a_model_on_the_hub_is_the_model(tmp_path, encoder, monkeypatch):
    asked = []
    monkeypatch.setattr(inputs, "model_folder", lambda name: asked.append(name) or Path(encoder))
    inputs.check_request(FinetuneRequest.of("roberta-base", None, "classification"))
    assert asked == ["roberta-base"]


def test_rates_of_a_search_are_four_and_higher_for_narrow_models(tmp_path, encoder):
    assert searched_lrs(768) == [5e-5, 4e-5, 3e-5, 2e-5]
    assert searched_lrs(256) == [4.5e-4, 3.6e-4, 2.7e-4, 1.8e-4]
    assert searched_lrs(32) == [1e-3, 8e-4, 6e-4, 4e-4]
    with pytest.raises(ValueError, match="leave out lr_search= or lr="):
        finetune(encoder, made_up(), out=tmp_path / "run", lr=1e-4, lr_search=True, overrides=FAST, **QUIET)
    with pytest.raises(ValueError, match=r"leave out lr_search= or the setting optimizer\.lr"):
        overrides = FAST | {"optimizer.lr": 1e-4}
        finetune(encoder, made_up(), out=tmp_path / "run", lr_search=True, overrides=overrides, **QUIET)
    assert not (tmp_path / "run").exists()


def test_a_search_tries_the_four_rates(tmp_path, encoder):
    result = finetune(encoder, made_up(), out=tmp_path / "run", epochs=1, lr_search=True, overrides=FAST, **QUIET)
    trials = read_json(result.out / "trials.json")
    assert trials["kind"] == "lr_search" and len({each["lr"] for each in trials["trials"]}) == 4
    assert len(trials["trials"]) == len({each["lr"] for each in trials["trials"]})
    assert result.score == max(each["score"] for each in trials["trials"])


def test_a_degenerate_run_is_called_so(tmp_path, encoder):
    overrides = FAST | {"layers.frozen": -1}
    result = finetune(encoder, made_up(), out=tmp_path / "run", epochs=4, lr=1e-9, overrides=overrides, **QUIET)
    assert "did not move" in result.degenerate or "for every input" in result.degenerate
    assert result.degenerate in (result.out / "README.md").read_text()


def test_a_fine_tuned_model_goes_through_another_task(tmp_path, encoder):
    first = finetune(encoder, made_up(), out=tmp_path / "first", epochs=1, lr=3e-3, overrides=FAST, **QUIET)
    pairs = [rules.named_word(chance.Random(i)) for i in range(120)]
    overrides = FAST | {"layers.frozen": -1}
    second = finetune(first.out, pairs, out=tmp_path / "second", epochs=1, overrides=overrides, **QUIET)
    before, after = read_weights(first.out), read_weights(second.out)
    assert all(before[name].equal(after[name]) for name in before if name.startswith("bert."))
    assert not before["classifier.weight"].equal(after["classifier.weight"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"task": "clasification"}, "did you mean classification"),
        ({"overrides": {"optimizer.rate": "1"}}, "did you mean"),
        ({"overrides": {"layers.frozen": 9}}, "the model has 2 layers"),
        ({"epochs": 0}, "epochs must be above 0"),
        ({"seeds": 0}, "seeds must be at least 1"),
        ({"text": "txet"}, "txet"),
        ({"overrides": {"task.head": "tower"}}, "must be one of"),
        ({"overrides": {"task.pair_encoding": "separate"}}, "pairs of texts"),
    ],
)
def test_what_it_refuses(tmp_path, encoder, arguments, words):
    with pytest.raises(ValueError, match=words):
        finetune(encoder, made_up(40), **({"out": tmp_path / "run"} | QUIET | arguments))
    assert not (tmp_path / "run" / "run.json").exists()


def test_other_data_or_another_request_is_not_gone_on_with(tmp_path, encoder):
    finetune(encoder, made_up(60), out=tmp_path / "run", epochs=1, overrides=FAST, **QUIET)
    with pytest.raises(ValueError, match="already holds a run"):
        finetune(encoder, made_up(60), out=tmp_path / "run", epochs=1, overrides=FAST, **QUIET)
    with pytest.raises(ValueError, match=r"epochs is 1.0, not 2.0"):
        finetune(encoder, made_up(60), out=tmp_path / "run", epochs=2, overrides=FAST, resume=True, **QUIET)
    with pytest.raises(ValueError, match="the data in memory is not what"):
        finetune(encoder, made_up(60, seed=2), out=tmp_path / "run", epochs=1, overrides=FAST, resume=True, **QUIET)


def test_resume_needs_only_the_folder(tmp_path, encoder):
    """Settings that are not given again are taken from the record; 0 counts as given."""
    overrides = FAST | {"examples": 64, "task.max_length": 16}
    whole = finetune(encoder, made_up(), out=tmp_path / "run", epochs=1, seed=5, overrides=overrides, **QUIET)
    (whole.out / "scores.json").unlink()
    for folder in (whole.out / "checkpoints").iterdir():
        shutil.rmtree(folder)
    again = finetune(encoder, made_up(), out=tmp_path / "run", resume=True, **QUIET)
    assert again.outcome.step == whole.outcome.step == 2
    assert again.scores == whole.scores
    some = {"optimizer.lr": read_json(whole.out / "run.json")["settings"]["optimizer"]["lr"], "examples": "64"}
    finetune(encoder, made_up(), out=tmp_path / "run", overrides=some, resume=True, **QUIET)
    with pytest.raises(ValueError, match=r"other settings: runtime\.seed is 5, not 0; leave these options out"):
        finetune(encoder, made_up(), out=tmp_path / "run", seed=0, resume=True, **QUIET)
    with pytest.raises(ValueError, match=r"task\.max_length is 16, not 32"):
        finetune(encoder, made_up(), out=tmp_path / "run", overrides={"task.max_length": "32"}, resume=True, **QUIET)


def test_resume_takes_the_path_of_the_data_from_the_record(tmp_path, encoder):
    write_json(tmp_path / "data.json", made_up(40))
    with pytest.raises(ValueError, match=r"keep_at has step 99, but schedule\.steps="):
        options = {"epochs": 1, "overrides": FAST | {"checkpoint.keep_at": (99,)}}
        finetune(encoder, tmp_path / "data.json", out=tmp_path / "run", **options, **QUIET)
    whole = finetune(encoder, tmp_path / "data.json", out=tmp_path / "run", epochs=1, overrides=FAST, **QUIET)
    assert finetune(out=tmp_path / "run", resume=True, **QUIET).scores == whole.scores


def test_a_wrong_column_does_not_take_the_folder(tmp_path, encoder):
    with pytest.raises(ValueError, match="txet"):
        finetune(encoder, made_up(40), out=tmp_path / "run", text="txet", seeds=2, **QUIET)
    result = finetune(encoder, made_up(40), out=tmp_path / "run", seeds=2, epochs=1, overrides=FAST, **QUIET)
    assert (result.out / "trials.png").exists()
    again = finetune(encoder, made_up(40), out=tmp_path / "run", resume=True, **QUIET)
    assert again.scores == result.scores
    with pytest.raises(ValueError, match="seeds is 2, not 3"):
        finetune(encoder, made_up(40), out=tmp_path / "run", seeds=3, resume=True, **QUIET)


def test_restarts_count_from_the_seed_that_was_set(tmp_path, encoder):
    overrides = FAST | {"runtime.seed": 3}
    result = finetune(encoder, made_up(60), out=tmp_path / "run", seeds=2, epochs=1, overrides=overrides, **QUIET)
    assert [each["seed"] for each in read_json(result.out / "trials.json")["trials"]] == [3, 4]


def test_questions_without_an_answer_are_not_scored_where_there_must_be_one(tmp_path, encoder):
    def question(answer: str) -> dict:
        return {"question": "Where is Mary ?", "context": "Mary is in the garden .", "answer": answer}

    data = tmp_path / "data"
    data.mkdir()
    for name, rows in {
        "train": [question("garden")] * 8,
        "dev": [question("garden")] * 3 + [question("")],
        "test": [question("garden"), question("")],
    }.items():
        (data / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    said = []
    result = finetune(encoder, data, "spans", tmp_path / "run", epochs=1, overrides=FAST, log=said.append)
    assert {"dev", "test"} <= result.scores.keys()
    assert any("1 examples of dev" in words for words in said)


def test_one_class_is_nothing_to_learn(tmp_path, encoder):
    rows = [{"text": row["text"], "label": "same"} for row in made_up(40)]
    with pytest.raises(ValueError, match="add examples of other classes"):
        finetune(encoder, rows, out=tmp_path / "run", **QUIET)


def test_classes_that_look_like_numbers_are_pointed_out(tmp_path, encoder):
    rows = [{"text": row["text"], "score": str(i / 7)} for i, row in enumerate(made_up(40))]
    said = []
    finetune(encoder, rows, out=tmp_path / "run", label="score", epochs=1, overrides=FAST, log=said.append)
    assert any("task='regression'" in words for words in said)


def test_predicting_refuses_what_is_no_text(tmp_path, encoder, capsys, monkeypatch):
    result = finetune(encoder, made_up(60), out=tmp_path / "run", epochs=1, overrides=FAST, **QUIET)
    (tmp_path / "texts.txt").write_text("lamp\n\napple\n", encoding="utf-8")

    def verb(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hornbook", *map(str, words)])
        try:
            cli.main()
            status = 0
        except SystemExit as ended:
            status = ended.code or 0
        told = capsys.readouterr()
        return status, told.out, told.err

    status, _, error = verb("predict", result.out, tmp_path / "texts.txt")
    assert status == 2 and "--file" in error
    status, out, _ = verb("predict", result.out, "--file", tmp_path / "texts.txt", "--json")
    assert status == 0 and len(json.loads(out)["predictions"]) == 3
    for words, said in (
        (("lamp", "--file", tmp_path / "texts.txt"), "a text has no effect with --file: leave it out"),
        (
            ("--data", "reviews.csv"),
            "--data needs --submission: to predict the rows of a file, use --file",
        ),
        (("lamp", "--submission", tmp_path / "to"), "a text has no effect with --submission"),
    ):
        status, _, error = verb("predict", result.out, *words)
        assert status == 2 and said in error
    status, _, log = verb("predict", result.out, "lamp ||| apple", "lamp")
    assert status == 0 and "trained on single texts, but 1 of these inputs" in log
    others = [{"text": row["text"], "label": "maybe"} for row in made_up(10)]
    predicted = []
    with pytest.raises(ValueError, match="none of the labels of the data"):
        hornbook.load_predictor(result.out).evaluate(others, on_progress=predicted.append)
    assert not predicted


def test_the_public_names(tmp_path, encoder):
    assert hornbook.finetune.__wrapped__ is finetune
    assert hornbook.load_predictor and hornbook.probe and hornbook.baseline and hornbook.label_curve
