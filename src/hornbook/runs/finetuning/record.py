"""The record of a fine-tuning run: the request and the resolved settings, from which it is resumed."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hornbook import config as configuration
from hornbook.config import LARGEST_SEED, setting
from hornbook.files import absolute
from hornbook.lifecycle.requests import RunRequest, request_differences, with_device
from hornbook.lifecycle.run_folder import RECORD, RunFolder, require
from hornbook.report.trials import SWEEP
from hornbook.runs.finetuning.settings import FinetuneSettings, TaskDistillationSettings
from hornbook.tasks.records import DataSet, fingerprint
from hornbook.train.runtime import Runtime

AUGMENTED = "augmented.json"  # what the augmented copies were made from (`runs/augmentation/stored_copies.py`)
START_FILES = (RECORD, SWEEP, AUGMENTED)  # any of these shows that a run was started
SHAPE = "model."  # prefix of the settings of a model's shape


@dataclass(frozen=True)
class FinetuneRequest(RunRequest):
    """The user's request. `data` is None if the data was passed in memory, `model` if none is named."""

    model: str | None
    task: str
    data: str | None
    text: str | None = None
    pair: str | None = None
    label: str | None = None
    epochs: float | None = setting(None, "passes over the training split", above=0, high=10_000)
    lr: float | None = setting(None, "peak learning rate", above=0, high=100)
    batch_size: int | None = setting(None, "examples in a batch", low=1, high=1_000_000)
    seed: int | None = setting(None, "random seed", low=0, high=LARGEST_SEED)
    from_scratch: bool = False
    strict: bool = False
    teacher: str | None = None
    delimiter: str | None = None
    encoding: str | None = None

    @classmethod
    def of(
        cls,
        model: str | Path | None,
        data: Any,
        task: str,
        *,
        overrides: dict | None = None,
        device: str = "auto",
        **options: Any,
    ) -> "FinetuneRequest":
        """The request with the arguments of the Python functions; the path of the data is absolute."""
        path = absolute(data) if isinstance(data, str | Path) else None
        return cls(
            None if model is None else str(model), task, path, overrides=with_device(overrides, device), **options
        )

    @property
    def not_settings(self) -> tuple[str, ...]:
        """With a teacher, `model.*` is the shape of a new student, which `hornbook.runs.distillation` has built."""
        return () if self.teacher is None else (SHAPE,)


def run_folder(out: Path, request: FinetuneRequest, marks: tuple[str, ...] = START_FILES) -> RunFolder:
    return RunFolder(out, "distill" if request.teacher else "finetune", marks)


def sweep_folder(out: Path, request: FinetuneRequest) -> RunFolder:
    """The folder of a sweep, whose record holds only the request."""
    return run_folder(out, request, (SWEEP,))


def write_task_record(
    folder: RunFolder,
    request: FinetuneRequest,
    data: DataSet,
    options: dict[str, Any] | None = None,
    inputs: dict[str, Any] | None = None,
    settings: FinetuneSettings | None = None,
    runtime: Runtime | None = None,
    **info: Any,
) -> None:
    """Writes the record of a command on labelled data; `options` and `inputs` are those besides the request's own and
    the data, and `info` is further information about the run."""
    data_record = {
        "path": request.data,
        "files": list(data.files),
        "fingerprint": fingerprint(data),
        "examples": {name: len(split) for name, split in data.splits.items()},
        "messages": [*data.messages, *data.notes],
        "problems": data.problems.to_dict(),
    }
    folder.write_record(
        request.to_dict() | (options or {}),
        {"data": data_record, **(inputs or {})},
        settings,
        None if runtime is None else runtime.to_record(),
        model=request.model,
        task=request.task,
        kind=data.kind,
        labels=list(data.labels),
        **info,
    )


def check_record(run: dict) -> None:
    """Reads the values that a resumed run needs."""
    FinetuneRequest(**run["request"])
    require(run, "runtime.threads", "runtime.compiles", "model", "task", "inputs.data.fingerprint", "inputs.data.path")
    settings_in(run)


def refuse_other_request(folder: RunFolder, run: dict, request: FinetuneRequest) -> None:
    """Raises a `ValueError` if an option that is given differs from what the run was started with."""
    folder.refuse(request_differences(run["request"], request, settings_in(run)))


def refuse_other_data(folder: RunFolder, run: dict, data: DataSet) -> None:
    recorded = run["inputs"]["data"]
    name = f"the data in {recorded['path'] or 'memory'}"
    folder.refuse_other_input(name, recorded["fingerprint"], fingerprint(data))


def settings_in(run: dict) -> FinetuneSettings:
    kind = TaskDistillationSettings if run["command"] == "distill" else FinetuneSettings
    return configuration.from_dict(kind, run["settings"])
