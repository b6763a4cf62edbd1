"""A run started by torchrun, one of whose processes is killed: it starts again by itself and ends as if nothing had
happened."""

import os
import signal
import time
from pathlib import Path

import pytest
from parallel.curves import OVERRIDES
from parallel.interrupted import resumed
from parallel.rank_processes import MANY_SECONDS, run_ranks, torchrun
from tiny_runs import same

from hornbook.lifecycle.run_folder import read_metrics
from hornbook.train.checkpoint import Checkpoints

STEPS = 24
SETTINGS = OVERRIDES | {"checkpoint.every_steps": 6, "runtime.log_every_steps": 1, "model.dropout": 0.1}


def processes_below(parent: int) -> dict[int, int]:
    """The process of each rank that torchrun has started."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                environment = dict(
                    each.split("=", 1) for each in (entry / "environ").read_text().split("\0") if "=" in each
                )
                found[int(environment["RANK"])] = int(entry.name)
        except (OSError, KeyError):  # it has ended, or is no rank
            continue
    return found


@pytest.mark.faults
def test_a_killed_rank_ends_in_the_weights_of_the_unbroken_run(tiny_corpus, tmp_path):
    run_ranks(2, resumed, str(tmp_path / "whole"), str(tiny_corpus), STEPS, None, SETTINGS)
    out = tmp_path / "killed"
    words = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    words += ["--steps", STEPS, "--batch-tokens", 192, "--recipe", "published"]
    process = torchrun("pretrain", "bert-tiny", "--corpus", tiny_corpus, "--out", out, *words, restarts=1)
    try:
        deadline = time.monotonic() + MANY_SECONDS
        while (Checkpoints(out).last_step() or 0) < 6:
            assert process.poll() is None and time.monotonic() < deadline, process.communicate()
            time.sleep(0.02)
        os.kill(processes_below(process.pid)[1], signal.SIGKILL)
        printed, said = process.communicate(timeout=MANY_SECONDS)
    finally:
        process.kill()
    assert process.returncode == 0, said
    assert printed.count(f"{out}: finished, {STEPS} steps") == 1  # by one rank
    assert "resuming" in said and said.count("parameters; 2 processes") == 1
    assert same(tmp_path / "whole", out)
    steps = [line["step"] for line in read_metrics(out) if line["kind"] == "train"]
    assert steps == list(range(1, STEPS + 1))
