"""Removes the checkpoints that finished runs no longer need."""

from pathlib import Path

from hornbook.report.run_list import disk_usage, summarize_run
from hornbook.train.checkpoint import Checkpoints


def remove_checkpoints(run: Path, dry_run: bool = False) -> int:
    """Removes the checkpoints of a run if it is finished; returns the number of bytes freed. The weights stay, and so
    does the state that tells a finished run. With `dry_run`, nothing is removed."""
    info = summarize_run(run)
    if info["state"] != "finished" or info["kind"] not in ("run", "fine-tuned run"):
        return 0
    stages = [Checkpoints(run), *map(Checkpoints, sorted((run / "stages").glob("*")))]
    unneeded = {path for checkpoints in stages for path in checkpoints.finished_files()}
    freed = disk_usage(run)["bytes"] - disk_usage(run, without=unneeded)["bytes"]
    if not dry_run:
        for checkpoints in stages:
            checkpoints.keep_only_state()
    return freed
