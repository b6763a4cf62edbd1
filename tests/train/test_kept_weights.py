"""`checkpoint.keep_at`: the weights of named steps stay, whatever becomes of checkpoints; and `watch` ends a run."""

import pytest
from tiny_runs import same

from hornbook.lifecycle.run_folder import read_metrics
from hornbook.train.checkpoint import Checkpoints, kept_folder
from hornbook.train.job import Stopped
from hornbook.train.loop import train
from hornbook.train.settings import CheckpointSettings
from train.small import CPU, small_job, small_settings

KEEP_AT = (7, 20, 40)


def settings(**overrides):
    return small_settings(checkpoint=CheckpointSettings(**{"every_steps": 10, "every_minutes": 0} | overrides))


@pytest.fixture(scope="module")
def keeping(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keeping")
    train(folder, small_job(), settings(keep_at=KEEP_AT), CPU, lambda status: None)
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The same run, which keeps its checkpoints in place of any weights."""
    folder = tmp_path_factory.mktemp("plain")
    train(folder, small_job(), settings(every_steps=1, keep=99), CPU, lambda status: None)
    return folder


def test_named_steps_are_kept_as_they_were(keeping, plain):
    assert sorted(path.name for path in (keeping / "kept").iterdir()) == [f"step-{step:08d}" for step in KEEP_AT]
    for step in KEEP_AT:
        assert same(kept_folder(keeping, step), plain / "checkpoints" / f"step-{step:08d}")
    assert [path.name for path in Checkpoints(keeping).all()] == ["step-00000030", "step-00000040"]
    assert same(keeping, plain)
    assert not same(kept_folder(keeping, 7), keeping)


def test_a_kept_step_is_validated_once(keeping):
    lines = [line["step"] for line in read_metrics(keeping) if line["kind"] == "validation"]
    assert lines == [7, 10, 20, 30, 40]


class Killed(Exception):
    pass


def killed_at(step):
    def on_progress(status):
        if status.step == step:
            raise Killed

    return on_progress


@pytest.mark.parametrize("step", [6, 8, 25])
def test_a_killed_run_keeps_the_same(tmp_path, keeping, step):
    with pytest.raises(Killed):
        train(tmp_path, small_job(), settings(keep_at=KEEP_AT), CPU, killed_at(step))
    (tmp_path / "kept" / ".step-00000020.999999999.tmp").mkdir(parents=True)  # half-written when it was killed
    train(tmp_path, small_job(), settings(keep_at=KEEP_AT), CPU, lambda status: None)
    assert same(tmp_path, keeping)
    for each in KEEP_AT:
        assert same(kept_folder(tmp_path, each), kept_folder(keeping, each))
    assert len(list((tmp_path / "kept").iterdir())) == 3


def test_stop_from_on_progress_and_exact_resume(tmp_path, keeping):
    with pytest.raises(Stopped, match="stopped at step 13"):
        train(tmp_path, small_job(), settings(keep_at=KEEP_AT), CPU, lambda status: status.step >= 13)
    assert Checkpoints(tmp_path).last_step() == 13
    assert train(tmp_path, small_job(), settings(keep_at=KEEP_AT), CPU, lambda status: None).ended == "finished"
    assert same(tmp_path, keeping)


def test_steps_that_are_never_reached_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"step 41, but schedule\.steps=40"):
        train(tmp_path, small_job(), settings(keep_at=(20, 41)), CPU, lambda status: None)
    with pytest.raises(ValueError, match=r"keep_at must be at least 1, not 0"):
        settings(keep_at=(0, 4))
