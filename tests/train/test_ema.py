"""The running average of the weights: its formula, what is saved and validated, and resuming with the same bits."""

import pytest
import torch
from tiny_runs import same, weights

from hornbook.lifecycle.run_folder import read_metrics
from hornbook.train.checkpoint import kept_folder
from hornbook.train.job import Stopped
from hornbook.train.loop import train
from hornbook.train.settings import CheckpointSettings, OptimizerSettings
from train.small import CPU, small_job, small_settings

DECAY = 0.8
STEPS = 40


def settings(average: float = DECAY, **checkpoint):
    options = {"every_steps": 10, "every_minutes": 0} | checkpoint
    return small_settings(
        optimizer=OptimizerSettings(lr=1e-2, ema_decay=average), checkpoint=CheckpointSettings(**options)
    )


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Without an average: the weights after every step."""
    folder = tmp_path_factory.mktemp("plain")
    train(folder, small_job(), settings(0.0, every_steps=1, keep=99), CPU, lambda status: None)
    return folder


@pytest.fixture(scope="module")
def averaged(tmp_path_factory):
    folder = tmp_path_factory.mktemp("averaged")
    train(folder, small_job(), settings(keep_at=(7, STEPS)), CPU, lambda status: None)
    return folder


def test_the_saved_weights_are_the_average_of_all_steps(plain, averaged):
    steps = [weights(plain / "checkpoints" / f"step-{step:08d}") for step in range(STEPS + 1)]
    average, kept = dict(steps[0]), {}
    for step in range(1, STEPS + 1):
        decay = min(DECAY, step / (step + 10))
        average = {name: decay * value + (1 - decay) * steps[step][name] for name, value in average.items()}
        kept[step] = average
    for folder, step in ((kept_folder(averaged, 7), 7), (averaged, STEPS), (kept_folder(averaged, STEPS), STEPS)):
        for name, value in weights(folder).items():
            assert torch.allclose(value, kept[step][name], atol=1e-5), (name, step)
    assert not same(averaged, plain)


def test_the_average_is_validated(averaged):
    last = [line for line in read_metrics(averaged) if line["kind"] == "validation"][-1]
    job = small_job()
    job.load_model(averaged)
    assert last["loss"] == pytest.approx(job.validate(4096)["loss"], abs=1e-6)


def test_training_itself_is_unchanged(plain, averaged):
    losses = [[line["loss"] for line in read_metrics(run) if line["kind"] == "train"] for run in (plain, averaged)]
    assert losses[0] == losses[1]


def test_a_resumed_run_has_the_same_bits(tmp_path, averaged):
    stop = lambda status: status.step >= 15  # noqa: E731
    with pytest.raises(Stopped):
        train(tmp_path, small_job(), settings(keep_at=(7, STEPS)), CPU, stop)
    assert not same(tmp_path, averaged)
    train(tmp_path, small_job(), settings(keep_at=(7, STEPS)), CPU, lambda status: None)
    assert same(tmp_path, averaged) and same(kept_folder(tmp_path, STEPS), kept_folder(averaged, STEPS))
