"""What a killed process left half-written is removed by the next one that writes there."""

import errno
import os
import signal
import subprocess
import sys

import pytest
from forked import status_of

from hornbook.files import replacing, replacing_folder, write_text
from hornbook.lifecycle.locking import run_lock
from hornbook.train.metrics_log import MetricsLog

NOBODY = 999_999_999  # no process has this id
KILLED = """
import os, signal, sys
from pathlib import Path
from hornbook.files import replacing, replacing_folder
from hornbook.lifecycle.locking import run_lock

out = Path(sys.argv[1])
with run_lock(out), replacing(out / "run.json") as file, replacing_folder(out / "checkpoints" / "step-1") as folder:
    file.write_text("half")
    (folder / "model").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_next_start_sweeps_what_a_kill_left(tmp_path):
    out = tmp_path / "run"
    assert status_of(KILLED, out) == -signal.SIGKILL
    assert len([path for path in out.rglob(".*")]) == 2
    with run_lock(out):
        assert not list(out.rglob(".*"))


@pytest.mark.parametrize("level", [1, 3])
def test_only_what_nobody_writes_any_more_is_swept(tmp_path, level):
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    folder = tmp_path.joinpath(*"abc"[:level])
    folder.mkdir(parents=True)
    names = {number: folder / f".tokenizer.json.{number}.tmp" for number in (NOBODY, os.getpid(), other.pid)}
    mine = folder / ".mine.tmp"
    for path in (*names.values(), mine):
        path.write_text("half")
    with run_lock(tmp_path):
        assert {path.name for path in folder.iterdir()} == {names[other.pid].name, mine.name}
    other.communicate(b"\n")


def test_writing_a_file_again_sweeps_what_was_left_of_it(tmp_path):
    """As `predict --out`, which locks no folder."""
    for name in (f".answers.csv.{NOBODY}.tmp", f".others.csv.{NOBODY}.tmp"):
        (tmp_path / name).write_text("half")
    (tmp_path / f".export.{NOBODY}.tmp").mkdir()
    write_text(tmp_path / "answers.csv", "whole")
    with replacing_folder(tmp_path / "export") as folder:
        (folder / "model").write_text("whole")
    assert {path.name for path in tmp_path.iterdir()} == {"answers.csv", "export", f".others.csv.{NOBODY}.tmp"}


def test_a_failed_write_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError), replacing(tmp_path / "file") as temporary:
        temporary.write_text("half")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_named_by_what_was_written(tmp_path):
    """The error of a write to an open file has no name."""
    with pytest.raises(OSError, match="file'") as full, replacing(tmp_path / "file") as temporary:
        temporary.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert full.value.filename == str(tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_a_full_disk_is_named_by_the_metrics(tmp_path):
    log = MetricsLog(tmp_path, 0, tensorboard=False)
    log.file.close()
    log.file = open("/dev/full", "w")  # noqa: SIM115
    with pytest.raises(OSError, match=r"metrics\.jsonl"):
        log.write("train", 1, loss=1.0)
    with pytest.raises(OSError, match=r"metrics\.jsonl"):
        log.close()
