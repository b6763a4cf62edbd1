"""An experiment's folder as its jobs would leave it, with made-up numbers."""

from pathlib import Path

import numpy as np

from hornbook.evaluation.experiments.definition import Experiment
from hornbook.evaluation.experiments.jobs import ExperimentJob, jobs_of
from hornbook.evaluation.experiments.resolved import ArmBudget, ResolvedExperiment
from hornbook.files import write_json


def decided_for(experiment: Experiment, flops: float = 1.0e16) -> ResolvedExperiment:
    arms = {arm.name: ArmBudget(10_000, flops / 10_000, 15_000.0) for arm in experiment.arms}
    return ResolvedExperiment(experiment, flops, arms, 10.0, "yes", "a made-up device")


def leave(
    out: Path, decided: ResolvedExperiment, means: dict[str, float], spread: float = 0.5, missing: tuple[str, ...] = ()
) -> list[ExperimentJob]:
    """Leaves every job but those whose key holds one of `missing`. An arm's scores lie `spread` around its mean, and
    lower at the earlier checkpoints."""
    tasks = [task.name for task in decided.experiment.tasks]
    jobs = jobs_of(decided, tasks)
    random = np.random.default_rng(0)
    for place, job in enumerate(jobs):
        if any(part in job.key for part in missing):
            continue
        write_json(job.file(out), found_by(job, decided, means, spread, random) | {"seconds": 10.0 + place % 3})
    return jobs


def found_by(job: ExperimentJob, decided: ResolvedExperiment, means: dict[str, float], spread: float, random) -> dict:
    if job.kind == "finetune":
        score = means[job.arm] + 4 * float(np.log2(job.fraction)) + spread * float(random.normal())
        score += {"cola": -40.0, "squad": -10.0}.get(job.task, 5.0)
        return {"score": score, "degenerate": None}
    if job.kind == "pretrain":
        losses = {"loss": 3.0, "mlm": 2.4, "mlm_accuracy": 0.5}
        return {
            "steps": 10_000,
            "tokens": 150_000_000,
            "flops": decided.flops,
            "parameters": 4_700_000 if job.arm.endswith("-all") else 13_400_000,
            "tokens_per_second": 1_234_567.0,
            "updates_per_second": 82.3,
            "memory": {"bytes": 3_400_000_000, "of": "tensors on the device"},
            "device": "a made-up device",
            "losses": {f"{share:g}": losses for share in decided.experiment.equal.checkpoints},
        }
    high = {"shared-words": {"nsp": 78.0, "sop": 50.5}}.get(job.kind, {"nsp": 90.0, "sop": 51.0})
    return {
        name: {"value": value, "low": value - 1.5, "high": value + 1.5, "pairs": 4096} for name, value in high.items()
    }
