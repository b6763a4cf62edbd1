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
from tiny_runs import same

from hornbook.files import read_json
from hornbook.lifecycle.run_folder import read_metrics
from hornbook.lifecycle.stopping import Signals
from hornbook.train.checkpoint import Checkpoints
from hornbook.train.job import Stopped
from hornbook.train.optimizer import load_optimizer_tensors, make_optimizer, optimizer_tensors
from hornbook.train.settings import (
    BatchSettings,
    CheckpointSettings,
    OptimizerSettings,
    ScheduleSettings,
    ValidationSettings,
)
from train.small import run, small_batch, small_job, small_model, small_settings

TESTS = Path(__file__).parent.parent


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
    assert same(unbroken, unbroken / "checkpoints" / "step-00000040")
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
    assert not same(tmp_path, tmp_path / "best")


def test_the_same_seed_gives_the_same_weights(unbroken, tmp_path):
    run(tmp_path)
    assert same(unbroken, tmp_path)


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
    assert same(unbroken, tmp_path)
    assert same(unbroken / "best", tmp_path / "best")
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
    assert same(tmp_path / "stopped", tmp_path / "unbroken")


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
        "import sys, time\nfrom pathlib import Path\nfrom train.small import run\n"
        "run(Path(sys.argv[1]), on_progress=lambda status: time.sleep(0.02))\n"
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
    assert same(unbroken, tmp_path)
    assert same(unbroken / "best", tmp_path / "best")
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
    assert same(unbroken, tmp_path)


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
        assert same(tmp_path / "whole", folder), nth
        assert same(tmp_path / "whole" / "best", folder / "best"), nth
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
    torch.testing.assert_close(optimizer_tensors(model, optimizer), kept[0], rtol=0, atol=0)
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
