"""Ctrl-C, SIGTERM and SIGHUP: one line, nothing lost, no traceback and no child left, from the first moment on."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import forked
import pytest
from tiny import TINY_WORDS, tiny_text

from hornbook.lifecycle import stopping
from hornbook.lifecycle.stopping import Signals
from hornbook.train.checkpoint import Checkpoints

AT_IMPORT = """
import os, runpy, signal, sys

class Interrupting:
    def find_spec(name, path=None, target=None):
        if name == "{module}":
            for number in {signals}:
                os.kill(os.getpid(), number)

sys.meta_path.insert(0, Interrupting)
sys.argv[:] = ["hornbook", {command}, "no-model", "a text"]
runpy.run_module("hornbook", run_name="__main__")
"""
COMMAND = """
import multiprocessing, os, sys
from hornbook.__main__ import main

multiprocessing.set_start_method("fork", force=True)  # as in a process that was not forked by a server

screen = os.open(sys.argv.pop(1), os.O_WRONLY | os.O_CREAT)
os.dup2(screen, 1), os.dup2(screen, 2)
sys.stdout = open(1, "w", closefd=False)
{patch}
main()
"""
INTERRUPTED_WHILE_SAVING = """
import signal, time
from hornbook.lifecycle import stopping
from hornbook.train.checkpoint import Checkpoints
from hornbook.lifecycle.stopping import Signals

save = Checkpoints.save

def interrupted(self, step, *rest):
    if step:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    return save(self, step, *rest)

Checkpoints.save = interrupted
"""


@pytest.fixture
def begun():
    """Starts a program in a separate process, which is killed at the end of the test."""
    processes = []

    def start(*words):
        processes.append(forked.begun(*words))
        return processes[-1]

    yield start
    for each in processes:
        each.kill()
        each.join()


def wait_for(is_so, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until, "it has not come to pass in time"
        time.sleep(0.02)


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def children_of(process: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@pytest.mark.parametrize(
    ("module", "names"),
    [("typer", ["SIGINT"] * 3), ("torch", ["SIGINT"]), ("torch", ["SIGHUP"]), ("typer", ["SIGTERM"])],
)
def test_during_imports(module, names):
    signals = [int(getattr(signal, name)) for name in names]
    code = AT_IMPORT.format(module=module, signals=signals, command="'fill-mask'")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "hornbook: stopped\n")


def test_an_ignored_hangup_is_still_ignored():
    """As `nohup hornbook ...` wants it."""
    code = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)" + AT_IMPORT.format(
        module="typer", signals=[int(signal.SIGHUP)], command="'--help'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "Usage" in done.stdout


def pretraining(corpus: Path, run: Path) -> list:
    words = ["pretrain", "bert-tiny", "--corpus", corpus, "--out", run, "--steps", 100_000, *TINY_WORDS]
    return [*words, "--set", "runtime.loader_workers=2"]


def finetuning(model: Path, table: Path, run: Path) -> list:
    table.write_text("text,label\n" + "the river,one\na garden,two\n" * 20)
    return ["finetune", model, "--data", table, "--out", run, "--epochs", 10_000, "--set", "runtime.threads=1"]


@pytest.mark.parametrize("name", ["SIGINT", "SIGHUP"])
def test_training_saves_and_ends(begun, tmp_path, tiny_run, name):
    run, screen = tmp_path / "run", tmp_path / "screen"
    process = begun(COMMAND.format(patch=""), screen, *finetuning(tiny_run, tmp_path / "table.csv", run))
    wait_for(lambda: (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").stat().st_size)
    os.kill(process.pid, getattr(signal, name))
    process.join(60)
    assert process.exitcode == 130
    assert Checkpoints(run).last_step()
    *_, last = screen.read_text().splitlines()
    assert last.startswith("stopped at step") and "Traceback" not in screen.read_text()


def test_a_second_interrupt_ends_training_at_once(begun, tmp_path, tiny_corpus):
    run, screen = tmp_path / "run", tmp_path / "screen"
    process = begun(COMMAND.format(patch=INTERRUPTED_WHILE_SAVING), screen, *pretraining(tiny_corpus, run))
    wait_for(lambda: (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").stat().st_size)
    children = children_of(process.pid)
    assert len(children) >= 2
    os.kill(process.pid, signal.SIGINT)
    process.join(30)
    assert process.exitcode == 130
    *_, last = screen.read_text().splitlines()
    assert last == "hornbook: stopped" and "Traceback" not in screen.read_text()
    wait_for(lambda: not any(map(is_running, children)), 10)


@pytest.mark.parametrize("names", [["SIGHUP"], ["SIGINT", "SIGINT"]])
def test_building_a_corpus(begun, tmp_path, tiny_tokenizer, names):
    text, out, screen = tmp_path / "text.txt", tmp_path / "out", tmp_path / "screen"
    text.write_text("\n\n".join(tiny_text(1000, seed) for seed in range(16)), encoding="utf-8")
    words = ["corpus", "build", text, "--tokenizer", tiny_tokenizer, "--out", out, "--workers", 2]
    process = begun(COMMAND.format(patch=""), screen, *words)
    wait_for(lambda: (out / "progress.json").exists() and len(children_of(process.pid)) >= 2)
    children = children_of(process.pid)
    for name in names:
        with contextlib.suppress(ProcessLookupError):  # the first may have ended it already
            os.kill(process.pid, getattr(signal, name))
        time.sleep(0.05)
    process.join(30)
    assert process.exitcode == 130
    stopped = [line for line in screen.read_text().splitlines() if line.startswith("hornbook: stopped")]
    assert len(stopped) == 1 and "Traceback" not in screen.read_text()
    wait_for(lambda: not any(map(is_running, children)), 10)


ORPHAN = """
import ctypes, multiprocessing, os, sys, time
from pathlib import Path

def work(kind, tokenizer, file):
    if kind == "loader":
        from hornbook.data import loader
        loader._start_worker(0)
    elif kind == "corpus":
        from hornbook.data import tokenizing
        tokenizing._start_worker(Path(tokenizer), {})
    else:
        from hornbook.evaluation.experiments import pool
        pool._start_worker(None)
    Path(file).write_text(str(os.getpid()))
    ctypes.PyDLL(None).sleep(60)  # holds the interpreter, as a long kernel may: no thread watches the parent

multiprocessing.get_context("fork").Process(target=work, args=sys.argv[1:]).start()
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a thread watches the parent")
@pytest.mark.parametrize("kind", ["loader", "corpus", "reproduce"])
def test_workers_end_with_a_killed_parent(begun, tmp_path, tiny_tokenizer, kind):
    process = begun(ORPHAN, kind, tiny_tokenizer, tmp_path / "worker")
    wait_for(lambda: (tmp_path / "worker").exists() and (tmp_path / "worker").read_text())
    worker = int((tmp_path / "worker").read_text())
    time.sleep(0.1)
    process.kill()
    process.join()
    wait_for(lambda: not is_running(worker), 5)


def test_the_first_signal_to_a_training_loop_is_acknowledged_at_once(monkeypatch, capfd):
    monkeypatch.setattr(stopping, "_is_command", True)
    monkeypatch.setattr(stopping, "_was_signalled", False)
    with Signals() as signals:
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.stop == "SIGINT"
        os.kill(os.getpid(), signal.SIGTERM)
    assert capfd.readouterr().err == f"{stopping.STOPPING}\n"


def test_ctrl_c_while_a_module_in_cpp_is_imported(hornbook, monkeypatch):
    """Such modules raise an ImportError because of it; other ones are bugs, and keep their traceback."""
    causes = [KeyboardInterrupt(), OSError()]

    def load(*_, **__):
        raise ImportError("initialization failed") from causes.pop(0)

    monkeypatch.setattr("hornbook.load", load)
    said = hornbook("fill-mask", "A [MASK].")
    assert (said.status, said.out) == (130, "hornbook: stopped\n")
    with pytest.raises(ImportError):
        hornbook("fill-mask", "A [MASK].")
