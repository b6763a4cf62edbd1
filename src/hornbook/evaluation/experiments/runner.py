"""Runs or resumes an experiment: its jobs one after another, fine-tunings optionally in parallel.

OUT/run.json                       values resolved at the start (`resolved.py`)
OUT/jobs/, pretrained/, running/   jobs (`jobs.py`)
OUT/results.json                   scores, costs and verdicts from the finished jobs
OUT/report.html, score-by-flops.png, RESULTS-NAME.md
"""

import contextlib
import os
import statistics
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hornbook.config import checked, with_overrides
from hornbook.evaluation.experiments.definition import Experiment, TaskPlan, read_experiment
from hornbook.evaluation.experiments.jobs import (
    ExperimentJob,
    FinetuningArguments,
    jobs_of,
    run_finetuning,
    run_minimal_pairs,
    run_pretraining,
    run_sentence_task,
    task_data,
    tasks_of,
)
from hornbook.evaluation.experiments.pool import Pool
from hornbook.evaluation.experiments.resolved import ResolvedExperiment, check_record, resolve
from hornbook.evaluation.experiments.results import write_results
from hornbook.evaluation.minimal_pairs import read_pairs
from hornbook.files import hash_of, num_cores
from hornbook.lifecycle.job_locks import JobLocks, lock_or_join_output_folder
from hornbook.lifecycle.run_folder import Log, RunFolder, ignore
from hornbook.lifecycle.stopping import Signals
from hornbook.report import formatting
from hornbook.report.experiment import write_experiment_page
from hornbook.runs.pretraining.batches import corpus_names
from hornbook.runs.pretraining.minutes import FEW_STEPS
from hornbook.tasks.reading.read import read
from hornbook.tasks.records import fingerprint
from hornbook.train.job import OnProgress, Stopped, TrainingProgress


@dataclass
class ExperimentResult:
    """`ended`: `finished`, `stopped` (by a signal or the time limit), or `incomplete` (jobs failed)."""

    ended: str
    num_done: int
    num_jobs: int
    results: dict
    failures: dict[str, str] = field(default_factory=dict)


@lock_or_join_output_folder
def reproduce(
    name: str | Path,
    corpora: Sequence[str | Path] | str | Path,
    data: str | Path,
    out: str | Path,
    *,
    arms: Sequence[str] | None = None,
    flops: float | None = None,
    seeds: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    minutes_each: float | None = None,
    stop_after: float | None = None,
    processes: int = 1,
    resume: bool = False,
    join: bool = False,
    device: str = "auto",
    on_progress: OnProgress | None = None,
    log: Log = print,
) -> ExperimentResult:
    """Runs or resumes an experiment, like the `hornbook reproduce` command.

    `arms`, `flops`, `seeds` (number of pre-training seeds) and `overrides` (pre-training settings) default to those of
    the file. `minutes_each` and `stop_after` are in minutes. With `join`, the jobs are shared with other processes that
    have the same arguments and `out`, on this machine or others: each takes jobs that none has taken, and waits for the
    rest. The jobs of a process that dies are taken over.

    >>> import hornbook
    >>> hornbook.reproduce("equal-compute", "corpus", "tasks", "runs/equal", minutes_each=10)  # doctest: +SKIP
    """
    if join and processes > 1:
        raise ValueError("join= shares the runs with other processes: start more of those instead of giving processes=")
    flops = checked(flops, float | None, "flops", above=0, high=1e30)
    minutes_each = checked(minutes_each, float | None, "minutes_each", above=0, high=525_600)
    stop_after = checked(stop_after, float | None, "stop_after", above=0, high=525_600)
    processes = checked(processes, int, "processes", low=1, high=256)
    seeds = checked(seeds, int | None, "seeds", low=1, high=1000)
    if flops is not None and minutes_each is not None:
        raise ValueError("flops= and minutes_each= both set the training length of an arm: give one of them")
    until = None if stop_after is None else time.time() + 60 * stop_after
    out, job_locks, corpora = Path(out), JobLocks(out, is_shared=join), corpus_names(corpora)
    folder = RunFolder(out, "reproduce", what="an experiment")
    with job_locks.wait_for("start"):
        run = folder.read_record(check_record) if folder.is_started(resume or join) else None
        recorded = {} if run is None else run["request"]  # options that apply if it is resumed without them
        flops = recorded.get("flops") if flops is None and minutes_each is None else flops
        overrides = recorded.get("set", {}) | dict(overrides or {})
        experiment = read_experiment(name)
        experiment = experiment if arms is None else experiment.with_arms(arms)
        experiment = experiment.with_settings(overrides) if overrides else experiment
        experiment = experiment if device == "auto" else experiment.on_device(device)
        experiment = experiment if flops is None else with_overrides(experiment, {"equal.flops": flops})
        experiment = experiment if seeds is None else experiment.with_seeds(seeds)
        data_paths = find_tasks(experiment, Path(data), log)
        fingerprints = {task: fingerprint_of(experiment.task(task), path) for task, path in data_paths.items()}
        options = {"flops": flops, "set": overrides}  # arms and seeds may be extended later
        resolved = resolve(folder, run, experiment, corpora, fingerprints, minutes_each, log, options)
    on_progress = on_progress or ignore
    with Signals() as signals, contextlib.closing(Pool(processes)) as pool:
        return _Runner(out, resolved, corpora, data_paths, pool, job_locks, signals, until, on_progress, log).run()


def find_tasks(experiment: Experiment, data: Path, log: Log) -> dict[str, Path]:
    """The data path of each task. Tasks without data are left out with a log message."""
    if experiment.tasks and not data.is_dir():
        raise ValueError(f"{data} is not a folder: give the folder of the task data")
    paths = {}
    for task in experiment.tasks:
        path = next((data / each for each in task.paths if (data / each).exists()), None)
        if path is None:
            candidates = " or ".join(str(data / each) for each in task.paths)
            log(f"note: no data for {task.name} (looked for {candidates}); it is left out")
            continue
        paths[task.name] = path
    if experiment.tasks and not paths:
        places = ", ".join(str(task.paths[0]) for task in experiment.tasks)
        raise ValueError(f"{data} has data for none of the tasks: put it at {places} there")
    return paths


def fingerprint_of(task: TaskPlan, path: Path) -> str:
    """The fingerprint of the data of a task. Raises for unreadable data now, before hours of pre-training."""
    if task.is_zero_shot:
        return hash_of(read_pairs(path))
    data = task_data(task, path)
    data_set = read(task.task or task.name, data) if isinstance(data, str) else data
    for split in ("train", "dev"):
        if not data_set.splits.get(split):
            raise ValueError(f"the data of {task.name} in {path} has no {split} split: add one")
    return fingerprint(data_set)


@dataclass
class _Runner:
    out: Path
    resolved: ResolvedExperiment
    corpora: list[str]
    data_paths: dict[str, Path]
    pool: Pool
    job_locks: JobLocks
    signals: Signals
    until: float | None
    on_progress: OnProgress
    log: Log
    failures: dict[str, str] = field(default_factory=dict)
    missing_weights: set[Path] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.tasks = tasks_of(self.out, self.resolved, list(self.data_paths))
        self.jobs = jobs_of(self.resolved, self.tasks)
        self.numbers = {job: number for number, job in enumerate(self.jobs, 1)}

    def run(self) -> ExperimentResult:
        """Runs the jobs, or those that no other process has taken, until all are done or the rest has failed here."""
        done = sum(job.is_done(self.out) for job in self.jobs)
        self.log(f"{len(self.jobs)} jobs, {done} done; {self.resolved.amount} per pre-training run")
        steps = {arm.name: self.resolved.arms[arm.name].steps for arm in self.resolved.experiment.arms}
        if few := [f"{name} {num}" for name, num in steps.items() if num < FEW_STEPS]:
            self.log(
                f"note: models learn little in so few steps: {', '.join(few)}; raise the FLOPs or words of an arm, or "
                "lower batch.tokens"
            )
        jobs = {job.key: job for job in self.jobs}
        is_stopped = False

        def missing() -> Iterator[str]:
            return (job.key for job in self.jobs if self._is_next(job))

        def should_stop() -> bool:
            return is_stopped or self._should_stop()

        self._write()
        for key in self.job_locks.share(missing, lambda key: jobs[key].is_done(self.out), should_stop, self.log):
            if jobs[key].kind == "finetune" and self.pool.num_processes > 1:
                is_stopped = not self._run_in_pool()
            else:
                is_stopped = not self._run_here(jobs[key])
                self._write()
        with self.job_locks.wait_for("results"):
            results = write_results(self.out, self.resolved, self.jobs, self.tasks)
            write_experiment_page(self.out)
        num_done = sum(job.is_done(self.out) for job in self.jobs)
        ended = "finished" if num_done == len(self.jobs) else "stopped" if should_stop() else "incomplete"
        return ExperimentResult(ended, num_done, len(self.jobs), results, self.failures)

    def _write(self) -> None:
        """Updates results.json: at the start and after every job, so that it is right if the process is killed."""
        with self.job_locks.wait_for("results"):
            write_results(self.out, self.resolved, self.jobs, self.tasks)

    def _is_next(self, job: ExperimentJob) -> bool:
        return not job.is_done(self.out) and job.key not in self.failures and self._can_run(job)

    def _can_run(self, job: ExperimentJob) -> bool:
        """Whether the data of a job and the weights of its pre-training run are there; logs missing weights once."""
        if job.kind in ("pretrain", "shared-words"):
            return True
        pretraining = ExperimentJob("pretrain", job.arm, job.seed)
        if (job.is_task and job.task not in self.data_paths) or not pretraining.is_done(self.out):
            return False
        weights = job.weights(self.out, self.resolved)
        if not weights.is_dir() and weights not in self.missing_weights:
            self.missing_weights.add(weights)
            self.log(
                f"note: {weights} is missing, which {job.description} and others need: copy it from where "
                f"{job.arm} was trained, or delete {pretraining.file(self.out)} to train it again"
            )
        return weights.is_dir()

    def _should_stop(self) -> bool:
        return bool(self.signals.stop) or (self.until is not None and time.time() > self.until)

    def _run_here(self, job: ExperimentJob) -> bool:
        """Runs a job in this process; returns False if the experiment should stop."""
        self.log(f"[{self.numbers[job]} of {len(self.jobs)}] {job.description}{self._time_left()}")

        def on_progress(progress: TrainingProgress) -> bool:
            self.on_progress(progress)
            return self._should_stop()

        try:
            if job.kind == "pretrain":
                run_pretraining(job, self.out, self.resolved, self.corpora, on_progress, self.log)
            elif job.kind == "score":
                self._log_score(job, run_minimal_pairs(job, self.out, self.resolved, self.data_paths[job.task]))
            elif job.kind == "finetune":
                self._log_score(job, run_finetuning(self._finetuning(job), on_progress))
            else:
                run_sentence_task(job, self.out, self.resolved, self.corpora)
        except Stopped:
            return False
        except Exception as error:
            self._record_failure(job, error)
        return True

    def _run_in_pool(self) -> bool:
        """Runs the next fine-tunings in parallel processes; returns False if the experiment should stop."""
        group = [job for job in self.jobs if job.kind == "finetune" and self._is_next(job)]
        self.log(f"{len(group)} fine-tuning runs, {self.pool.num_processes} at a time{self._time_left()}")
        took = self._seconds_per_job()  # longest first, so that no long run is left at the end
        group = sorted(group, key=lambda job: took.get(job.cost_group, 0.0), reverse=True)

        def on_result(arguments: FinetuningArguments, result: dict | Exception) -> None:
            if isinstance(result, Exception):
                self._record_failure(arguments.job, result)
            else:
                self._log_score(arguments.job, result)
            self._write()

        return self.pool.run(list(map(self._finetuning, group)), self._should_stop, on_result, self.log)

    def _finetuning(self, job: ExperimentJob) -> FinetuningArguments:
        experiment = self.resolved.experiment
        equal, plan = experiment.equal, experiment.task(job.task)
        overrides = equal.finetuning | plan.settings
        if self.pool.num_processes > 1:
            overrides = {"runtime.threads": max(1, num_cores() // self.pool.num_processes)} | overrides
        weights = str(job.weights(self.out, self.resolved))
        data = str(self.data_paths[job.task])
        return FinetuningArguments(job, plan, weights, data, str(self.out), overrides, self.until)

    def _record_failure(self, job: ExperimentJob, error: Exception) -> None:
        """Logs the failure of a job. The other jobs still run; --resume tries it again."""
        if os.environ.get("HORNBOOK_TRACEBACK"):
            traceback.print_exception(error)
        self.failures[job.key] = str(error).partition("\n")[0] or type(error).__name__
        self.log(f"note: {job.description} failed: {self.failures[job.key]}; continuing with the others")

    def _log_score(self, job: ExperimentJob, result: dict) -> None:
        degenerate = f" (note: {result['degenerate']})" if result["degenerate"] else ""
        count = f"[{self.numbers[job]} of {len(self.jobs)}]"
        self.log(f"{count} {job.description}: {result['score']:.1f} in {result['seconds']:.0f} s{degenerate}")

    def _time_left(self) -> str:
        """Estimated remaining time, from the durations of the finished jobs; empty if unknown."""
        took = self._seconds_per_job()
        if self.resolved.minutes_each is not None:
            took.setdefault(("pretrain",), 60 * self.resolved.minutes_each)
        seconds = 0.0
        for job in self.jobs:
            if job.is_done(self.out):
                continue
            known = took.get(job.cost_group, took.get((job.kind,)))
            if known is None and (job.kind == "pretrain" or job.is_task):
                return ""
            at_once = self.pool.num_processes if job.kind == "finetune" else 1
            seconds += (known or 0.0) / at_once
        return f"; about {formatting.duration(seconds)} left in total" if seconds else ""

    def _seconds_per_job(self) -> dict[tuple, float]:
        """Mean duration of the finished jobs by cost group and by kind."""
        took: dict[tuple, list[float]] = {}
        for job in self.jobs:
            if (result := job.result(self.out)) is not None:
                for cost_group in (job.cost_group, (job.kind,)):
                    took.setdefault(cost_group, []).append(result["seconds"])
        return {cost_group: statistics.fmean(seconds) for cost_group, seconds in took.items()}
