"""Runs the jobs of an experiment. A stopped job returns None and resumes exactly in the next run; a finished job
writes a file and is not run again."""

import dataclasses
import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hornbook.evaluation.experiments.definition import TaskPlan
from hornbook.evaluation.experiments.memory import PeakMemory
from hornbook.evaluation.experiments.plan import ExperimentJob
from hornbook.evaluation.experiments.resolved import ResolvedExperiment, open_for
from hornbook.evaluation.experiments.sentences import sentence_head_accuracies, shared_words_accuracies
from hornbook.evaluation.minimal_pairs import minimal_pairs
from hornbook.files import read_json, write_json
from hornbook.interop.folder import load_model
from hornbook.lifecycle.run_folder import Log, read_metrics
from hornbook.runs.finetuning.finetune import open_and_run
from hornbook.runs.finetuning.record import FinetuneRequest
from hornbook.runs.pretraining.pretrain import pretrain
from hornbook.tasks.kinds import KINDS
from hornbook.tasks.reading.read import read
from hornbook.tasks.reading.split import by_article
from hornbook.tasks.records import DataSet
from hornbook.train.job import OnProgress, Outcome, Status

NEVER = 1_000_000_000  # steps between validations: the last weights are scored, none are selected by dev score


@dataclass(frozen=True)
class FinetuningArguments:
    """Everything that a worker process needs for one fine-tuning run."""

    job: ExperimentJob
    plan: TaskPlan
    weights: str
    data: str  # path of the data of the task
    out: str
    overrides: dict[str, Any]
    direction: str | None = None  # in which a hybrid model reads minimal pairs
    until: float | None = None  # deadline in seconds since the epoch; the run then saves and stops


def run_pretraining(
    job: ExperimentJob,
    out: Path,
    resolved: ResolvedExperiment,
    corpora: list[str],
    on_progress: Callable[[Status], bool | None],
    log: Log,
) -> dict | None:
    """Pre-trains an arm for its FLOPs, keeps its checkpoints, and records its cost; None if it was stopped."""
    arm, run = resolved.experiment.arm(job.arm), job.run_folder(out)
    peak_file = Path(out) / "running" / f"{job.key}.memory.json"
    torch.compiler.reset()  # torch recompiles a function at most 8 times, and arms differ in shapes
    with PeakMemory() as peak:
        outcome = pretrain(
            arm.preset,
            corpora,
            run,
            seed=job.seed,
            recipe="published",
            overrides=resolved.overrides_for(arm),
            resume=True,
            on_progress=on_progress,
            log=log,
        )
    before = read_json(peak_file) if peak_file.exists() else {"bytes": 0}
    memory = max(before, {"bytes": peak.bytes, "of": peak.of}, key=lambda each: each["bytes"])
    if outcome.ended == "stopped":
        write_json(peak_file, memory)
        return None
    record = _record(run, outcome, resolved, job) | {"memory": memory}
    write_json(job.file(out), record)
    for unneeded in ("checkpoints", "best"):  # the evaluated weights are in kept/
        shutil.rmtree(run / unneeded, ignore_errors=True)
    peak_file.unlink(missing_ok=True)
    return record


def _record(run: Path, outcome: Outcome, resolved: ResolvedExperiment, job: ExperimentJob) -> dict[str, Any]:
    run_record, lines = read_json(run / "run.json"), read_metrics(run)
    budget = resolved.arms[job.arm]
    speeds = [line["tokens_per_second"] for line in lines if line["kind"] == "train"]
    speed = statistics.median(speeds[1:] or speeds or [0.0])
    validations = {line["step"]: line for line in lines if line["kind"] == "validation"}
    left_out = ("kind", "step", "best")
    checkpoint = load_model(job.weights(run.parents[1], resolved))
    return {
        "steps": outcome.step,
        "tokens": outcome.tokens,
        "seconds": outcome.seconds,
        "words": outcome.tokens * budget.step_words / budget.step_tokens,
        "flops": outcome.tokens * budget.step_flops / budget.step_tokens,
        "parameters": sum(weight.numel() for weight in checkpoint.parameters()),
        "trained_parameters": run_record["parameters"],
        "tokens_per_second": speed,
        "updates_per_second": speed / (outcome.tokens / max(1, outcome.step)) if outcome.tokens else 0.0,
        "device": run_record["runtime"]["reason"],
        "losses": {
            f"{fraction:g}": {name: value for name, value in losses.items() if name not in left_out}
            for fraction in resolved.experiment.equal.checkpoints
            if (losses := validations.get(budget.step_at(fraction)))
        },
    }


def run_finetuning(arguments: FinetuningArguments, on_progress: OnProgress) -> dict | None:
    """Fine-tunes a checkpoint on a task, records its score and deletes the run folder; None if it was stopped."""
    out, job, plan = Path(arguments.out), arguments.job, arguments.plan
    folder = out / "running" / job.key
    request = FinetuneRequest(
        arguments.weights,
        plan.task or plan.name,
        None,
        seed=job.task_seed,
        overrides={"validation.every_steps": NEVER, **arguments.overrides},
    )
    if (folder / "run.json").exists() and read_json(folder / "run.json")["request"] != request.to_dict():
        # Started with other paths or threads: fine-tuning is short, so it starts from scratch.
        shutil.rmtree(folder)
    began = time.monotonic()
    result = open_and_run(folder, request, task_data(plan, Path(arguments.data)), on_progress, lambda message: None)
    if isinstance(result, Outcome):
        return None
    unit = 1.0 if KINDS[plan.known.kind].in_percent else 100.0
    record = {
        "score": unit * result.scores["dev"][plan.metric_for_best]["value"],
        "scores": {name: each["value"] for name, each in result.scores["dev"].items()},
        "degenerate": result.degenerate,
        "training_seconds": result.outcome.seconds,
        "seconds": time.monotonic() - began,
    }
    write_json(job.file(out), record)
    shutil.rmtree(folder)
    return record


def run_minimal_pairs(arguments: FinetuningArguments) -> dict:
    """Scores a checkpoint on minimal pairs, without training, and records its accuracies."""
    began, device = time.monotonic(), arguments.overrides.get("runtime.device", "auto")
    accuracies = minimal_pairs(arguments.weights, arguments.data, direction=arguments.direction, device=device)
    record = {
        "score": 100 * accuracies.mean.value,
        "scores": {name: each.value for name, each in accuracies.paradigms.items()},
        "pairs": accuracies.mean.num_pairs,
        "definition": accuracies.definition,
        "degenerate": None,
        "seconds": time.monotonic() - began,
    }
    write_json(arguments.job.file(Path(arguments.out)), record)
    return record


def task_data(plan: TaskPlan, path: Path) -> DataSet | str:
    """The fine-tuning data of a task: its path or, split by article, the data set."""
    if plan.parts == "as published":
        return str(path)
    data = read(plan.task or plan.name, path, held_out=0, default_split="dev")
    train, dev = by_article(data.splits["dev"])
    return dataclasses.replace(data, splits={"train": train, "dev": dev})


def run_sentence_task(job: ExperimentJob, out: Path, resolved: ResolvedExperiment, corpora: list[str]) -> dict:
    """Runs a job on sentence pairs, `sentence-head` or `shared-words`, and records its accuracies."""
    experiment, began = resolved.experiment, time.monotonic()
    arm = experiment.arm(job.arm) if job.arm else experiment.arms[0]
    settings, sentences = experiment.settings_of(arm), experiment.sentences
    opened_corpora = open_for(settings, corpora)
    if job.kind == "shared-words":
        accuracies = shared_words_accuracies(settings, opened_corpora, sentences.pairs, sentences.fit_pairs)
    else:
        accuracies = sentence_head_accuracies(job.weights(out, resolved), settings, opened_corpora, sentences.pairs)
    accuracies = accuracies | {"seconds": time.monotonic() - began}
    write_json(job.file(out), accuracies)
    return accuracies
