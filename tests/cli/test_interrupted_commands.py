"""Ctrl-C: a command stops with one sentence, and what was done stays."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny import tiny_text

from hornbook.train.job import Outcome, Stopped

RUN = "from hornbook.__main__ import main; main()"


def interrupted(words: list, is_time: Callable[[int], bool]) -> tuple[int, str]:
    """Starts a command and sends Ctrl-C as a terminal does once `is_time(process id)`; its status and stderr."""
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, *map(str, words)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        began = time.monotonic()
        while not is_time(process.pid) and process.poll() is None and time.monotonic() - began < 30:
            time.sleep(0.02)
        time.sleep(0.2)
        os.killpg(process.pid, signal.SIGINT)
        _, error = process.communicate(timeout=30)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, error


@pytest.fixture(scope="module")
def long_text(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("long") / "long.txt"
    text = tiny_text(1000)
    file.write_text("\n\n".join(text.replace(".", f" {number}.") for number in range(16)), encoding="utf-8")
    return file


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_stopping_tokenizer_train(tmp_path, long_text, kind):
    words = ["tokenizer", "train", long_text, "--out", tmp_path / "out", "--kind", kind]
    status, error = interrupted(words, lambda process: len(os.listdir(f"/proc/{process}/task")) > 1)
    assert status == 130
    assert re.fullmatch(r"hornbook: stopped.*\n", error)
    assert not (tmp_path / "out").exists()


def test_stopping_corpus_build(hornbook, complaint, tmp_path, long_text, tiny_tokenizer):
    out = tmp_path / "out"
    words = ["corpus", "build", long_text, "--tokenizer", tiny_tokenizer, "--out", out, "--workers", 1]
    status, error = interrupted(words, lambda process: (out / "progress.json").exists())
    assert status == 130
    assert re.fullmatch(r"hornbook: stopped.* run the same command again.*\n", error)
    assert not (out / "manifest.json").exists()
    assert hornbook("info", out, "--json").answer["kind"] == "unfinished corpus"
    assert "is an unfinished corpus" in complaint("pretrain", "bert-tiny", "--corpus", out, "--out", tmp_path / "run")


def test_stopping_pretrain(hornbook, tmp_path, pretraining):
    run = tmp_path / "run"
    timer = threading.Thread(target=_interrupt_once_there, args=(run / "metrics.jsonl",))
    timer.start()
    said = hornbook(*pretraining, "--steps", 100_000, "--json")
    timer.join()
    assert said.status == 130
    assert "rerun with --resume" in said.out
    assert said.answer["ended"] == "stopped"
    step = said.answer["step"]
    assert json.loads((run / "checkpoints" / f"step-{step:08d}" / "state.json").read_text())["step"] == step
    note = f"note: {run} is not finished: its weights are those of step {step:,} of 100,000"
    rows = [{"text": f"the river {number}", "label": "ab"[number % 2]} for number in range(20)]
    (tmp_path / "rows.json").write_text(json.dumps(rows), encoding="utf-8")
    learn = ["finetune", run, "--data", tmp_path / "rows.json", "--out", tmp_path / "out", "--set", "examples=8"]
    for command in (["fill-mask", run, "the [MASK]"], [*learn, "--epochs", 1]):
        said = hornbook(*command)
        assert said.status == 0 and said.error.count(note) == 1


def _interrupt_once_there(file: Path) -> None:
    began = time.monotonic()
    while not (file.exists() and file.stat().st_size) and time.monotonic() - began < 30:
        time.sleep(0.02)
    if file.exists():
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("name", ["baseline", "probe", "label_curve"])
def test_stopping_a_comparison(hornbook, tmp_path, monkeypatch, name):
    """Commands without --resume, which continue when they are run again."""

    def stopped(*_, **more):
        raise Stopped(Outcome("stopped", 3, 99, 1.0, {}, None))

    folder = "" if name == "label_curve" else "baselines."
    monkeypatch.setattr(f"hornbook.evaluation.{folder}{name}.{name}", stopped)
    first = "majority" if name == "baseline" else "en"
    said = hornbook(name.replace("_", "-"), first, "--data", "reviews.csv", "--out", tmp_path / "out", "--json")
    assert said.status == 130 and (said.answer["ended"], said.answer["step"]) == ("stopped", 3)
    assert f"stopped at step 3 and saved in {tmp_path / 'out'}; rerun the command to resume" in said.out
