"""One thread a test process: xdist runs several side by side on few cores."""

import os

import fewer_collections  # noqa: F401

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import gc
import io
import json
import signal
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
import typer.main
from forked import do_not_wait_for_the_disk, do_without_onednn, draw_fewer_resamples, start_server
from matplotlib.figure import Figure
from tiny import TINY_MODEL, tiny_text

from hornbook import cli

# The commands of the tests would ignore these signals if `nohup make test &` does.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
torch.set_num_threads(1)
do_without_onednn()
draw_fewer_resamples()
do_not_wait_for_the_disk()

# Typer builds all commands again at each call, which takes longer than most of the calls in these tests.
typer.main.get_command = cache(typer.main.get_command)

# The files with the longest tests begin, so that processes side by side end together.
FIRST = (
    *("test_readme.py", "test_equal_curves.py", "test_reproduce.py", "test_demo.py", "test_export.py"),
    "test_comparison.py",
    *("test_learning.py", "test_gpt_tasks.py", "test_distill_task.py", "test_distill_corpus.py"),
    *("test_loop.py", "test_stopping.py", "test_build_resume.py"),
)


def pytest_ignore_collect(collection_path, config) -> bool | None:
    """Folders whose tests are all left out (`-m "not gpu"`) are not read."""
    wanted = config.option.markexpr or ""
    return True if collection_path.name in ("gpu", "faults") and f"not {collection_path.name}" in wanted else None


def pytest_collection_modifyitems(items) -> None:
    ranks = {name: rank for rank, name in enumerate(FIRST)}
    items.sort(key=lambda item: ranks.get(item.path.name, len(FIRST)))


def pytest_collection_finish() -> None:
    """What was imported and collected stays: no garbage collection needs to look at it again."""
    gc.collect()
    gc.freeze()


# Laying out and rendering the pictures of a report takes longer than the run it tells of. So figures are made as they
# always are, but only tests marked `pictures` render them; the files of the others are blank.
_savefig, _is_rendered = Figure.savefig, False


@cache
def _blank() -> bytes:
    file = io.BytesIO()
    _savefig(Figure(), file, format="png")
    return file.getvalue()


def _rendered_where_marked(figure: Figure, file: io.BytesIO, **how) -> None:
    if _is_rendered:
        _savefig(figure, file, **how)
    else:
        file.write(_blank())


Figure.savefig = _rendered_where_marked


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    global _is_rendered
    _is_rendered = item.get_closest_marker("pictures") is not None
    return (yield)


@pytest.fixture(scope="session", autouse=True)
def fork_server() -> None:
    start_server()


@pytest.fixture(scope="session")
def fast_exporter() -> None:
    """At each export, torch reads the definitions of all ONNX operators again, which takes a second."""
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    ONNXRegistry.from_torchlib = staticmethod(cache(ONNXRegistry.from_torchlib))


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(autouse=True)
def settings_of_the_process():
    """A run sets threads and determinism for its whole process: the next test starts from the usual ones."""
    yield
    torch.set_num_threads(1)
    if torch.are_deterministic_algorithms_enabled():  # without, the call would still import torch's compiler
        torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="session")
def tiny_text_file(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("texts") / "tiny.txt"
    file.write_text(tiny_text(200), encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def tiny_tokenizer(tmp_path_factory) -> Path:
    """The folder of a wordpiece tokenizer of about 200 tokens; do not write into it."""
    from hornbook.text.training import train_tokenizer

    folder = tmp_path_factory.mktemp("tiny") / "tokenizer"
    train_tokenizer(tiny_text(200).split("\n\n"), vocab_size=200).save(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_corpus(tmp_path_factory, tiny_tokenizer, tiny_text_file) -> Path:
    """The folder of a corpus of 200 documents; do not write into it."""
    from hornbook.data.build import build_corpus

    folder = tmp_path_factory.mktemp("tiny") / "corpus"
    build_corpus(tiny_text_file, tiny_tokenizer, folder, workers=0)
    return folder


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory, tiny_corpus) -> Path:
    """The folder of a finished run of three steps; do not write into it."""
    from hornbook.runs.pretraining.pretrain import pretrain

    folder = tmp_path_factory.mktemp("tiny") / "run"
    pretrain(
        "bert-tiny",
        [tiny_corpus],
        folder,
        steps=3,
        batch_tokens=512,
        recipe="published",
        overrides=TINY_MODEL,
        log=lambda words: None,
    )
    return folder


class Said(NamedTuple):
    status: int
    stdout: str
    stderr: str

    @property
    def out(self) -> str:
        """Everything a person sees on a terminal: the log and the result."""
        return self.stderr + self.stdout

    @property
    def error(self) -> str:
        """The error message, without the log before it; all of stderr where there is none."""
        _, found, message = f"\n{self.stderr}".partition("\nhornbook: ")
        return f"hornbook: {message}" if found else self.stderr

    @property
    def answer(self) -> dict:
        """The JSON object that `--json` printed: stdout holds nothing else."""
        return json.loads(self.stdout)


@pytest.fixture
def hornbook(monkeypatch, capsys):
    """Runs the command with these arguments; returns its exit status and what it printed."""

    def run(*words) -> Said:
        monkeypatch.setattr(sys, "argv", ["hornbook", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return Said(ended.value.code or 0, said.out, said.err)

    return run
