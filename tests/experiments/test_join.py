"""Several processes share the jobs of an experiment or a label curve: none is done twice, and those of a killed
process are taken over."""

import subprocess
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import forked
import pytest
from smallest import write_reviews, write_smallest

from hornbook.evaluation import label_curve as curves
from hornbook.evaluation.experiments.runner import reproduce
from hornbook.evaluation.label_curve import label_curve
from hornbook.files import read_json
from hornbook.lifecycle import job_locks as locking
from hornbook.lifecycle.job_locks import JobLocks

# Notes each result that is written, and each job that begins. A victim sleeps in the middle of its first training.
PROCESS = """
import os, sys, time
import torch
torch.set_num_threads(1)
from hornbook.evaluation.experiments import jobs
from hornbook.lifecycle import job_locks

home, corpus, out, name, what = sys.argv[1:]
job_locks.WAIT_SECONDS = 0.1

def note(text):
    with open(f"{home}/notes", "a") as file:
        file.write(f"{name} {text}\\n")

def noting(path, value, write=jobs.write_json):
    write(path, value)
    if path.parent.name == "jobs":
        note(f"finished {path.stem}")

jobs.write_json = noting

def on_progress(status):
    if name == "victim" and status.step >= 1:
        note("sleeps")
        time.sleep(600)

def log(text):
    print(name, text, flush=True)

if what == "reproduce":
    from hornbook.evaluation.experiments.runner import reproduce
    options = {"join": True, "on_progress": on_progress, "log": log}
    found = reproduce(f"{home}/smallest.toml", [corpus], f"{home}/tasks", out, **options)
    note(f"ended {found.ended} {found.num_done}")
else:
    from hornbook.evaluation import label_curve as curves
    curves.MIN_STEPS = 3
    tidy = curves._Curve.tidy
    curves._Curve.tidy = lambda curve, name: None if not (curve.folder(name) / "model.safetensors").exists() else (
        note(f"finished {name}"), tidy(curve, name))
    options = {"sizes": [8, 16], "methods": ["finetune", "from-scratch"], "seeds": 2}
    options |= {"overrides": {"runtime.threads": 1}, "join": True, "on_progress": on_progress, "log": log}
    curves.label_curve(corpus, f"{home}/tasks/reviews.csv", "classification", out, **options)
    note("ended")
"""


@pytest.fixture
def home(tmp_path):
    write_smallest(tmp_path)
    write_reviews(tmp_path / "tasks")
    (tmp_path / "notes").write_text("")
    return tmp_path


def start(home: Path, corpus: Path, name: str, what: str) -> BaseProcess:
    return forked.begun(PROCESS, home, corpus, home / "out", name, what)


def notes(home: Path) -> list[str]:
    return (home / "notes").read_text().splitlines()


def finished_in(home: Path) -> list[str]:
    return [line.split()[2] for line in notes(home) if line.split()[1] == "finished"]


def run_with_a_victim(home: Path, corpus: Path, what: str) -> None:
    """Two processes, and a third that is killed in the middle of its first training."""
    victim = start(home, corpus, "victim", what)
    deadline = time.monotonic() + 120
    while "victim sleeps" not in notes(home):
        assert victim.exitcode is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    others = [start(home, corpus, name, what) for name in ("first", "second")]
    while len(finished_in(home)) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    victim.kill()
    victim.join()
    for process in others:
        process.join(180)
    assert [process.exitcode for process in others] == [0, 0]


@pytest.mark.faults
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="kills a process")
def test_an_experiment(home, tiny_corpus):
    run_with_a_victim(home, tiny_corpus, "reproduce")
    finished = finished_in(home)
    assert len(finished) == len(set(finished)) == 12
    assert {line for line in notes(home) if " ended " in line} == {
        "first ended finished 12",
        "second ended finished 12",
    }
    assert len({line.split()[0] for line in notes(home) if line.split()[1] == "finished"}) >= 2  # both did some
    results = read_json(home / "out" / "results.json")
    assert results["num_done"] == results["num_jobs"] == 12 and (home / "out" / "report.html").exists()
    assert list((home / "out" / "running").iterdir()) == []
    # The scores are those of one process alone.
    alone = reproduce(home / "smallest.toml", [tiny_corpus], home / "tasks", home / "alone", log=lambda text: None)
    assert alone.results["scores"] == results["scores"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="kills a process")
def test_a_label_curve(home, tiny_run, monkeypatch):
    run_with_a_victim(home, tiny_run, "label-curve")
    finished = finished_in(home)
    assert len(finished) == len(set(finished)) == 8
    curve = read_json(home / "out" / "curve.json")
    assert curve["finished"] and [len(point["seeds"]) for point in curve["points"]] == [2, 2, 2, 2]
    monkeypatch.setattr(curves, "MIN_STEPS", 3)
    options = {
        "sizes": [8, 16],
        "methods": ["finetune", "from-scratch"],
        "seeds": 2,
        "overrides": {"runtime.threads": 1},
    }
    assert label_curve(tiny_run, home / "tasks" / "reviews.csv", "classification", home / "alone", **options) == curve


def test_who_does_not_share_is_refused(home, tiny_corpus):
    arguments = (home / "smallest.toml", [tiny_corpus], home / "tasks", home / "out")
    job_locks = JobLocks(home / "out")
    job_locks.join()
    with (
        job_locks.take("shared-words") as is_mine,
        pytest.raises(ValueError, match=r"add join=True to work with them"),
    ):
        assert is_mine
        reproduce(*arguments, log=lambda text: None)
    with pytest.raises(ValueError, match="start more of those instead of giving processes"):
        reproduce(*arguments, join=True, processes=2)


def test_joining_one_that_does_not_share(tmp_path):
    code = (
        "import sys\nfrom hornbook.lifecycle.locking import run_lock\n"
        f"with run_lock('{tmp_path}/out'):\n    print('locked', flush=True)\n    sys.stdin.read()"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    with pytest.raises(ValueError, match="a process that does not share its runs is writing to"):
        JobLocks(tmp_path / "out").join()
    process.communicate()


def test_a_piece_belongs_to_one(tmp_path, monkeypatch):
    monkeypatch.setattr(locking, "WAIT_SECONDS", 0.01)
    mine, yours, logged = JobLocks(tmp_path), JobLocks(tmp_path), []
    mine.join()
    done = set()

    def missing() -> list[str]:
        return [piece for piece in "abc" if piece not in done]

    with yours.take("a") as is_yours, yours.take("a") as is_again:
        assert is_yours and not is_again
        taken = []
        for piece in mine.share(missing, done.__contains__, lambda: bool(logged), logged.append):
            taken.append(piece)
            done.add(piece)
            with yours.take(piece) as is_yours_too:
                assert not is_yours_too
        assert taken == ["b", "c"] and logged == ["waiting for 1 job of other processes"]
    logged.clear()
    assert list(mine.share(missing, done.__contains__, lambda: bool(done.update("a")), logged.append)) == []


def test_who_does_not_share_has_every_piece_and_leaves_no_locks(tmp_path):
    alone, done = JobLocks(tmp_path, is_shared=False), []
    for piece in alone.share(lambda: (each for each in "abc" if each not in done), done.__contains__, bool, print):
        with alone.wait_for("results"):
            done.append(piece)
    assert done == ["a", "b", "c"] and list(tmp_path.iterdir()) == []
