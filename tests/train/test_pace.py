"""Timing steps before a run given in minutes."""

from types import SimpleNamespace

import pytest

from hornbook.train import pace


class SlowAtFirst:
    """A stepper whose step takes 50 s of a made-up clock if the bucket of its batch is new, as if it captured a graph,
    otherwise 2 s."""

    now = 0.0

    def __init__(self, *_):
        self.seen = set()

    @property
    def num_captured(self) -> int:
        return len(self.seen)

    def take(self, batch, number, lr):
        assert lr == 0
        SlowAtFirst.now += 2 if batch.bucket in self.seen else 50
        self.seen.add(batch.bucket)


@pytest.mark.parametrize("num_buckets", [1, 12])
def test_steps_that_capture_are_timed_again(monkeypatch, num_buckets):
    """Also if the batches of all timed steps are in different buckets."""
    monkeypatch.setattr(pace, "Stepper", SlowAtFirst)
    monkeypatch.setattr(pace.time, "monotonic", lambda: SlowAtFirst.now)
    monkeypatch.setattr(pace, "make_optimizer", lambda *_: None)

    def make_batch(number):
        batch = SimpleNamespace(bucket=number % num_buckets)
        batch.to = lambda device: batch
        return batch

    job = SimpleNamespace(module=SimpleNamespace(to=lambda device: None), model=None, make_batch=make_batch)
    monkeypatch.setattr(pace, "current_ranks", lambda: SimpleNamespace(own_part=lambda make: make))
    settings = SimpleNamespace(
        optimizer=SimpleNamespace(clip=1.0), runtime=SimpleNamespace(seed=0), batch=SimpleNamespace(micro_tokens=1)
    )
    runtime = SimpleNamespace(device=SimpleNamespace(type="cpu"))
    for most_seconds in (0.0, 1000.0):
        assert pace.seconds_per_step(job, settings, runtime, range(12), most_seconds) == 2
