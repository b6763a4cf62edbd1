"""Ranks agree on when to stop, to save, to use smaller micro-batches and to roll back, and none waits for ever."""

from pathlib import Path

import pytest
import torch
from parallel.interrupted import failing, in_a_new_folder, out_of_memory, resumed, rolled_back
from parallel.rank_processes import ended, run_ranks, start_ranks
from tiny import tiny_text
from tiny_runs import same, weights

from hornbook.data.build import build_corpus
from hornbook.data.corpus import Corpus
from hornbook.lifecycle.run_folder import read_metrics
from hornbook.train.checkpoint import Checkpoints

STEPS = 24


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, tiny_tokenizer) -> str:
    """So small that 24 batches go through it more than once."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "text.txt").write_text(tiny_text(30), encoding="utf-8")
    build_corpus([folder / "text.txt"], tiny_tokenizer, folder / "corpus")
    assert Corpus(folder / "corpus").num_tokens < STEPS / 2 * 192
    return str(folder / "corpus")


def losses(out: Path) -> list[float]:
    return [line["loss"] for line in read_metrics(out) if line["kind"] == "train"]


def events(out: Path) -> list[str]:
    return [line["event"] for line in read_metrics(out) if line["kind"] == "event"]


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
def test_a_run_stopped_on_some_ranks_resumes_on_others(before, after, corpus, tmp_path):
    """In the second epoch, by a signal to the last rank only."""
    run_ranks(1, resumed, str(tmp_path / "whole"), corpus, STEPS)
    out = tmp_path / "stopped"
    run_ranks(before, resumed, str(out), corpus, STEPS, 17)
    assert Checkpoints(out).last_step() == 18 and len(losses(out)) == 18
    run_ranks(after, resumed, str(out), corpus, STEPS)
    assert len(losses(out)) == STEPS
    assert losses(out) == pytest.approx(losses(tmp_path / "whole"), rel=1e-4)
    found, expected = weights(out), weights(tmp_path / "whole")
    assert all(torch.allclose(found[name], expected[name], atol=1e-4) for name in expected)


def test_two_ranks_resume_exactly(corpus, tmp_path):
    run_ranks(2, resumed, str(tmp_path / "whole"), corpus, 6)
    for stop_at, last in ((2, 3), (None, 6)):
        run_ranks(2, resumed, str(tmp_path / "stopped"), corpus, 6, stop_at)
        assert Checkpoints(tmp_path / "stopped").last_step() == last
    assert same(tmp_path / "whole", tmp_path / "stopped")


def test_a_rank_without_memory_makes_all_use_smaller_micro_batches(corpus, tmp_path):
    run_ranks(2, resumed, str(tmp_path / "enough"), corpus, 6)
    run_ranks(2, out_of_memory, str(tmp_path / "short"), corpus)
    assert losses(tmp_path / "short") == pytest.approx(losses(tmp_path / "enough"), rel=1e-4)
    assert events(tmp_path / "short") == ["micro_batch_halved"] * 3


def test_all_ranks_roll_back(corpus, tmp_path):
    run_ranks(2, rolled_back, str(tmp_path / "run"), corpus)
    assert events(tmp_path / "run") == ["rollback"] and len(losses(tmp_path / "run")) == 8


def test_a_rank_that_fails_ends_all(corpus, tmp_path):
    assert set(ended(start_ranks(2, failing, str(tmp_path / "run"), corpus, str(tmp_path)))) == {0}
    assert (tmp_path / "1").read_text() == "ValueError: the disk of rank 1 is gone"
    assert (tmp_path / "0").read_text().startswith("OtherRankFailed: stopped, as another process of the run has ended")


def test_ranks_agree_on_a_new_folder(tmp_path):
    run_ranks(2, in_a_new_folder, str(tmp_path))
