"""Timing steps before a run given in minutes."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from hornbook.train import step_timing
from hornbook.train.parallel.sharding import blocks_of, checkpoint_activations
from hornbook.train.settings import ParallelSettings
from train.small import CPU, small_batch, small_job, small_settings


class SlowAtFirst:
    """A stepper whose step takes 50 s of a made-up clock if the bucket of its batch is new, as if it captured a graph,
    otherwise 2 s."""

    now = 0.0

    def __init__(self, *_):
        self.seen = set()
        SlowAtFirst.is_closed = False

    @property
    def num_captured(self) -> int:
        return len(self.seen)

    def train_step(self, batch, number, lr):
        assert lr == 0
        SlowAtFirst.now += 2 if batch.bucket in self.seen else 50
        self.seen.add(batch.bucket)

    def close(self):
        SlowAtFirst.is_closed = True


@pytest.mark.parametrize("num_buckets", [1, 12])
def test_steps_that_capture_are_timed_again(monkeypatch, num_buckets):
    """Also if the batches of all timed steps are in different buckets."""
    monkeypatch.setattr(step_timing, "make_stepper", SlowAtFirst)
    monkeypatch.setattr(step_timing.time, "monotonic", lambda: SlowAtFirst.now)
    monkeypatch.setattr(step_timing, "make_optimizer", lambda *_: None)

    def make_batch(number):
        batch = SimpleNamespace(bucket=number % num_buckets)
        batch.to = lambda device: batch
        return batch

    job = SimpleNamespace(module=SimpleNamespace(to=lambda device: None), model=None, make_batch=make_batch)
    monkeypatch.setattr(step_timing, "current_ranks", lambda: SimpleNamespace(own_part=lambda make: make))
    settings = small_settings()
    runtime = SimpleNamespace(device=SimpleNamespace(type="cpu"), compiles=False)
    for max_seconds in (0.0, 1000.0):
        assert step_timing.seconds_per_step(job, settings, runtime, range(12), max_seconds) == 2
        assert SlowAtFirst.is_closed


def test_short_steps_of_a_gpu_are_queued_without_waiting_for_each(monkeypatch):
    """A step takes 10 ms of the device; waiting for the device takes the host 5 ms more, however many steps it ran."""
    clock = SimpleNamespace(now=0.0)

    def synchronize(device):
        clock.now += 0.005

    def train_step(batch, number, lr):
        clock.now += 0.010

    stepper = SimpleNamespace(train_step=train_step, num_captured=0, close=lambda: None)
    monkeypatch.setattr(step_timing, "make_stepper", lambda *_: stepper)
    monkeypatch.setattr(step_timing, "make_optimizer", lambda *_: None)
    monkeypatch.setattr(step_timing.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(step_timing.torch.cuda, "synchronize", synchronize)
    batch = SimpleNamespace(to=lambda device: batch)
    job = SimpleNamespace(module=SimpleNamespace(to=lambda device: None), model=None, make_batch=lambda number: batch)
    gpu, cpu = (SimpleNamespace(device=SimpleNamespace(type=name), compiles=False) for name in ("cuda", "cpu"))
    seconds = step_timing.seconds_per_step(job, small_settings(), gpu, range(10), max_seconds=1000.0)
    assert seconds == pytest.approx(0.010 + 0.005 / 10)
    assert step_timing.seconds_per_step(job, small_settings(), cpu, range(10), 1000.0) == pytest.approx(0.010)


def test_steps_are_timed_with_activations_recomputed_if_the_run_does_so(monkeypatch):
    """And only once, however often a step is timed."""
    job, runs = small_job(make_batch=small_batch), []
    block = blocks_of(job.model)[0]
    monkeypatch.setattr(
        block, "forward", lambda *arguments, run=block.forward, **named: runs.append(1) or run(*arguments, **named)
    )
    for _ in range(2):
        runs.clear()
        settings = small_settings(parallel=ParallelSettings(activation_checkpointing=True))
        step_timing.seconds_per_step(job, settings, CPU, [0], max_seconds=60.0)
        assert len(runs) == 2 * 2  # a step is taken twice, with a forward pass and the same one in the backward pass
    runs.clear()
    step_timing.seconds_per_step(job, settings, CPU, [0, 1, 2], max_seconds=0.0)
    assert len(runs) == 2  # there is no time to take another


def test_recomputed_activations_are_not_captured():
    runtime = checkpoint_activations(small_job().model, replace(CPU, cuda_graphs=True, precision=torch.bfloat16))
    assert not runtime.cuda_graphs
    with runtime.autocast():
        assert not torch.is_autocast_cache_enabled()
    with CPU.autocast():
        assert torch.is_autocast_cache_enabled()
