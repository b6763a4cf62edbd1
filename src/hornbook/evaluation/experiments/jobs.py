"""The jobs of an experiment in the order they run, where their results are stored, and how each is run. A job is one
unit of work: a pre-training run, a fine-tuning run, or an evaluation on sentence pairs.

OUT/jobs/KEY.json              result of a finished job, which is never run again
OUT/pretrained/ARM-SEED/       pre-training run, with the weights of each checkpoint in kept/
OUT/running/KEY/               unfinished job; deleted when it finishes

Each arm is pre-trained, its sentence head evaluated, and its checkpoints fine-tuned (the last one first) before the
next arm starts. On a machine that is only available for a while, finished arms then no longer need their weights.

A stopped job raises `Stopped` and resumes exactly in the next run; a finished job writes a file and is not run again.
"""

import dataclasses
import gc
import resource
import shutil
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from hornbook.data.sequences import SENTENCE_LAYOUTS
from hornbook.evaluation.experiments.definition import TaskPlan
from hornbook.evaluation.experiments.resolved import ResolvedExperiment
from hornbook.evaluation.experiments.sentence_pairs import sentence_head_accuracies, shared_words_accuracies
from hornbook.evaluation.minimal_pairs import minimal_pairs
from hornbook.files import read_json, write_json
from hornbook.interop.folder import load_model
from hornbook.lifecycle.run_folder import Log, ignore, read_metrics
from hornbook.models.transformer import count_parameters
from hornbook.runs.finetuning.record import FinetuneRequest
from hornbook.runs.finetuning.single_run import open_and_run
from hornbook.runs.pretraining.batches import open_corpora
from hornbook.runs.pretraining.pretrain import pretrain
from hornbook.tasks.reading.read import by_article, read
from hornbook.tasks.records import DataSet
from hornbook.train.checkpoint import kept_folder
from hornbook.train.job import OnProgress, Outcome, Stopped

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"  # tells Linux to reset the peak resident size to the current one
NEVER = 1_000_000_000  # steps between validations: the last weights are scored, none are selected by dev score
Kind = Literal["shared-words", "pretrain", "sentence-head", "finetune", "score"]


@dataclass(frozen=True)
class ExperimentJob:
    """Identifies a job; fields that do not apply to its kind have their defaults."""

    kind: Kind
    arm: str = ""
    seed: int = 0  # of pre-training
    fraction: float = 1.0  # of the FLOPs, at the checkpoint
    task: str = ""
    task_seed: int = 0

    @property
    def is_task(self) -> bool:
        """Whether the job gives the score of a checkpoint on a task."""
        return self.kind in ("finetune", "score")

    @property
    def key(self) -> str:
        """The name of the job in file names."""
        if self.is_task:
            return f"{self.kind}-{self.arm}-{self.seed}-at-{self.fraction:g}-{self.task}-{self.task_seed}"
        return self.kind if self.kind == "shared-words" else f"{self.kind}-{self.arm}-{self.seed}"

    @property
    def description(self) -> str:
        """Describes the job in log messages."""
        if self.kind == "shared-words":
            return "shared-word classifier on sentence pairs"
        seed = f", seed {self.seed}" if self.seed else ""
        if self.kind == "pretrain":
            return f"pre-training {self.arm}{seed}"
        if self.kind == "sentence-head":
            return f"both sentence tasks with the head of {self.arm}{seed}"
        task_seed = f", seed {self.task_seed}" if self.kind == "finetune" else ""
        pretraining_seed = f" (pre-training seed {self.seed})" if self.seed else ""
        return f"{self.task}{task_seed}, on {self.arm}{pretraining_seed} at {100 * self.fraction:.4g}% of the FLOPs"

    @property
    def cost_group(self) -> tuple[str, str]:
        """Jobs of the same group take about equally long."""
        return self.kind, self.task if self.is_task else self.arm

    def file(self, out: Path) -> Path:
        return Path(out) / "jobs" / f"{self.key}.json"

    def is_done(self, out: Path) -> bool:
        return self.file(out).exists()

    def result(self, out: Path) -> dict | None:
        """The result of the job, None if it is not finished."""
        return read_json(self.file(out)) if self.is_done(out) else None

    def run_folder(self, out: Path) -> Path:
        """The folder of the pre-training run that the job belongs to."""
        return Path(out) / "pretrained" / f"{self.arm}-{self.seed}"

    def weights(self, out: Path, resolved: ResolvedExperiment) -> Path:
        return kept_folder(self.run_folder(out), resolved.arms[self.arm].step_at(self.fraction))


def task_job(task: TaskPlan, arm: str, seed: int, fraction: float, task_seed: int) -> ExperimentJob:
    """The job that gives the score of a checkpoint on a task: fine-tuning, or scoring without training."""
    return ExperimentJob("score" if task.is_zero_shot else "finetune", arm, seed, fraction, task.name, task_seed)


def tasks_of(out: Path, resolved: ResolvedExperiment, with_data: list[str]) -> list[str]:
    """Names of the tasks that have data or finished jobs; existing results stay when the data is gone."""
    done = {file.stem for kind in ("finetune", "score") for file in (Path(out) / "jobs").glob(f"{kind}-*.json")}
    every = [task.name for task in resolved.experiment.tasks]
    has_jobs = {job.task for job in jobs_of(resolved, every) if job.key in done}
    return [task for task in every if task in with_data or task in has_jobs]


def jobs_of(resolved: ResolvedExperiment, tasks: list[str]) -> list[ExperimentJob]:
    """All jobs for these tasks, in the order they run."""
    experiment = resolved.experiment
    plans = [task for task in experiment.tasks if task.name in tasks]
    has_sentences = experiment.sentences.pairs > 0
    jobs = [ExperimentJob("shared-words")] if has_sentences else []

    # Every task with its first seed, then every task with its second, and so on.
    num_seeds = max((len(task.seeds) for task in plans), default=0)
    task_seeds = [(task, task.seeds[i]) for i in range(num_seeds) for task in plans if i < len(task.seeds)]
    for seed in experiment.equal.seeds:
        for arm in experiment.arms:
            jobs.append(ExperimentJob("pretrain", arm.name, seed))
            if has_sentences and experiment.settings_of(arm).layout in SENTENCE_LAYOUTS:
                jobs.append(ExperimentJob("sentence-head", arm.name, seed))
            for fraction in reversed(experiment.equal.checkpoints):
                jobs += [task_job(task, arm.name, seed, fraction, task_seed) for task, task_seed in task_seeds]
    return jobs


# ---- running them


@dataclass(frozen=True)
class FinetuningArguments:
    """Everything that a worker process needs for one fine-tuning run."""

    job: ExperimentJob
    plan: TaskPlan
    weights: str
    data: str  # path of the data of the task
    out: str
    overrides: dict[str, Any]
    until: float | None = None  # deadline in seconds since the epoch; the run then saves and stops


def run_pretraining(
    job: ExperimentJob,
    out: Path,
    resolved: ResolvedExperiment,
    corpora: list[str],
    on_progress: OnProgress,
    log: Log,
) -> dict:
    """Pre-trains an arm for its FLOPs, keeps its checkpoints, and records its cost."""
    arm, run = resolved.experiment.arm(job.arm), job.run_folder(out)
    peak_file = Path(out) / "running" / f"{job.key}.memory.json"
    torch.compiler.reset()  # torch recompiles a function at most 8 times, and arms differ in shapes
    options = {"seed": job.seed, "recipe": "published", "overrides": resolved.overrides_for(arm), "resume": True}
    peak = PeakMemory()
    try:
        with peak:
            outcome = pretrain(arm.preset, corpora, run, **options, on_progress=on_progress, log=log)
    except Stopped:
        write_json(peak_file, _larger(peak, peak_file))
        raise
    record = _record(run, outcome, resolved, job) | {"memory": _larger(peak, peak_file)}
    write_json(job.file(out), record)
    for unneeded in ("checkpoints", "best"):  # the evaluated weights are in kept/
        shutil.rmtree(run / unneeded, ignore_errors=True)
    peak_file.unlink(missing_ok=True)
    return record


def _larger(peak: "PeakMemory", file: Path) -> dict[str, Any]:
    """The larger one of a peak and of that of the run before it was stopped, which is in the file."""
    before = read_json(file) if file.exists() else {"bytes": 0}
    return max(before, {"bytes": peak.bytes, "of": peak.kind}, key=lambda each: each["bytes"])


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
        "parameters": count_parameters(checkpoint),
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


def run_finetuning(arguments: FinetuningArguments, on_progress: OnProgress) -> dict:
    """Fine-tunes a checkpoint on a task, records its score and deletes the run folder."""
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
    result = open_and_run(folder, request, task_data(plan, Path(arguments.data)), on_progress, ignore)
    record = {
        "score": 100 * result.scores["dev"][plan.metric_for_best]["value"],
        "scores": {name: each["value"] for name, each in result.scores["dev"].items()},
        "degenerate": result.degenerate,
        "training_seconds": result.outcome.seconds,
        "seconds": time.monotonic() - began,
    }
    write_json(job.file(out), record)
    shutil.rmtree(folder)
    return record


def run_minimal_pairs(job: ExperimentJob, out: Path, resolved: ResolvedExperiment, data: Path) -> dict:
    """Scores a checkpoint on minimal pairs, without training, and records its accuracies."""
    experiment, began = resolved.experiment, time.monotonic()
    direction = experiment.arm(job.arm).directions.get(job.task)
    device = experiment.equal.finetuning.get("runtime.device", "auto")
    accuracies = minimal_pairs(job.weights(out, resolved), data, direction=direction, device=device)
    record = {
        "score": 100 * accuracies.mean.value,
        "scores": {name: each.value for name, each in accuracies.paradigms.items()},
        "pairs": accuracies.mean.num_pairs,
        "definition": accuracies.definition,
        "degenerate": None,
        "seconds": time.monotonic() - began,
    }
    write_json(job.file(out), record)
    return record


def task_data(plan: TaskPlan, path: Path) -> DataSet | str:
    """The fine-tuning data of a task: its path or, split by article, the data set."""
    if plan.split == "as published":
        return str(path)
    data = read(plan.task or plan.name, path, held_out=0, default_split="dev")
    train, dev = by_article(data.splits["dev"])
    return dataclasses.replace(data, splits={"train": train, "dev": dev})


def run_sentence_task(job: ExperimentJob, out: Path, resolved: ResolvedExperiment, corpora: list[str]) -> dict:
    """Runs a job on sentence pairs, `sentence-head` or `shared-words`, and records its accuracies."""
    experiment, began = resolved.experiment, time.monotonic()
    arm = experiment.arm(job.arm) if job.arm else experiment.arms[0]
    settings, sentences = experiment.settings_of(arm), experiment.sentences
    opened_corpora = open_corpora(corpora, settings)
    if job.kind == "shared-words":
        accuracies = shared_words_accuracies(settings, opened_corpora, sentences.pairs, sentences.fit_pairs)
    else:
        accuracies = sentence_head_accuracies(job.weights(out, resolved), settings, opened_corpora, sentences.pairs)
    accuracies = accuracies | {"seconds": time.monotonic() - began}
    write_json(job.file(out), accuracies)
    return accuracies


# ---- memory


class PeakMemory:
    """Measures the peak memory of a block: `bytes`, and `kind` of memory.

    with PeakMemory() as peak:
        ...
    peak.bytes, peak.kind
    """

    bytes: int = 0
    kind: str = ""

    def __enter__(self) -> "PeakMemory":
        release_memory()  # memory of earlier work does not count
        if torch.cuda.is_initialized():  # otherwise there is no peak yet, and torch refuses
            for gpu in range(torch.cuda.device_count()):
                torch.cuda.reset_peak_memory_stats(gpu)
        self.is_reset = _reset_peak()
        return self

    def __exit__(self, *_: object) -> None:
        gpus = range(torch.cuda.device_count())
        if peak := max(map(torch.cuda.max_memory_allocated, gpus), default=0):
            self.bytes, self.kind = peak, "tensors on the device"
        elif self.is_reset:
            line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
            self.bytes, self.kind = 1024 * int(line.split()[1]), "resident memory of the process"
        else:
            unit = 1 if sys.platform == "darwin" else 1024
            self.bytes = unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            self.kind = "resident memory of the process, since its start"
        release_memory()


def release_memory() -> None:
    """Collects reference cycles and empties the CUDA cache, because other processes share the device."""
    gc.collect()
    if torch.cuda.is_initialized():
        torch._C._cuda_clearCublasWorkspaces()  # otherwise they keep their memory blocks alive, also those of graphs
        torch.cuda.empty_cache()


def _reset_peak() -> bool:
    try:
        CLEAR.write_text(RESET_PEAK)
        return "VmHWM:" in STATUS.read_text()
    except OSError:
        return False
