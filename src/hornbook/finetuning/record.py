"""`run.json` of a fine-tuning run: what was asked and everything that was decided. A run is resumed from it."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

import hornbook
from hornbook import config as configuration
from hornbook.config import LARGEST_SEED, Typed, setting
from hornbook.files import read_json, refusing_damage, write_json
from hornbook.finetuning.settings import FinetuneSettings, TaskDistillationSettings
from hornbook.lifecycle.resuming import other_options, other_settings, refuse
from hornbook.tasks.records import DataSet, fingerprint
from hornbook.train.device import Runtime

SCORES = "scores.json"  # written last: a folder with it is finished
SHAPE = "model."  # what settings of a model's shape begin with
SETTINGS = ("epochs", "lr", "batch_size", "seed", "overrides")  # of a request, all of them settings by dotted name


@dataclass(frozen=True)
class Request(Typed, group="--"):
    """What a person asked for, as the command takes it. `data` is None where it was handed over in memory."""

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
        """The changes by dotted name, with those that have a flag of their own. `model.*` beside a teacher is the shape
        of a new student, which is made before (`hornbook.distillation`)."""
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
        """As it is written down: the changes as text, however they were given."""
        return asdict(self) | {"overrides": {name: str(value) for name, value in self.overrides.items()}}


@dataclass(frozen=True)
class Scored:
    """A finished folder: the scores of each part, and what is wrong with the model, if anything."""

    out: Path
    scores: dict[str, Any]
    decided_by: str
    degenerate: str | None

    @property
    def score(self) -> float:
        """The dev score that decides between models."""
        return self.scores["dev"][self.decided_by]["value"]


def asked_of(verb: str, request: Request, data: DataSet) -> dict[str, Any]:
    """What the `run.json` of every verb on labelled data begins with."""
    return {
        "hornbook": hornbook.__version__,
        "torch": torch.__version__,
        "command": verb,
        "model": request.model or None,
        "task": request.task,
        "kind": data.kind,
        "labels": list(data.labels),
        "request": request.to_dict(),
        "data": {
            "path": request.data,
            "files": list(data.files),
            "fingerprint": fingerprint(data),
            "examples": {name: len(part) for name, part in data.parts.items()},
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
            **asked_of(command_of(request), request, data),
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


def read_run(out: Path, verb: str = "finetune") -> dict:
    run = read_json(out / "run.json")
    missing = {"model", "task", "request", "settings", "data", "runtime"} - run.keys()
    if missing or run.get("command") != verb:
        lacks = f"lacks {sorted(missing)[0]}" if missing else f"is of '{run.get('verb')}'"
        raise ValueError(f"{out / 'run.json'} {lacks}: it is not one that {verb} wrote; choose another --out")
    with refusing_damage(out / "run.json"):
        Request(**run["request"])
        run["runtime"]["threads"], run["runtime"]["compiles"], run["data"]["fingerprint"], run["data"]["path"]
        settings_of(run)
    return run


def refuse_other_request(out: Path, run: dict, request: Request) -> None:
    """What is given again must be what the run in `out` was started with; the rest is taken from its record."""
    before, settings = run["request"], settings_of(run)
    stages = {f"stages.{name}": value for name, value in getattr(settings, "stages", {}).items()}
    given = request.all_overrides() | request.overrides
    unlisted = {name: str(value) for name, value in given.items() if name.startswith((SHAPE, "stages."))}
    recorded = {name: str(value) for name, value in (stages | before["overrides"]).items()}
    iter_settings = {name: value for name, value in given.items() if name not in unlisted}
    refuse(
        out,
        other_options(before, _options(request))
        + other_options(recorded, unlisted)
        + other_settings(settings, before["overrides"], iter_settings),
    )


def refuse_other_tries(out: Path, before: dict, request: Request) -> None:
    """The same of several runs, of which only the request is recorded."""
    recorded = Request(**before)
    known = {name: str(value) for name, value in (recorded.all_overrides() | recorded.overrides).items()}
    given = {name: str(value) for name, value in (request.all_overrides() | request.overrides).items()}
    refuse(out, other_options(before, _options(request)) + other_options(known, given))


def _options(request: Request) -> dict[str, Any]:
    return {name: value for name, value in vars(request).items() if name not in SETTINGS}


def refuse_other_data(run: dict, data: DataSet) -> None:
    if fingerprint(data) != run["data"]["fingerprint"]:
        raise ValueError(
            f"the data in {run['data']['path'] or 'memory'} is not what this run began with: put that back, or start a "
            "new run"
        )


def settings_of(run: dict) -> FinetuneSettings:
    kind = TaskDistillationSettings if run["command"] == "distill" else FinetuneSettings
    return configuration.from_dict(kind, run["settings"])
