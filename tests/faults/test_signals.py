"""Stopped by a signal at any moment, a long command leaves no process behind and no traceback, and resumes to what an
unbroken run gives."""

import os
import random as chance
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bench import ended, last_line
from commands import COMMANDS, Command
from tiny import tiny_text

SIGNALS = {
    "SIGINT": (signal.SIGINT,),
    "SIGTERM": (signal.SIGTERM,),
    "SIGHUP": (signal.SIGHUP,),
    "twice SIGINT": (signal.SIGINT, signal.SIGINT),
}
NUM_MOMENTS = 2
INTERRUPTED_TWICE = """
import os, runpy, signal, time
from hornbook.data.tokenizing import EncodingPool

def interrupt(*_):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)

EncodingPool.submit = EncodingPool.kill = interrupt
runpy.run_module("hornbook", run_name="__main__")
"""
SECONDS_TO_STOP = 30


@pytest.mark.parametrize("command", [each for each in COMMANDS if each.is_long], ids=lambda each: each.name)
def test_stopped_at_any_moment(command: Command, bench, figures):
    whole, _, seconds = bench.unbroken(command)
    draw, failed, tried = chance.Random(command.name), [], 0
    for name, signals in SIGNALS.items():
        for _ in range(NUM_MOMENTS):
            trial, moment = bench.trial(command), draw.random() * seconds
            wrong = _stopped(trial, signals, moment) or trial.resumed(whole)
            if wrong:
                failed.append(f"{name} after {moment:.2f} of {seconds:.2f} s: " + "; ".join(wrong))
            trial.remove()
            tried += 1
    figures("signals", command.name, tried, tried, failed)


def test_a_second_interrupt_prints_one_line(tmp_path, tiny_tokenizer):
    """Semaphores of worker processes are cleaned up without a warning."""
    (tmp_path / "text.txt").write_text("\n\n".join(tiny_text(100, seed) for seed in range(10)), encoding="utf-8")
    words = [
        "corpus",
        "build",
        tmp_path / "text.txt",
        "--tokenizer",
        tiny_tokenizer,
        "--workers",
        "2",
        "--out",
        tmp_path / "out",
    ]
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_TWICE, *words], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (130, "hornbook: stopped\n")


def _stopped(trial, signals: tuple[signal.Signals, ...], moment: float) -> list[str]:
    """What is wrong with how it stopped."""
    process = trial.begin()
    while process.is_alive() and not trial.ready.exists():
        time.sleep(0.005)
    _wait(process, 0.02 + moment)
    for each in signals:
        if process.is_alive() and _leads_a_session(process.pid):
            os.killpg(process.pid, each)  # as a terminal does: to the whole group
        _wait(process, 0.05)
    status = ended(process, SECONDS_TO_STOP)
    if status == 124:
        return [f"it has not stopped within {SECONDS_TO_STOP} seconds"]
    wrong = [f"process {each} is left over" for each in _of_session(process.pid)]
    if "Traceback" in trial.said():
        wrong.append(f"a traceback, status {status}: {last_line(trial.said())}")
    return wrong


def _wait(process, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.is_alive():
        time.sleep(0.005)


def _leads_a_session(pid: int) -> bool:
    try:
        return os.getsid(pid) == pid
    except ProcessLookupError:
        return False


def _of_session(session: int, patience: float = 3.0) -> list[int]:
    """Processes of the session that are still there after a while."""
    until = time.monotonic() + patience
    while True:
        found = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _is_of(pid, session)]
        if not found or time.monotonic() > until:
            return found
        time.sleep(0.05)


def _is_of(pid: int, session: int) -> bool:
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(rest[2]) == session and state != "Z"
    except OSError:
        return False
