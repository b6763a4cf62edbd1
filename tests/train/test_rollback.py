"""Batches whose loss is not a number, or a spike: the run goes back to its last checkpoint and leaves them out."""

import dataclasses
import json
import signal
from math import nan
from pathlib import Path

import pytest
import torch
from tiny_runs import same, weights

from hornbook.lifecycle.run_folder import read_metrics
from hornbook.train import loop as module
from hornbook.train.job import Stopped, TrainingJob
from hornbook.train.loop import Diverged
from hornbook.train.loss_spikes import LossSpikeDetector
from hornbook.train.randomness import seed_of
from hornbook.train.settings import CheckpointSettings, LoopSettings, LossSpikeSettings, ScheduleSettings
from train.small import CPU, run, small_job, small_settings


def scaled_losses(factors: dict[int, float]) -> TrainingJob:
    """A job whose losses are multiplied by a factor for some batches, as broken files or bad patches of text do."""
    job = small_job()
    sums, draw = job.objective.loss_sums, job.objective.prepare
    by_seed = {seed_of(0, number, "draw"): factor for number, factor in factors.items()}
    current = {"factor": 1.0}

    def drawing(batch, seed):
        current["factor"] = by_seed.get(seed, 1.0)
        return draw(batch, seed)

    def scaled(model, step_inputs, with_metrics=False):
        found = sums(model, step_inputs, with_metrics)
        return found if with_metrics else {term: value * current["factor"] for term, value in found.items()}

    job.objective.prepare, job.objective.loss_sums = drawing, scaled
    return job


def test_a_nan_rolls_back_once_and_leaves_out_the_batch(tmp_path):
    outcome = run(tmp_path, job=scaled_losses({13: nan}))
    assert outcome.ended == "finished" and outcome.step == 40
    event = next(line for line in read_metrics(tmp_path) if line["kind"] == "event")
    assert event["event"] == "rollback" and event["skipped_batch"] == 13 and "step 10" in event["message"]
    assert json.loads((tmp_path / "skipped.json").read_text()) == {"skipped": [13], "rolled_back_to": [10]}
    assert all(torch.isfinite(value).all() for value in weights(tmp_path).values())


def test_a_rollback_survives_a_stop(tmp_path):
    """Interrupted after the rollback and resumed, it ends like the one that was not interrupted."""
    run(tmp_path / "whole", job=scaled_losses({13: nan}))

    def stop(status):
        if status.step == 25:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Stopped):
        run(tmp_path / "cut", job=scaled_losses({13: nan}), on_progress=stop)
    run(tmp_path / "cut", job=scaled_losses({13: nan}))
    assert same(tmp_path / "whole", tmp_path / "cut")


def test_a_second_nan_from_the_same_checkpoint_stops_with_advice(tmp_path):
    with pytest.raises(Diverged, match=r"optimizer\.lr"):
        run(tmp_path, job=scaled_losses({13: nan, 15: nan}))


def test_guard_sees_a_spike_and_not_the_usual_noise():
    detector = LossSpikeDetector(LossSpikeSettings())
    values = [5.0 + 0.1 * ((i * 7919) % 11 - 5) for i in range(200)]
    assert all(detector.check(value, 1.0) is None for value in values)
    assert detector.check(9.0, 1.0).kind == "spike"
    assert detector.check(5.2, 1.0) is None
    assert detector.check(float("nan"), 1.0).kind == detector.check(5.0, float("inf")).kind == "nan"
    assert LossSpikeDetector(LossSpikeSettings(history_steps=0)).check(9.0, 1.0) is None  # the first loss of a run
    falling = LossSpikeDetector(LossSpikeSettings())
    assert all(falling.check(10 * 0.99**i, 1.0) is None for i in range(400))


def guarded(steps: int) -> LoopSettings:
    """Spikes are looked for after 20 steps."""
    schedule = ScheduleSettings(steps=steps, warmup_fraction=0.1)
    return small_settings(schedule=schedule, loss_spike=LossSpikeSettings(history_steps=20))


def test_a_spike_rolls_back_once(tmp_path):
    run(tmp_path, guarded(30), scaled_losses({23: 9.0}))
    events = [line for line in read_metrics(tmp_path) if line["kind"] == "event"]
    assert [event["event"] for event in events] == ["rollback"] and events[0]["skipped_batch"] == 23


def test_a_loss_that_jumps_and_stays_high_is_warned_about_and_still_logged(tmp_path):
    outcome = run(tmp_path, guarded(50), scaled_losses(dict.fromkeys(range(23, 200), 9.0)))
    assert outcome.step == 50
    lines = read_metrics(tmp_path)
    assert [line["step"] for line in lines if line["kind"] == "train"] == list(range(1, 51))
    events = [line["event"] for line in lines if line["kind"] == "event"]
    assert events[:2] == ["rollback", "spike"] and len(events) <= 4


@pytest.mark.parametrize("read_every", [1, 10])
def test_a_jump_where_other_data_follow_is_no_spike(tmp_path, read_every):
    job = dataclasses.replace(scaled_losses(dict.fromkeys(range(23, 200), 9.0)), new_phase_at=23)
    loop = module._Loop(tmp_path, job, guarded(40), CPU, lambda status: None)
    loop.read_every = read_every
    assert loop.run(module.Signals()).step == 40
    assert not [line for line in read_metrics(tmp_path) if line["kind"] == "event"]


def batches_and_phases(folder: Path, job, settings: LoopSettings) -> list[int | str]:
    """The batches of a run that is rolled back once, and where a new phase begins, which the job has at batch 30."""
    seen = []
    job = dataclasses.replace(
        job,
        make_batch=lambda number, make=job.make_batch: seen.append(number) or make(number),
        new_phase_at=30,
        begin_phase=lambda: seen.append("phase"),
    )
    run(folder, settings, job)
    assert [line["event"] for line in read_metrics(folder) if line["kind"] == "event"] == ["rollback"]
    return seen


def test_other_data_follow_one_step_earlier_after_a_batch_was_left_out(tmp_path):
    seen = batches_and_phases(tmp_path, scaled_losses(dict.fromkeys((23, *range(30, 200)), 9.0)), guarded(40))
    assert seen[-13:] == [29, "phase", *range(30, 41)] and seen.count("phase") == 1


def test_other_data_follow_a_checkpoint_that_the_run_was_rolled_back_to(tmp_path):
    """The batch after the checkpoint, the last before other data, is left out: the new phase begins again."""
    settings = dataclasses.replace(guarded(40), checkpoint=CheckpointSettings(every_steps=29, every_minutes=0))
    seen = batches_and_phases(tmp_path, scaled_losses({29: 9.0}), settings)
    assert seen[28:34] == [28, 29, "phase", 30, "phase", 31]


def test_nothing_bad_is_saved_when_losses_are_read_late(tmp_path):
    """As on a GPU, numbers are read ten steps at a time: a spike that is passed over must not hide a NaN behind it."""
    job = scaled_losses(dict.fromkeys(range(53, 100), 9.0))
    sums = job.objective.loss_sums
    count = {"steps": 0}

    def poisoned(model, step_inputs, with_metrics=False):
        if with_metrics:
            return sums(model, step_inputs, with_metrics)
        count["steps"] += 1
        found = sums(model, step_inputs)
        return {t: v * float("nan") for t, v in found.items()} if count["steps"] > 66 else found

    job.objective.loss_sums = poisoned
    settings = small_settings(
        schedule=ScheduleSettings(steps=90, warmup_fraction=0.1), loss_spike=LossSpikeSettings(history_steps=20)
    )
    loop = module._Loop(tmp_path, job, settings, CPU, lambda status: None)
    loop.read_every = 10
    with pytest.raises(Diverged):
        loop.run(module.Signals())
    assert all(torch.isfinite(value).all() for value in weights(tmp_path).values())
