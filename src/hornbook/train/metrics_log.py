"""Metrics of a run: `metrics.jsonl`, and the same numbers for TensorBoard."""

import json
import os
import tempfile
from pathlib import Path

from hornbook.files import naming_full_disk, write_text
from hornbook.lifecycle.locking import check_folder, discards_writes
from hornbook.lifecycle.run_folder import METRICS, read_metrics


class MetricsLog:
    """Appends JSON lines of kind `train`, `validation` or `event`. Opening the log at a step drops the lines after that
    step, so that a resumed run has no duplicates. What ranks other than the main one write is discarded."""

    def __init__(self, run: Path, at_step: int, tensorboard: bool = True):
        self.path = Path(run) / METRICS
        lines = [line for line in read_metrics(run) if line["step"] <= at_step]
        write_text(self.path, "".join(json.dumps(line) + "\n" for line in lines))
        discards = discards_writes()
        self.file = tempfile.TemporaryFile("w") if discards else open(self.path, "a", encoding="utf-8")  # noqa: SIM115
        self.board = None
        if tensorboard and not discards:
            from torch.utils.tensorboard import SummaryWriter

            self.board = SummaryWriter(str(Path(run) / "tensorboard"), purge_step=at_step + 1)

    def write(self, kind: str, step: int, **values: object) -> None:
        check_folder(self.path)
        with naming_full_disk(self.path):
            self.file.write(json.dumps({"kind": kind, "step": step, **values}) + "\n")
            self.file.flush()
            if self.board is not None:
                for name, value in values.items():
                    if isinstance(value, int | float):
                        self.board.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        with naming_full_disk(self.path):
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()
            if self.board is not None:
                self.board.close()
