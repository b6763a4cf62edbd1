"""`run.json` of a fine-tuning run: the request and the resolved settings, from which a run is resumed."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

import hornbook
from hornbook import config as configuration
from hornbook.config import LARGEST_SEED, Typed, setting
from hornbook.files import read_json, refusing_damage, write_json
from hornbook.lifecycle.resuming import other_options, other_settings, refuse
from hornbook.runs.finetuning.settings import FinetuneSettings, TaskDistillationSettings
from hornbook.tasks.records import DataSet, fingerprint
from hornbook.train.device import Runtime

SCORES = "scores.json"  # written last: a run with this file is finished
SHAPE = "model."  # prefix of the settings of a model's shape
SETTINGS = ("epochs", "lr", "batch_size", "seed", "overrides")  # fields of a request that are settings


@dataclass(frozen=True)
class Request(Typed, group="--"):
    """The user's request, as the command takes it. `data` is None if the data was passed in memory."""

    model: str
    task: str
    data: str | None
    text: str | None = None
    pair: str | None = None
    label: str | None = None
    epochs: float | None = setting(None, "passes over the training split", above=0, high=10_000)
    lr: float | None = setting(None, "peak learning rate", above=0, high=100)
    batch_size: int | None = setting(None, "examples in a batch", low=1, high=1_000_000)
    seed: int | None = setting(None, "random seed", low=0, high=LARGEST_SEED)
    from_random: bool = False
    strict: bool = False
    overrides: dict = field(default_factory=dict)
    teacher: str | None = None
    delimiter: str | None = None
    encoding: str | None = None

    def all_overrides(self) -> dict:
        """All overrides by dotted name, including the settings that have their own option. With a teacher, `model.*` is
        left out: it is the shape of a new student, which `hornbook.runs.distillation` has already built."""
        flags = {
            "epochs": self.epochs,
            "optimizer.lr": self.lr,
            "batch_size": self.batch_size,
            "runtime.seed": self.seed,
        }
        overrides = self.overrides
        if self.teacher is not None:
            overrides = {name: value for name, value in overrides.items() if not name.startswith(SHAPE)}
        return overrides | {name: value for name, value in flags.items() if value is not None}

    def to_dict(self) -> dict:
        """The request as recorded in `run.json`, with the values of overrides as strings."""
        return asdict(self) | {"overrides": {name: str(value) for name, value in self.overrides.items()}}


@dataclass(frozen=True)
class Scored:
    """A finished folder: the scores of each split, and a message if the model is degenerate."""

    out: Path
    scores: dict[str, Any]
    decided_by: str
    degenerate: str | None

    @property
    def score(self) -> float:
        """The dev score of the deciding measure."""
        return self.scores["dev"][self.decided_by]["value"]


def base_record(command: str, request: Request, data: DataSet) -> dict[str, Any]:
    """The part of `run.json` that all commands on labelled data share."""
    return {
        "hornbook": hornbook.__version__,
        "torch": torch.__version__,
        "command": command,
        "model": request.model or None,
        "task": request.task,
        "kind": data.kind,
        "labels": list(data.labels),
        "request": request.to_dict(),
        "data": {
            "path": request.data,
            "files": list(data.files),
            "fingerprint": fingerprint(data),
            "examples": {name: len(split) for name, split in data.parts.items()},
            "said": list(data.messages),
            "problems": data.problems.as_dict(),
        },
    }


def write_run(
    out: Path, request: Request, settings: FinetuneSettings, data: DataSet, runtime: Runtime, about: dict[str, Any]
) -> None:
    write_json(
        out / "run.json",
        {
            **base_record(command_of(request), request, data),
            "runtime": {
                "device": str(runtime.device),
                "threads": runtime.threads,
                "compiles": runtime.compiles,
                "reason": runtime.reason,
            },
            **about,
            "settings": configuration.to_dict(settings),
            "unused": configuration.unused_names(settings),
        },
    )


def command_of(request: Request) -> str:
    return "distill" if request.teacher else "finetune"


def read_run(out: Path, command: str = "finetune") -> dict:
    """The record of the run in `out`; raises a `ValueError` if another command wrote it or if it is damaged."""
    run = read_json(out / "run.json")
    missing = {"model", "task", "request", "settings", "data", "runtime"} - run.keys()
    if missing or run.get("command") != command:
        lacks = f"lacks {sorted(missing)[0]}" if missing else f"is of '{run.get('command')}'"
        raise ValueError(f"{out / 'run.json'} {lacks}, so it is not a run of {command}: choose another --out")
    with refusing_damage(out / "run.json"):
        Request(**run["request"])
        run["runtime"]["threads"], run["runtime"]["compiles"], run["data"]["fingerprint"], run["data"]["path"]
        settings_of(run)
    return run


def refuse_other_request(out: Path, run: dict, request: Request) -> None:
    """Raises a `ValueError` if an option or setting of the request differs from what the run in `out` was started
    with. Options that are not given are taken from its record."""
    before, settings = run["request"], settings_of(run)
    stages = {f"stages.{name}": value for name, value in getattr(settings, "stages", {}).items()}
    given = request.all_overrides() | request.overrides
    unlisted = {name: str(value) for name, value in given.items() if name.startswith((SHAPE, "stages."))}
    recorded = {name: str(value) for name, value in (stages | before["overrides"]).items()}
    listed = {name: value for name, value in given.items() if name not in unlisted}
    refuse(
        out,
        other_options(before, _options(request))
        + other_options(recorded, unlisted)
        + other_settings(settings, before["overrides"], listed),
    )


def refuse_other_tries(out: Path, before: dict, request: Request) -> None:
    """Like `refuse_other_request`, for restarts and searches, for which only the request is recorded."""
    recorded = Request(**before)
    known = {name: str(value) for name, value in (recorded.all_overrides() | recorded.overrides).items()}
    given = {name: str(value) for name, value in (request.all_overrides() | request.overrides).items()}
    refuse(out, other_options(before, _options(request)) + other_options(known, given))


def _options(request: Request) -> dict[str, Any]:
    return {name: value for name, value in vars(request).items() if name not in SETTINGS}


def refuse_other_data(run: dict, data: DataSet) -> None:
    if fingerprint(data) != run["data"]["fingerprint"]:
        raise ValueError(
            f"the data in {run['data']['path'] or 'memory'} is not the data that this run was started with: restore "
            "it, or start a new run"
        )


def settings_of(run: dict) -> FinetuneSettings:
    kind = TaskDistillationSettings if run["command"] == "distill" else FinetuneSettings
    return configuration.from_dict(kind, run["settings"])
