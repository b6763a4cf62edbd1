"""Fine-tuning one GPT on several tasks as text (`joint.py`), with the loss on the answers or on every token.

RUN/run.json              the request and the resolved settings
RUN/config.json, model.safetensors, tokenizer.json, tokenizer_config.json     the weights with the best held-out loss
RUN/checkpoints/, best/, metrics.jsonl

The result is an ordinary GPT: `hornbook prompt RUN --task ... --shots 0` scores it with the same task files.
"""

import dataclasses
import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import hornbook
from hornbook import config as configuration
from hornbook.config import Typed, setting
from hornbook.evaluation.prompting.joint import Documents, Joint, Learns, documents, read_joint
from hornbook.evaluation.prompting.sources import Log
from hornbook.files import read_json, write_json
from hornbook.interop.folder import load_folder, load_weights, read_weights, save_model
from hornbook.interop.hub import model_folder
from hornbook.lifecycle.locking import locks_out
from hornbook.lifecycle.resuming import other_options, other_settings, refuse
from hornbook.models.flops import model_flops_per_token, shape_of
from hornbook.models.gpt import Gpt
from hornbook.objectives.clm import ClmObjective
from hornbook.runs.finetuning.batches import TaskBatches
from hornbook.runs.finetuning.settings import MAX_LR, rounded, width_factor
from hornbook.tasks.features import Features
from hornbook.text.tokenizer import Tokenizer
from hornbook.train.checkpoint import Checkpoints
from hornbook.train.device import Runtime, decide, prepare, torch_settings_restored
from hornbook.train.loop import Job, LoopSettings, Outcome, Status, train
from hornbook.train.settings import (
    BatchSettings,
    CheckpointSettings,
    GuardSettings,
    OptimizerSettings,
    RuntimeSettings,
    ScheduleSettings,
    ValidationSettings,
)
from hornbook.train.validation import validate

COMMAND = "finetune-text"
PUBLISHED_LR = 6.25e-5  # fine-tuning of GPT-1
LONGEST_WITHOUT_VALIDATION = 1000  # steps
UNITS_TOGETHER = 32  # examples per validation batch


@dataclass(frozen=True)
class TextSettings(Typed, group=""):
    """All settings of a fine-tuning run on text tasks, by group."""

    learns: Learns = setting("answer", "tokens that have a loss: only the answers, or all")
    epochs: float = setting(3.0, "passes over the training examples", above=0, high=10_000)
    batch_size: int = setting(32, "examples per batch", low=1, high=1_000_000)
    optimizer: OptimizerSettings = field(default_factory=lambda: OptimizerSettings(lr=PUBLISHED_LR))
    schedule: ScheduleSettings = field(default_factory=lambda: ScheduleSettings(steps=1, warmup_fraction=0.002))
    batch: BatchSettings = field(default_factory=BatchSettings)
    validation: ValidationSettings = field(default_factory=ValidationSettings)
    checkpoint: CheckpointSettings = field(
        default_factory=lambda: CheckpointSettings(every_steps=0, every_minutes=2.0, at_start=False, keep=1)
    )
    guard: GuardSettings = field(default_factory=lambda: GuardSettings(spike_deviations=0.0))
    runtime: RuntimeSettings = field(default_factory=lambda: RuntimeSettings(tensorboard=False, loader_workers=0))

    def loop(self) -> LoopSettings:
        return LoopSettings(
            self.optimizer, self.schedule, self.batch, self.checkpoint, self.validation, self.guard, self.runtime
        )


def text_settings(model: Gpt, overrides: dict) -> TextSettings:
    """GPT-1's published settings with overrides; narrow models use a higher learning rate."""
    lr = rounded(min(MAX_LR, PUBLISHED_LR * width_factor(model.config.width)))
    default = dataclasses.replace(TextSettings(), optimizer=OptimizerSettings(lr=lr))
    return configuration.with_overrides(default, overrides)


def opened_gpt(name: str | Path) -> tuple[Gpt, Tokenizer]:
    model, tokenizer = load_folder(model_folder(name))
    if not isinstance(model, Gpt) or "clm" not in model.heads:
        raise ValueError(f"{name} is not a GPT with a clm head, which --task text needs: give one, or another --task")
    return model, tokenizer


@locks_out
@torch_settings_restored()
def finetune_text(
    model: str | Path,
    data: str | Path | None,
    out: str | Path,
    *,
    overrides: dict | None = None,
    resume: bool = False,
    on_progress: Callable[[Status], None] | None = None,
    log: Log = print,
) -> Outcome:
    """Fine-tunes a GPT on the tasks in the file `data` (`joint.py`) into the run folder `out`. With `resume`, `data`
    and `overrides` may be left out.

    >>> import hornbook
    >>> hornbook.finetune_text("runs/gpt", "joint.toml", "runs/joint", overrides={"epochs": 1})  # doctest: +SKIP
    """
    out = Path(out)
    has_run = (out / "run.json").exists()
    if has_run and not resume:
        raise ValueError(f"{out} already holds a run: add --resume to continue it, or choose another --out")
    if not has_run and out.exists() and any(path for path in out.iterdir() if not path.name.endswith(".tmp")):
        raise ValueError(f"{out} exists and is not a run: choose another --out, or empty it")
    record = _read_run(out) if has_run else None
    data = record["data"]["path"] if data is None and record is not None else data
    if data is None:
        raise ValueError("--data is missing: give a .toml file that lists the tasks")
    if record is not None:
        _refuse_other_request(out, record, model, overrides or {})
    joint = read_joint(data)
    trained, tokenizer = opened_gpt(model)
    settings = text_settings(trained, overrides or {}) if record is None else _settings_in(record)
    found = documents(joint, tokenizer, trained.config.max_positions, settings.learns, log)
    if record is None:
        settings = _with_steps(settings, found.train)
    request = _request(model, data, settings, found, overrides or {})
    flops, before = _planned_flops(trained, settings, found.train), (None, None)
    if record is not None:
        if record["data"]["fingerprint"] != request["data"]["fingerprint"]:
            raise ValueError(f"{out} was started with other data than {data}: restore it, or choose another --out")
        before = record["runtime"]["threads"], record["runtime"]["compiles"]  # both affect the bits of the weights
    runtime = decide(settings.runtime, flops, *before)
    prepare(runtime)
    log(f"{sum(p.numel() for p in trained.parameters()):,} parameters; {runtime.reason}")
    if not has_run:
        write_json(out / "run.json", request | _about(trained, joint, runtime))
    job = _job(trained, tokenizer, found, settings, runtime)
    outcome = train(out, job, settings.loop(), runtime, on_progress or (lambda status: None))
    if outcome.ended != "stopped":
        Checkpoints(out).publish(out / "best")
    return outcome


def _with_steps(settings: TextSettings, features: Features) -> TextSettings:
    steps_per_epoch = math.ceil(features.num_units / settings.batch_size)
    steps = max(1, round(steps_per_epoch * settings.epochs))
    overrides: dict[str, Any] = {"schedule.steps": steps}
    overrides["runtime.log_every_steps"] = max(1, min(settings.runtime.log_every_steps, steps // 50))
    if settings.validation.every_steps is None:
        overrides["validation.every_steps"] = min(steps_per_epoch, LONGEST_WITHOUT_VALIDATION)
    return configuration.with_overrides(settings, overrides)


def _request(
    model: str | Path, data: str | Path, settings: TextSettings, found: Documents, overrides: dict
) -> dict[str, Any]:
    digest = hashlib.sha256()
    for features in (found.train, found.held_out):
        for ids, targets in zip(features.ids, features.token_labels, strict=True):
            digest.update(ids.tobytes() + b"|" + targets.tobytes() + b"\n")
    return {
        "command": COMMAND,
        "preset": ", ".join(each["task"] for each in found.about),
        "from": str(model),
        "request": {"overrides": {name: str(value) for name, value in overrides.items()}},
        "data": {"path": str(Path(data).resolve()), "fingerprint": digest.hexdigest(), "tasks": found.about},
        "settings": configuration.to_dict(settings),
    }


def _read_run(out: Path) -> dict[str, Any]:
    record = read_json(out / "run.json")
    if record.get("command") != COMMAND:
        raise ValueError(f"{out} is not a run of --task text: choose another --out")
    return record


def _settings_in(record: dict[str, Any]) -> TextSettings:
    return configuration.from_dict(TextSettings, record["settings"])


def _refuse_other_request(out: Path, record: dict[str, Any], model: str | Path, overrides: dict[str, Any]) -> None:
    other_model = other_options({"model": record["from"]}, {"model": str(model)})
    recorded = record.get("request", {}).get("overrides", {})
    refuse(out, other_model + other_settings(_settings_in(record), recorded, overrides))


def _about(model: Gpt, joint: Joint, runtime: Runtime) -> dict[str, Any]:
    return {
        "hornbook": hornbook.__version__,
        "torch": torch.__version__,
        "family": model.family,
        "heads": list(model.heads),
        "parameters": sum(p.numel() for p in model.parameters()),
        "joint": configuration.to_dict(joint),
        "runtime": {
            "device": str(runtime.device),
            "threads": runtime.threads,
            "compiles": runtime.compiles,
            "reason": runtime.reason,
        },
    }


def _planned_flops(model: Gpt, settings: TextSettings, features: Features) -> float:
    num_tokens = sum(map(len, features.ids))
    shape = shape_of(model.config, num_tokens / len(features.ids), 1.0, "clm")
    return num_tokens * model_flops_per_token(shape) * settings.epochs


def _job(model: Gpt, tokenizer: Tokenizer, found: Documents, settings: TextSettings, runtime: Runtime) -> Job:
    objective = ClmObjective()
    if runtime.compiles:
        model.compile_parts()
        objective.compile()
    units = range(found.held_out.num_units)
    held_out = [found.held_out.batch(units[i : i + UNITS_TOGETHER]) for i in units[::UNITS_TOGETHER]]

    def save(folder: Path) -> None:
        tokenizer.save(folder, model.config.max_positions, model.config.num_segments)
        save_model(folder, model)

    def load(folder: Path) -> None:
        load_weights(model, read_weights(folder), folder)

    def check(micro_tokens: int) -> dict[str, float]:
        return validate(model, objective, held_out, runtime, micro_tokens)

    batches = TaskBatches(found.train, settings.batch_size, settings.runtime.seed)
    return Job(model, objective, batches, check, save, load)
