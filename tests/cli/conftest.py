"""Commands with invalid arguments, and commands that train."""

import pytest
from tiny import TINY_WORDS


@pytest.fixture
def complaint(hornbook):
    """Runs an invalid command; returns its one-sentence error."""

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
