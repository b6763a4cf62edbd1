"""Fine-tunings side by side: when they are stopped, and when a process of theirs is killed."""

import time
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from threading import Event
from types import SimpleNamespace

import pytest

from hornbook.evaluation.experiments import pool as pools
from hornbook.evaluation.experiments.pool import MAX_TRIES, Pool
from hornbook.lifecycle import stopping


class Waiting(Pool):
    """A pool whose jobs end as specified, round by round: with a result, an error, or never."""

    def __init__(self, *rounds: list):
        super().__init__(2)
        self.rounds, self.submitted, self.stop_event = list(rounds), [], Event()

    def _submit(self, jobs):
        self.submitted.append(jobs)
        futures = {}
        for job, end in zip(jobs, self.rounds.pop(0), strict=True):
            future = Future()
            if isinstance(end, Exception):
                future.set_exception(end)
            elif end != "never":
                future.set_result(end)
            futures[future] = job
        return futures


@pytest.fixture
def told():
    return []


def tell_into(told: list):
    return lambda job, found: told.append((job, found))


def quiet(words: str) -> None:
    pass


def test_a_stopped_job_stops_the_waiting_ones(told):
    pool = Waiting([{"score": 1}, None, "never", "never"])
    assert not pool.run([0, 1, 2, 3], lambda: False, tell_into(told), quiet)
    assert pool.stop_event.is_set() and told == [(0, {"score": 1})]


def test_stop_requested_by_the_user(told):
    pool = Waiting(["never", "never"])
    assert not pool.run([0, 1], lambda: True, tell_into(told), quiet) and pool.stop_event.is_set() and told == []


def test_an_error_is_reported_and_the_others_continue(told):
    pool, error = Waiting([KeyError("x"), {"score": 2}]), None
    assert pool.run([0, 1], lambda: False, tell_into(told), quiet)
    error = dict(told)[0]
    assert isinstance(error, KeyError) and dict(told)[1] == {"score": 2}


def test_jobs_lost_with_a_process_are_restarted(told):
    pool = Waiting([{"score": 1}, BrokenProcessPool(), BrokenProcessPool()], [{"score": 2}, {"score": 3}])
    assert pool.run([0, 1, 2], lambda: False, tell_into(told), quiet)
    assert pool.submitted == [[0, 1, 2], [1, 2]] and dict(told) == {0: {"score": 1}, 1: {"score": 2}, 2: {"score": 3}}


def test_a_job_whose_process_dies_repeatedly_is_reported(told):
    pool = Waiting(*([BrokenProcessPool("killed")] for _ in range(MAX_TRIES)))
    assert pool.run([0], lambda: False, tell_into(told), quiet)
    assert [str(error) for _, error in told] == ["killed"]


def test_jobs_lost_while_stopping_are_not_failures(told):
    pool = Waiting([None, BrokenProcessPool()])
    assert not pool.run([0, 1], lambda: False, tell_into(told), quiet) and told == []


def test_a_job_that_can_no_longer_be_cancelled_does_not_begin(monkeypatch):
    asked = Event()
    monkeypatch.setattr(pools, "_stop_event", asked)
    monkeypatch.setattr(pools, "run_finetuning", lambda job, on_progress: {"score": 1})
    assert pools._run(SimpleNamespace(until=None)) == {"score": 1}
    assert pools._run(SimpleNamespace(until=time.time() - 1)) is None
    asked.set()
    assert pools._run(SimpleNamespace(until=None)) is None


def test_an_idle_process_keeps_no_memory(monkeypatch):
    """Fifteen idle processes once held 35 GB of a GPU during the next pre-training run."""
    given_back = []

    def finetuned(job, on_progress):
        assert len(given_back) == job.number
        if job.number:
            raise ValueError("no luck")

    monkeypatch.setattr(pools, "_stop_event", Event())
    monkeypatch.setattr(pools, "run_finetuning", finetuned)
    monkeypatch.setattr(pools, "release_memory", lambda: given_back.append(True))
    pools._run(SimpleNamespace(until=None, number=0))
    with pytest.raises(ValueError, match="no luck"):
        pools._run(SimpleNamespace(until=None, number=1))
    assert len(given_back) == 2


@pytest.mark.parametrize(("words", "ends"), [("CUDA error: an illegal address", True), ("CUDA out of memory", False)])
def test_a_process_that_lost_its_device_ends(monkeypatch, words, ends):
    """Else it would fail whatever it is given next."""

    def fail(job, on_progress):
        raise RuntimeError(words)

    def leave(status):
        raise SystemExit(status)

    monkeypatch.setattr(pools, "_stop_event", Event())
    monkeypatch.setattr(pools, "run_finetuning", fail)
    monkeypatch.setattr(pools.os, "_exit", leave)
    with pytest.raises(SystemExit if ends else RuntimeError):
        pools._run(SimpleNamespace(until=None))


def test_signals_are_left_to_the_parent(monkeypatch):
    monkeypatch.setattr(stopping, "_are_handlers_disabled", True)
    with stopping.Signals() as heard:
        assert heard.previous == {}
