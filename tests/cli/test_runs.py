"""`hornbook runs`: what there is, and checkpoints that nothing needs."""

import shutil
import threading
from pathlib import Path

import pytest
from tiny import TINY_WORDS
from tiny_runs import run as pretrain_run
from tiny_runs import same

from hornbook.files import read_json, write_json
from hornbook.lifecycle.locking import run_lock
from hornbook.report.run_list import find_runs
from hornbook.runs.finetuning.finetune import finetune
from hornbook.train.checkpoint import Checkpoints
from hornbook.train.job import Stopped

ROWS = [{"text": f"the {word} of {i}", "label": word} for i in range(20) for word in ("river", "bread")]


@pytest.fixture
def runs(tmp_path, tiny_corpus, tiny_run):
    """A finished pre-training run, one that was stopped, and a fine-tuned one."""
    folder = tmp_path / "runs"
    shutil.copytree(tiny_run, folder / "first")
    with pytest.raises(Stopped):
        pretrain_run(folder / "group" / "stopped", tiny_corpus, on_progress=lambda status: status.step == 5)
    finetune(tiny_run, ROWS, out=folder / "task", epochs=1, overrides={"runtime.threads": 1}, log=lambda words: None)
    return folder


def test_the_list(hornbook, runs):
    found = {each["folder"]: each for each in hornbook("runs", runs, "--json").answer["runs"]}
    assert set(found) == {str(runs / name) for name in ("first", "group/stopped", "task")}
    first, stopped, task = (found[str(runs / name)] for name in ("first", "group/stopped", "task"))
    assert (first["what"], first["state"], first["step"]) == ("bert-tiny, published recipe, seed 0", "finished", 3)
    assert first["result"].startswith("loss ") and first["result"].endswith(" (mlm + nsp)") and first["bytes"] > 10_000
    assert (stopped["state"], stopped["step"], stopped["num_steps"]) == ("stopped", 5, 12)
    assert task["what"].startswith("classification from ") and task["result"].startswith("accuracy ")
    lines = hornbook("runs", runs).stdout.splitlines()
    assert lines[0].split() == ["run", "what", "state", "result", "steps", "size", "age"]
    assert [line.split()[0] for line in lines[1:]] == ["first", "group/stopped", "task"]


def test_a_sweep_is_finished_when_all_its_trials_are(hornbook, tmp_path, tiny_run):
    def summary():
        assert hornbook("info", tmp_path).status == 0
        return hornbook("runs", tmp_path, "--json").answer["runs"][0]

    settings = {"epochs": 1, "lr_search": True, "overrides": {"runtime.threads": 1}, "log": lambda words: None}
    with pytest.raises(Stopped):  # in the first trial
        finetune(tiny_run, ROWS, out=tmp_path, on_progress=lambda status: True, **settings)
    assert (summary()["what"], summary()["state"]) == ("learning rates or seeds", "stopped")
    with pytest.raises(Stopped):  # in the second
        has_trial = (tmp_path / "trials.json").exists
        finetune(tiny_run, ROWS, out=tmp_path, resume=True, on_progress=lambda status: has_trial(), **settings)
    assert (summary()["what"], summary()["state"]) == ("learning rates or seeds", "stopped")
    finetune(tiny_run, ROWS, out=tmp_path, resume=True, **settings)
    assert summary()["what"].startswith("classification from ") and summary()["state"] == "finished"


def test_the_result_is_the_metric_for_best(hornbook, runs):
    scores = read_json(runs / "task" / "scores.json")
    write_json(runs / "task" / "scores.json", scores | {"metric_for_best": "macro_f1"})
    (found,) = hornbook("runs", runs / "task", "--json").answer["runs"]
    assert found["result"].startswith("macro F1 ")


def test_a_report_does_not_make_a_run_younger(hornbook, runs):
    def modified():
        return hornbook("runs", runs / "first", "--json").answer["runs"][0]["modified"]

    before = modified()
    assert hornbook("report", runs / "first").status == 0
    assert modified() == before


@pytest.mark.parametrize("method", ["is_file", "iterdir"])
def test_folders_that_cannot_be_read_are_left_out(tmp_path, monkeypatch, method):
    """Such as lost+found, at the top of a disk: only root may look into it."""
    for name in ("lost+found", "first"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").touch()
    unpatched = getattr(Path, method)
    if method == "iterdir":
        (tmp_path / "lost+found" / "run.json").unlink()

    def refuse(path):
        if "lost+found" in path.parts:
            raise PermissionError(13, "Permission denied", str(path))
        return unpatched(path)

    monkeypatch.setattr(Path, method, refuse)
    assert find_runs(tmp_path) == [tmp_path / "first"]


def test_files_that_disappear_meanwhile(hornbook, runs):
    """As those that a running run writes do."""
    is_over, files = threading.Event(), [runs / "first" / f"{number}.tmp" for number in range(100)]

    def write_and_remove():
        while not is_over.is_set():
            for file in files:
                file.touch()
            for file in files:
                file.unlink()

    writer = threading.Thread(target=write_and_remove)
    writer.start()
    try:
        for _ in range(10):
            assert len(hornbook("runs", runs, "--json").answer["runs"]) == 3
    finally:
        is_over.set()
        writer.join()


def test_one_that_another_process_writes(hornbook, runs):
    with run_lock(runs / "first"):
        (first, *_) = hornbook("runs", runs, "--json").answer["runs"]
        assert first["state"] == "running"
        assert hornbook("runs", "clean", runs, "--json").answer["freed"] == {}


def test_a_damaged_one_is_listed(hornbook, runs):
    (runs / "first" / "run.json").write_text("{")
    (first, *_) = hornbook("runs", runs, "--json").answer["runs"]
    assert first["state"] == "unreadable" and "run.json" in first["result"]


def test_clean(hornbook, runs, tiny_run):
    before = sorted(runs.rglob("*"))
    first, stopped = runs / "first", runs / "group" / "stopped"
    promised = hornbook("runs", "clean", runs, "--dry-run", "--json").answer
    assert sorted(runs.rglob("*")) == before
    assert set(promised["freed"]) == {str(first)}, "the fine-tuned run has no checkpoint left to remove"
    size = {each["folder"]: each["bytes"] for each in hornbook("runs", runs, "--json").answer["runs"]}[str(first)]
    said = hornbook("runs", "clean", runs)
    assert "freed in 1 run" in said.stdout
    (now, *_) = hornbook("runs", runs, "--json").answer["runs"]
    assert size - now["bytes"] == promised["bytes"] > 10_000 and now["state"] == "finished"
    assert same(first, tiny_run) and not list(first.rglob("optimizer.safetensors"))
    assert list(stopped.rglob("optimizer.safetensors")), "it can still be resumed"
    assert hornbook("runs", "clean", runs, "--json").answer["bytes"] == 0


def test_a_cleaned_run_is_still_finished(hornbook, runs, tiny_corpus):
    first = runs / "first"
    hornbook("runs", "clean", runs)
    (first / "samples.json").unlink()
    said = hornbook("pretrain", "bert-tiny", "--corpus", tiny_corpus, "--out", first, "--resume", "--json")
    assert said.answer["ended"] == "already finished", said
    assert (first / "samples.json").exists() and hornbook("report", first).status == 0


def test_a_finished_fine_tuning_keeps_no_checkpoint(runs, tiny_run):
    task = runs / "task"
    assert [path.name for path in Checkpoints(task).last().iterdir()] == ["state.json"]
    weights = [path for path in task.rglob("*.safetensors") if path.parent.name != "best"]
    assert weights == [task / "model.safetensors"]
    again = finetune(tiny_run, ROWS, out=task, resume=True, log=lambda words: None)
    assert again.outcome.ended == "finished" and again.predict(["the river"])
    (task / "scores.json").unlink()
    assert finetune(tiny_run, ROWS, out=task, resume=True, log=lambda words: None).scores == again.scores


def test_no_runs(hornbook, complaint, tmp_path):
    assert "there are no runs" in hornbook("runs", tmp_path).stderr
    assert "is not a folder" in complaint("runs", tmp_path / "none")


def test_vectors_of_a_graph_are_listed(hornbook, tmp_path):
    folder = tmp_path / "runs" / "vectors"
    folder.mkdir(parents=True)
    record = {"command": "graph embed", "request": {"graph": "capitals"}, "settings": {"model": "transe", "width": 8}}
    write_json(folder / "run.json", record)
    (listed,) = hornbook("runs", tmp_path / "runs", "--json").answer["runs"]
    assert (listed["what"], listed["state"], listed["result"]) == ("vectors of capitals", "stopped", "")
    scores = {"epochs": 2, "seconds": 1.5, "entities_without_vector": 0}
    scores["test"] = {"mrr": 0.25, "hits@1": 0.1, "hits@3": 0.3, "hits@10": 0.5}
    write_json(folder / "scores.json", scores)
    (listed,) = hornbook("runs", tmp_path / "runs", "--json").answer["runs"]
    assert (listed["state"], listed["result"]) == ("finished", "mrr 0.25")


def test_a_run_that_ends_above_its_unigram_baseline_says_so(hornbook, tiny_corpus, tmp_path):
    words = ["pretrain", "bert-tiny", "--corpus", tiny_corpus, "--out", tmp_path / "run", *TINY_WORDS, "--steps", 1]
    assert "is above the unigram baseline (" in hornbook(*words).stderr


@pytest.mark.parametrize(("epochs", "advice"), [(0.5, "more --epochs first, as this run had 0.5"), (1, "--seeds 5")])
def test_the_advice_after_a_run_that_learned_nothing(hornbook, tiny_run, tmp_path, epochs, advice):
    lines = [f"{row['text']}\t{row['label']}" for row in ROWS]
    (tmp_path / "rows.tsv").write_text("text\tlabel\n" + "\n".join(lines))
    words = ["finetune", tiny_run, "--data", tmp_path / "rows.tsv", "--out", tmp_path / "run", "--lr", 1e-9]
    said = hornbook(*words, "--epochs", epochs).stderr
    assert f"; try {advice}" in said and "degenerate" not in said
