"""One process at a time writes a run, a corpus or an experiment."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import hornbook as library
from hornbook.data.build import build_corpus
from hornbook.lifecycle import locking
from hornbook.lifecycle.locking import file_lock, run_lock
from hornbook.runs.finetuning.finetune import finetune
from hornbook.runs.pretraining.pretrain import pretrain

HOLDS = """
import sys, time
from hornbook.lifecycle.locking import run_lock
with run_lock(sys.argv[1]):
    print("in", flush=True)
    time.sleep(60)
"""
FORKS = HOLDS.replace('print("in", flush=True)', "import os; child = os.fork(); child and print(child, flush=True)")


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(locking, "WAIT_SECONDS", 0.2)


def started(code: str, folder) -> subprocess.Popen:
    process = subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    return process


def test_another_process_is_refused_until_it_ends(tmp_path, at_once):
    process = started(HOLDS, tmp_path)
    try:
        with (
            pytest.raises(ValueError, match=f"another process is writing to {tmp_path}: wait until it ends"),
            run_lock(tmp_path),
        ):
            pass
        with run_lock(tmp_path / "other"):
            pass
    finally:
        process.kill()
        process.wait()
    with run_lock(tmp_path):
        pass
    with run_lock(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []  # it leaves nothing, nor a folder that stayed empty


def test_a_holder_that_is_stopping_is_waited_for(tmp_path):
    process = started(HOLDS.replace("60", "0.5"), tmp_path)
    with run_lock(tmp_path):
        pass
    process.wait()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_that_outlives_its_parent_holds_nothing(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", FORKS, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    child = int(process.stdout.readline())
    process.kill()
    process.wait()
    try:
        os.kill(child, 0)  # it is there
        with run_lock(tmp_path):
            pass
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_file_system_without_locks_refuses_nothing(tmp_path, monkeypatch):
    import fcntl

    def fail(*_):
        raise OSError("no locks here")

    monkeypatch.setattr(fcntl, "flock", fail)
    with run_lock(tmp_path):
        pass


def test_who_is_within_may_enter_again(tmp_path, at_once):
    out = tmp_path / "new" / "run"
    with run_lock(out):
        with run_lock(tmp_path / "new" / ".." / "new" / "run"):
            pass
        refused = []

        def enter() -> None:
            try:
                with run_lock(out):
                    pass
            except ValueError as error:
                refused.append(error)

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        assert len(refused) == 1
    assert list(tmp_path.iterdir()) == []


def test_one_that_is_refused_leaves_the_folder_to_the_holder(tmp_path, at_once, monkeypatch):
    """Also where both saw that there is no folder yet, and each made it."""
    out, processes, mkdir = tmp_path / "new" / "run", [], Path.mkdir

    def late(path, *words, **more) -> None:
        if path == out and not processes:
            processes.append(started(HOLDS, out))
        mkdir(path, *words, **more)

    monkeypatch.setattr(Path, "mkdir", late)
    try:
        with pytest.raises(ValueError, match="another process is writing"), run_lock(out):
            pass
        assert out.is_dir()
    finally:
        processes[0].kill()
        processes[0].wait()


def test_a_folder_that_its_holder_removes_is_made_again(tmp_path):
    """The one that waits has opened a folder that is gone by the time it gets the lock."""
    out, waits = tmp_path / "run", []

    def wait() -> None:
        with run_lock(out):
            waits.append(out.is_dir())

    thread = threading.Thread(target=wait)
    with run_lock(out):
        thread.start()
        time.sleep(0.3)
    thread.join()
    assert waits == [True]
    assert not out.exists()


COMMANDS = {
    "pretrain": lambda out: library.pretrain("bert-tiny", ["no-corpus"], out),
    "finetune": lambda out: library.finetune("no-model", "no-data", out=out),
    "finetune --task text": lambda out: library.finetune_text("no-model", "no-data", out),
    "distill": lambda out: library.distill("no-teacher", None, out, corpora=["no-corpus"]),
    "prompt": lambda out: library.prompt("no-model", "no-task", "no-data", out),
    "probe": lambda out: library.probe("no-model", "no-data", "classification", out),
    "baseline": lambda out: library.baseline("tfidf", "no-data", "classification", out),
    "baseline from-scratch": lambda out: library.baseline(
        "from-scratch", "no-data", "classification", out, model="no-model"
    ),
    "label-curve": lambda out: library.label_curve("no-model", "no-data", "classification", out),
    "reproduce": lambda out: library.reproduce("no-experiment", ["no-corpus"], "no-data", out),
    "export": lambda out: library.export("no-model", out),
    "compare": lambda out: library.compare(["no-model"], out=out),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_that_writes_a_folder_locks_it_first(tmp_path, at_once, name):
    """Before it reads or opens anything: what it is given here is not there."""
    with held_by_another_thread(tmp_path / "out"):
        with pytest.raises(ValueError, match="another process is writing"):
            COMMANDS[name](tmp_path / "out")
        assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("words", [["train", "{text}"], ["extend", "{tokenizer}", "{text}"]])
def test_vocabularies_are_written_by_one(hornbook, tmp_path, at_once, words, tiny_text_file, tiny_tokenizer):
    words = [each.format(text=tiny_text_file, tokenizer=tiny_tokenizer) for each in words]
    with held_by_another_thread(tmp_path / "out"):
        said = hornbook("tokenizer", *words, "--out", tmp_path / "out")
    assert said.status == 2 and "another process is writing" in said.error


def test_a_file_of_features_is_written_by_one(tmp_path, at_once):
    out = tmp_path / "vectors.npy"
    with held_by_another_thread(tmp_path / ".vectors.npy.lock"):
        for name in (out, tmp_path / "vectors"):  # both are vectors.npy
            with pytest.raises(ValueError, match=f"another process is writing to {out}"):
                library.extract_features("no-model", ["a text"], name)
        with pytest.raises(ValueError, match="no-model"):
            library.extract_features("no-model", ["a text"], tmp_path / "others.npy")
    assert list(tmp_path.iterdir()) == []


@contextlib.contextmanager
def held_by_another_thread(folder):
    is_held, is_over = threading.Event(), threading.Event()

    def hold() -> None:
        with run_lock(folder):
            is_held.set()
            is_over.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    is_held.wait()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_copies_and_answers_are_made_by_one(tmp_path, at_once):
    """The lock is taken before anything is created for a run, not at its first step."""
    out, data = tmp_path / "run", tmp_path / "data.csv"
    data.write_text("text,label\n" + "the river,one\na garden,two\n" * 8)
    process = started(HOLDS, out)
    try:
        with pytest.raises(ValueError, match="another process is writing"):
            finetune(tmp_path / "no-model", data, out=out, overrides={"augment.copies": 1}, log=lambda words: None)
    finally:
        process.kill()
        process.wait()
    assert list(out.iterdir()) == []


def test_what_is_written_by_one(tmp_path, at_once, tiny_text_file, tiny_tokenizer, tiny_corpus):
    changes = {"data.length": 32, "data.short_length": 32, "batch.tokens": 64, "runtime.threads": 1}
    changes |= {"validation.tokens": 64}

    def build(out):
        build_corpus(tiny_text_file, tiny_tokenizer, out, workers=0)

    def train(out):
        pretrain("bert-tiny", [tiny_corpus], out, steps=1, overrides=changes, resume=True, log=lambda words: None)

    for write, whole in ((build, "manifest.json"), (train, "model.safetensors")):
        out = tmp_path / whole
        process = started(HOLDS, out)
        try:
            with pytest.raises(ValueError, match="another process is writing"):
                write(out)
        finally:
            process.kill()
            process.wait()
        assert not (out / whole).exists()
        write(out)
        assert (out / whole).exists()


def test_the_lock_of_a_file_left_by_a_killed_process_is_removed(tmp_path):
    (tmp_path / ".out.npy.lock").mkdir()
    with file_lock(tmp_path / "out.npy"):
        pass
    assert not list(tmp_path.iterdir())
