"""The loop: it learns, saves, resumes bit for bit, rolls back, stops on request."""

import dataclasses
import json
import os
import pickle
import signal
import time
from pathlib import Path

import pytest
import torch
from forked import begun
from safetensors.torch import load_file

from hornbook.files import read_json
from hornbook.lifecycle.run_folder import read_metrics
from hornbook.lifecycle.stopping import Signals
from hornbook.train.checkpoint import Checkpoints
from hornbook.train.job import Stopped
from hornbook.train.loop import Diverged, train
from hornbook.train.loss_spikes import LossSpikeDetector
from hornbook.train.optimizer import load_optimizer_tensors, make_optimizer, optimizer_tensors
from hornbook.train.settings import (
    BatchSettings,
    CheckpointSettings,
    LoopSettings,
    LossSpikeSettings,
    OptimizerSettings,
    ScheduleSettings,
    ValidationSettings,
)
from train.small import CPU, small_batch, small_job, small_model, small_settings

TESTS = Path(__file__).parent.parent


def run(folder: Path, settings=None, job=None, on_progress=lambda status: None):
    return train(folder, job or small_job(), settings or small_settings(), CPU, on_progress)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def same(one: dict, two: dict) -> bool:
    return one.keys() == two.keys() and all(torch.equal(value, two[name]) for name, value in one.items())


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("unbroken")
    run(folder)
    return folder


def test_it_learns(tmp_path):
    settings = small_settings(
        optimizer=OptimizerSettings(lr=6e-3),
        schedule=ScheduleSettings(steps=200, warmup_fraction=0.1),
        checkpoint=CheckpointSettings(every_steps=200),
        validation=ValidationSettings(every_steps=50),
    )
    model = small_model(dropout=0.0, attention_dropout=0.0, init_std=0.1)
    outcome = run(tmp_path, settings, small_job(model, lambda number: small_batch(number, 24, max_length=18)))
    lines = [line for line in read_metrics(tmp_path) if line["kind"] == "validation"]
    assert outcome.ended == "finished"
    assert lines[-1]["mlm"] < 0.7 * lines[0]["mlm"] and lines[-1]["nsp_accuracy"] > 0.8


def test_what_a_run_leaves(unbroken):
    lines = read_metrics(unbroken)
    assert [line["step"] for line in lines if line["kind"] == "train"] == list(range(1, 41))
    assert [line["step"] for line in lines if line["kind"] == "validation"] == [10, 20, 30, 40]
    train_line = next(line for line in lines if line["kind"] == "train")
    assert {"loss", "mlm", "nsp", "lr", "grad_norm", "tokens", "tokens_per_second"} <= train_line.keys()
    assert train_line["loss"] == pytest.approx(train_line["mlm"] + train_line["nsp"], rel=1e-5)
    names = [path.name for path in Checkpoints(unbroken, 2).all()]
    assert names == ["step-00000030", "step-00000040"]
    assert same(weights(unbroken), weights(unbroken / "checkpoints" / "step-00000040"))
    assert list((unbroken / "tensorboard").iterdir())
    assert not list(unbroken.rglob("*.tmp"))


def test_best_weights_are_those_of_the_best_validation(tmp_path):
    """With a learning rate that ruins the model after the first half, `best/` keeps the good half."""
    settings = small_settings(schedule=ScheduleSettings(steps=60, warmup_fraction=0.0))
    job = small_job()

    def poison(status):
        if status.step == 40:
            with torch.no_grad():
                job.model.mlm.bias.normal_(std=30.0, generator=torch.Generator().manual_seed(0))

    outcome = run(tmp_path, settings, job, poison)
    best = [line for line in read_metrics(tmp_path) if line["kind"] == "validation" and line["best"]][-1]
    assert best["step"] <= 40 and outcome.best == best["loss"]
    assert not same(weights(tmp_path), weights(tmp_path / "best"))


def test_the_same_seed_gives_the_same_weights(unbroken, tmp_path):
    run(tmp_path)
    assert same(weights(unbroken), weights(tmp_path))


def test_a_stopped_run_resumes_bit_for_bit(unbroken, tmp_path):
    def stop(status):
        if status.step == 17:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Stopped) as stopped:
        run(tmp_path, on_progress=stop)
    assert (stopped.value.outcome.ended, stopped.value.outcome.step) == ("stopped", 17)
    assert pickle.loads(pickle.dumps(stopped.value)).outcome == stopped.value.outcome
    assert str(stopped.value).startswith("stopped at step 17 and saved: ")
    second = run(tmp_path)
    assert (second.ended, second.step) == ("finished", 40)
    assert same(weights(unbroken), weights(tmp_path))
    assert same(weights(unbroken / "best"), weights(tmp_path / "best"))
    steps = [line["step"] for line in read_metrics(tmp_path) if line["kind"] == "train"]
    assert steps == list(range(1, 41))


def test_of_equal_scores_the_lowest_loss_is_best(tmp_path):
    """Otherwise, with a small dev split that soon scores 100%, the first, hardly trained weights would be kept."""
    found = iter([(0.5, 0.9), (1.0, 0.7), (1.0, 0.2), (1.0, 0.4), (0.9, 0.1)])
    settings = small_settings(validation=ValidationSettings(every_steps=8))
    job = dataclasses.replace(
        small_job(),
        validate=lambda micro_tokens: dict(zip(("accuracy", "loss"), next(found), strict=True)),
        metric_for_best="accuracy",
    )
    outcome = run(tmp_path, settings, job)
    assert (outcome.best, outcome.best_step) == (1.0, 24)
    lines = [line for line in read_metrics(tmp_path) if line["kind"] == "validation"]
    assert [line["best"] for line in lines] == [True, True, True, False, False]
    assert read_json(Checkpoints(tmp_path, 2).last() / "state.json")["loss_of_best"] == 0.2


def test_a_stop_after_the_last_step_reaches_the_caller(tmp_path):
    def stop(status):
        if status.step == 40:
            signal.raise_signal(signal.SIGTERM)

    with Signals() as around:
        assert run(tmp_path, on_progress=stop).step == 40
    assert around.stop == "SIGTERM"


def test_a_stop_does_not_wait_for_the_other_micro_batches(tmp_path):
    settings = small_settings(
        schedule=ScheduleSettings(steps=4), batch=BatchSettings(micro_tokens=40), validation=ValidationSettings()
    )
    run(tmp_path / "unbroken", settings)
    num_passes, job = 0, small_job()

    def stop_in_the_second(*_) -> None:
        nonlocal num_passes
        num_passes += 1
        if num_passes == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    job.model.register_forward_pre_hook(stop_in_the_second)
    with pytest.raises(Stopped) as stopped:
        run(tmp_path / "stopped", settings, job)
    assert (stopped.value.outcome.step, num_passes) == (0, 2)
    assert run(tmp_path / "stopped", settings).ended == "finished"
    assert same(weights(tmp_path / "stopped"), weights(tmp_path / "unbroken"))


def test_a_second_ctrl_c_stops_at_once(tmp_path):
    def stop(status):
        if status.step == 5:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, on_progress=stop)
    assert run(tmp_path).ended == "finished"


@pytest.mark.faults
def test_killed_at_any_moment_it_ends_with_the_same_bits(unbroken, tmp_path):
    """A real `kill -9`, several times, at moments that depend on nothing but the clock."""
    program = (
        "import sys\nfrom pathlib import Path\nfrom train.small import *\nfrom hornbook.train.loop import train\n"
        "import time\n"
        "train(Path(sys.argv[1]), small_job(), small_settings(), CPU, lambda status: time.sleep(0.02))\n"
    )
    kills = 0
    for wait in (0.05, 0.35, 0.25, None):
        process = begun(program, tmp_path)
        if wait is None:
            process.join(120)
            assert process.exitcode == 0
            break
        started = time.monotonic()
        before = len(read_metrics(tmp_path))
        while process.is_alive() and len(read_metrics(tmp_path)) <= before and time.monotonic() - started < 60:
            time.sleep(0.01)
        time.sleep(wait)
        if process.is_alive():
            process.kill()
            kills += 1
        process.join()
    assert kills >= 2
    assert same(weights(unbroken), weights(tmp_path))
    assert same(weights(unbroken / "best"), weights(tmp_path / "best"))
    assert [x["step"] for x in read_metrics(tmp_path) if x["kind"] == "train"] == list(range(1, 41))


def test_a_half_written_checkpoint_is_not_used(unbroken, tmp_path):
    settings = small_settings(checkpoint=CheckpointSettings(every_steps=10, every_minutes=0, keep=3))

    def stop(status):
        if status.step == 20:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Stopped):
        run(tmp_path, settings, on_progress=stop)
    half = tmp_path / "checkpoints" / ".step-00000030.999999999.tmp"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"half")
    run(tmp_path, settings)
    assert same(weights(unbroken), weights(tmp_path))


class Poisoned:
    """Batches some of which make the loss NaN or huge, as a broken file or a bad patch of text does."""

    def __init__(self, bad: set[int]):
        self.bad = bad

    def __call__(self, number: int):
        return small_batch(number)

    def break_losses(self, job):
        sums, draw = job.objective.loss_sums, job.objective.prepare
        current = {}

        def drawing(batch, seed):
            current["seed"] = seed
            return draw(batch, seed)

        def breaking(model, step_inputs, with_metrics=False):
            if with_metrics:
                return sums(model, step_inputs, with_metrics)
            from hornbook.train.randomness import seed_of

            found = sums(model, step_inputs)
            bad = any(current["seed"] == seed_of(0, number, "draw") for number in self.bad)
            return {term: value * float("nan") for term, value in found.items()} if bad else found

        job.objective.prepare, job.objective.loss_sums = drawing, breaking
        return job


def test_a_nan_rolls_back_once_and_leaves_out_the_batch(tmp_path):
    bad = Poisoned({13})
    outcome = run(tmp_path, job=bad.break_losses(small_job(make_batch=bad)))
    assert outcome.ended == "finished" and outcome.step == 40
    event = next(line for line in read_metrics(tmp_path) if line["kind"] == "event")
    assert event["event"] == "rollback" and event["skipped_batch"] == 13 and "step 10" in event["message"]
    assert json.loads((tmp_path / "skipped.json").read_text()) == {"skipped": [13], "rolled_back_to": [10]}
    assert all(torch.isfinite(value).all() for value in weights(tmp_path).values())


def test_a_rollback_survives_a_stop(tmp_path):
    """Interrupted after the rollback and resumed, it ends like the one that was not interrupted."""
    bad = Poisoned({13})
    run(tmp_path / "whole", job=bad.break_losses(small_job(make_batch=bad)))

    def stop(status):
        if status.step == 25:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Stopped):
        run(tmp_path / "cut", job=bad.break_losses(small_job(make_batch=bad)), on_progress=stop)
    run(tmp_path / "cut", job=bad.break_losses(small_job(make_batch=bad)))
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "cut"))


def test_a_second_nan_from_the_same_checkpoint_stops_with_advice(tmp_path):
    bad = Poisoned({13, 15})
    with pytest.raises(Diverged, match=r"optimizer\.lr"):
        run(tmp_path, job=bad.break_losses(small_job(make_batch=bad)))


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


def test_a_change_of_micro_batches_in_mid_run_is_logged_and_kept(tmp_path):
    job = small_job()
    forward = job.model.forward
    job.model.forward = lambda batch: forward(batch) if batch.num_tokens <= 100 else _raise_out_of_memory()
    run(tmp_path, job=job)
    event = next(line for line in read_metrics(tmp_path) if line["kind"] == "event")
    assert event["event"] == "micro_batch_halved" and event["micro_tokens"] <= 128
    state = json.loads((tmp_path / "checkpoints" / "step-00000040" / "state.json").read_text())
    assert state["micro_tokens"] == event["micro_tokens"]


def _raise_out_of_memory():
    raise torch.OutOfMemoryError("CUDA out of memory")


def test_frozen_losses(tmp_path):
    """What a short run gave when this was written: a refactor keeps it, up to the rounding of other machines."""
    run(tmp_path, job=small_job(small_model(dropout=0.0, attention_dropout=0.0)))
    lines = {line["step"]: line["loss"] for line in read_metrics(tmp_path) if line["kind"] == "train"}
    assert [lines[step] for step in (1, 10, 20, 40)] == pytest.approx([4.872, 4.920, 4.817, 4.741], abs=2e-3)


def doubled_from(first: int, last: int, *others: int):
    """A job whose losses are many times as large for some batches: a spike, or a divergence that stays."""
    job = small_job()
    sums, draw = job.objective.loss_sums, job.objective.prepare
    current = {}

    def drawing(batch, seed):
        current["seed"] = seed
        return draw(batch, seed)

    def growing(model, step_inputs, with_metrics=False):
        if with_metrics:
            return sums(model, step_inputs, with_metrics)
        from hornbook.train.randomness import seed_of

        bad = any(current["seed"] == seed_of(0, number, "draw") for number in (*range(first, last), *others))
        return {term: value * (9.0 if bad else 1.0) for term, value in sums(model, step_inputs).items()}

    job.objective.prepare, job.objective.loss_sums = drawing, growing
    return job


def guarded(steps: int) -> LoopSettings:
    """Spikes are looked for after 20 steps."""
    schedule = ScheduleSettings(steps=steps, warmup_fraction=0.1)
    return small_settings(schedule=schedule, loss_spike=LossSpikeSettings(history_steps=20))


def test_a_spike_rolls_back_once(tmp_path):
    run(tmp_path, guarded(30), doubled_from(23, 24))
    events = [line for line in read_metrics(tmp_path) if line["kind"] == "event"]
    assert [event["event"] for event in events] == ["rollback"] and events[0]["skipped_batch"] == 23


def test_a_loss_that_jumps_and_stays_high_is_warned_about_and_still_logged(tmp_path):
    outcome = run(tmp_path, guarded(50), doubled_from(23, 200))
    assert outcome.step == 50
    lines = read_metrics(tmp_path)
    assert [line["step"] for line in lines if line["kind"] == "train"] == list(range(1, 51))
    events = [line["event"] for line in lines if line["kind"] == "event"]
    assert events[:2] == ["rollback", "spike"] and len(events) <= 4


@pytest.mark.parametrize("read_every", [1, 10])
def test_a_jump_where_other_data_follow_is_no_spike(tmp_path, read_every):
    from hornbook.train import loop as module

    job = dataclasses.replace(doubled_from(23, 200), new_phase_at=23)
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
    seen = batches_and_phases(tmp_path, doubled_from(30, 200, 23), guarded(40))
    assert seen[-13:] == [29, "phase", *range(30, 41)] and seen.count("phase") == 1


def test_other_data_follow_a_checkpoint_that_the_run_was_rolled_back_to(tmp_path):
    """The batch after the checkpoint, the last before other data, is left out: the new phase begins again."""
    settings = dataclasses.replace(guarded(40), checkpoint=CheckpointSettings(every_steps=29, every_minutes=0))
    seen = batches_and_phases(tmp_path, doubled_from(200, 200, 29), settings)
    assert seen[28:34] == [28, 29, "phase", 30, "phase", 31]


def test_nothing_bad_is_saved_when_losses_are_read_late(tmp_path):
    """As on a GPU, numbers are read ten steps at a time: a spike that is passed over must not hide a NaN behind it."""
    from hornbook.train import loop as module

    job = doubled_from(53, 100)
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


@pytest.mark.faults
@pytest.mark.parametrize("name", ["replace", "link", "fsync", "rmtree"])
def test_killed_inside_any_write(tmp_path, name):
    """Ended inside the n-th call that changes the disk, for every n: resumed, it ends like the unbroken run."""
    settings = small_settings(  # the third checkpoint removes the first
        schedule=ScheduleSettings(steps=3, warmup_fraction=0.0),
        checkpoint=CheckpointSettings(every_steps=1, every_minutes=0),
    )
    run(tmp_path / "whole", settings)
    ended = 0
    for nth in range(1, 60, 2):
        folder = tmp_path / f"{name}-{nth}"
        process = os.fork()
        if process == 0:
            _end_at_call(name, nth)
            run(folder, settings)
            os._exit(0)
        ended += os.waitpid(process, 0)[1] != 0
        run(folder, settings)
        assert same(weights(tmp_path / "whole"), weights(folder)), nth
        assert same(weights(tmp_path / "whole" / "best"), weights(folder / "best")), nth
        assert not list(folder.rglob(".*")), nth
        assert len(list((folder / "checkpoints").iterdir())) == 2, nth
        if ended < (nth + 1) // 2:  # that many calls were never made
            break
    assert ended >= 1


def _end_at_call(name: str, nth: int) -> None:
    """From here on this process ends, as if killed, just before the n-th call of a function that changes the disk."""
    import shutil

    module = shutil if name == "rmtree" else os
    function, calls = getattr(module, name), {"made": 0}

    def counted(*arguments, **keywords):
        calls["made"] += 1
        if calls["made"] == nth:
            os._exit(9)
        return function(*arguments, **keywords)

    setattr(module, name, counted)


def test_going_back_puts_the_optimizer_where_it_lay():
    """A captured step reads the optimizer's state by its address."""
    model = small_model()
    optimizer = make_optimizer(model, OptimizerSettings())
    start = optimizer_tensors(model, optimizer)
    kept = []
    for _ in range(2):
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        kept.append({name: value.clone() for name, value in optimizer_tensors(model, optimizer).items()})
    addresses = [value.data_ptr() for state in optimizer.state.values() for value in state.values()]
    load_optimizer_tensors(model, optimizer, kept[0])
    assert same(optimizer_tensors(model, optimizer), kept[0])
    assert addresses == [value.data_ptr() for state in optimizer.state.values() for value in state.values()]
    load_optimizer_tensors(model, optimizer, start)
    assert not start and not any(value.any() for value in optimizer_tensors(model, optimizer).values())
    name = next(name for name in kept[0] if name.startswith("exp_avg/"))
    for damaged in ({name.replace("avg", "Avg", 1): kept[0][name]}, {name: torch.zeros(7)}):
        with pytest.raises(ValueError, match="damaged or of another version"):
            load_optimizer_tensors(model, optimizer, damaged)


def _stop_at(step: int):
    def on_progress(status) -> None:
        if status.step == step:
            os.kill(os.getpid(), signal.SIGTERM)

    return on_progress
