"""Verbs that are told what is wrong, or asked to train."""

import pytest
from tiny import TINY_WORDS


@pytest.fixture
def complaint(hornbook):
    """Runs what is wrong; gives the one sentence that is said about it."""

    def run(*words) -> str:
        said = hornbook(*words)
        assert said.status == 2, said
        assert said.error.startswith("hornbook: ")
        assert said.error.count("\n") == 1
        assert "Traceback" not in said.error
        assert not said.out.startswith("{")
        return said.error

    return run


@pytest.fixture
def pretraining(tiny_corpus, tmp_path) -> list:
    return ["pretrain", "bert-tiny", "--corpus", tiny_corpus, "--out", tmp_path / "run", *TINY_WORDS]
