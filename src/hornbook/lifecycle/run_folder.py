"""The folder that a command writes: its record (`run.json`), from which it is resumed or refused, and its results.

A command holds the lock of the folder (`locking.py`) while it calls `is_started`, then `read_record` and `refuse` or
`write_record`, and writes its results last.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import hornbook
from hornbook import config as configuration
from hornbook.files import read_json, read_json_lines, refusing_damage, write_json
from hornbook.lifecycle.job_locks import JOB_LOCKS
from hornbook.lifecycle.requests import Difference

Log = Callable[[str], None]  # receives the messages of a run
OnCount = Callable[[str, int], None]  # receives an activity and the number done so far
RECORD = "run.json"
METRICS = "metrics.jsonl"
SCORES = "scores.json"  # written last: a folder with this file is finished


def ignore(*_: object) -> None:
    """Receives log messages or progress, and does nothing with them."""


def require(record: Mapping[str, Any], *names: str) -> None:
    """Raises a `KeyError` with the first of these dotted names that is not in a record."""
    for name in names:
        value = record
        for key in name.split("."):
            if key not in value:
                raise KeyError(name)
            value = value[key]


@dataclass(frozen=True)
class RunFolder:
    """A folder that `command` writes. `marks` are the files of which any one shows that it was started; the first is
    the record. `what` names the contents in messages."""

    path: Path
    command: str
    marks: tuple[str, ...] = (RECORD,)
    what: str = "a run"

    @property
    def record(self) -> Path:
        return self.path / self.marks[0]

    @property
    def has_record(self) -> bool:
        return self.record.exists()

    @property
    def is_finished(self) -> bool:
        return (self.path / SCORES).exists()

    def is_started(self, resume: bool) -> bool:
        """Whether the folder holds a run, which is to be resumed. Raises a ValueError if there is one and `resume` is
        False, or if the folder holds something else."""
        if any((self.path / mark).exists() for mark in self.marks):
            if not resume:
                raise ValueError(
                    f"{self.path} already holds {self.what}: add resume=True to resume it, remove the folder to "
                    "replace it, or choose another folder"
                )
            return True
        names = [path.name for path in self.path.iterdir()] if self.path.exists() else []
        if any(not name.endswith(".tmp") and name != JOB_LOCKS for name in names):
            raise ValueError(f"{self.path} exists and is not {self.what}: choose another folder, or empty it")
        return False

    def write_record(
        self,
        request: Mapping[str, Any],
        inputs: Mapping[str, Any],
        settings: Any = None,
        runtime: Mapping[str, Any] | None = None,
        **info: Any,
    ) -> dict[str, Any]:
        """Writes and returns the record: the `request` as the user gave it, the resolved `settings`, what identifies
        the `inputs` (fingerprints), the `runtime`, and further information about the run."""
        record = {"hornbook": hornbook.__version__, "torch": version("torch"), "command": self.command, **info}
        record |= {"request": request, "inputs": inputs, "runtime": runtime}
        if settings is not None:
            record |= {"settings": asdict(settings), "unused": configuration.unused_names(settings)}
        write_json(self.record, record)
        return record

    def read_record(self, check: Callable[[dict[str, Any]], Any] = ignore) -> dict[str, Any]:
        """The record. Raises a ValueError if another command wrote it, or if it is damaged: if `check`, which reads
        the values that the command needs, fails."""
        record = read_json(self.record)
        if (command := record.get("command")) is None:
            raise ValueError(f"{self.record} lacks command, so no run wrote it: restore the file")
        if command != self.command:
            raise ValueError(
                f"{self.path} holds a run of '{command}', not of '{self.command}': resume it with that command, or "
                "choose another folder"
            )
        with refusing_damage(self.record):
            check(record)
        return record

    def refuse(self, differences: Iterable[Difference]) -> None:
        """Raises a ValueError that lists the differences from the record, if there are any."""
        details = "; ".join(
            f"{name} is {'not set' if recorded is None else recorded}"
            + (" and is now left out" if requested is None else f", not {requested}")
            for name, recorded, requested in differences
        )
        if details:
            raise ValueError(
                f"{self.path} was started with other settings: {details}; leave these options out to resume, or "
                "choose another folder"
            )

    def refuse_other_input(self, name: str, recorded: Any, current: Any) -> None:
        """Raises a ValueError that names the input if its fingerprint differs from the recorded one."""
        if recorded != current:
            raise ValueError(f"{name} is not what {self.path} was started with: restore it, or choose another folder")


def recorded(out: str | Path | None, *names: str) -> dict[str, Any]:
    """The first of the records `names` (by default `run.json`) that the folder `out` has; empty if it has none."""
    files = [Path(out) / name for name in names or (RECORD,)] if out is not None else []
    return next((read_json(file) for file in files if file.exists()), {})


def is_task_run(record: Mapping[str, Any]) -> bool:
    """Whether a run with this record fine-tuned a model on labelled data, with or without a teacher."""
    command = record.get("command")
    return command == "finetune" or (command == "distill" and "task" in record)


def read_metrics(run: str | Path) -> list[dict[str, Any]]:
    """The lines of a run's `metrics.jsonl` that have a kind and a step; empty if there is no such file."""
    lines = read_json_lines(Path(run) / METRICS)
    return [line for line in lines if isinstance(line.get("step"), int) and "kind" in line]
