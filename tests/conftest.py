"""One thread a test process: xdist runs several side by side on few cores."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import json
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from tiny import TINY_MODEL, tiny_text

from hornbook import cli

torch.set_num_threads(1)


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(autouse=True)
def settings_of_the_process():
    """A run sets threads and determinism for its whole process: the next test starts from the usual ones."""
    yield
    torch.set_num_threads(1)
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
    from hornbook.runs.pretraining.run import pretrain

    folder = tmp_path_factory.mktemp("tiny") / "run"
    pretrain(
        "bert-tiny", [tiny_corpus], folder, steps=3, batch_tokens=512, overrides=TINY_MODEL, log=lambda words: None
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
