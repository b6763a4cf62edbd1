"""The jobs of an experiment in the order they run, and where their results are stored. A job is one unit of work: a
pre-training run, a fine-tuning run, or an evaluation on sentence pairs.

OUT/jobs/KEY.json              result of a finished job, which is never run again
OUT/pretrained/ARM-SEED/       pre-training run, with the weights of each checkpoint in kept/
OUT/running/KEY/               unfinished job; deleted when it finishes

Each arm is pre-trained, its sentence head evaluated, and its checkpoints fine-tuned (the last one first) before the
next arm starts. On a machine that is only available for a while, finished arms then no longer need their weights.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hornbook.data.sequences import LABELLED
from hornbook.evaluation.experiments.definition import TaskPlan
from hornbook.evaluation.experiments.resolved import ResolvedExperiment
from hornbook.files import read_json
from hornbook.train.checkpoint import kept_folder

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
        return f"{self.task}{task_seed}, on {self.arm}{seed} at {100 * self.fraction:.4g}% of the FLOPs"

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
        """The checkpoint that the job evaluates."""
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
            if has_sentences and experiment.settings_of(arm).layout in LABELLED:
                jobs.append(ExperimentJob("sentence-head", arm.name, seed))
            for fraction in reversed(experiment.equal.checkpoints):
                jobs += [task_job(task, arm.name, seed, fraction, task_seed) for task, task_seed in task_seeds]
    return jobs
