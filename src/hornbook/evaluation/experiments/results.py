"""`OUT/results.json`: the results of the finished jobs of an experiment, from which its report is built."""

from collections import Counter
from pathlib import Path
from typing import Any

from hornbook.evaluation.experiments.jobs import ExperimentJob
from hornbook.evaluation.experiments.resolved import ResolvedExperiment
from hornbook.evaluation.experiments.scores import MEAN, Scores, judge, minutes_of, over_seeds
from hornbook.files import write_json
from hornbook.report.experiment import RESULTS


def write_results(
    out: Path, resolved: ResolvedExperiment, jobs: list[ExperimentJob], tasks: list[str]
) -> dict[str, Any]:
    experiment, scores = resolved.experiment, Scores(out, resolved, tasks)
    missing = [job for job in jobs if not job.is_done(out)]
    results = {
        "kind": "experiment",
        "name": experiment.name,
        "title": experiment.title or experiment.name,
        "about": experiment.about.strip(),
        "flops": resolved.flops,
        "words": experiment.equal.words,
        "minutes_each": resolved.minutes_each,
        "device": resolved.device,
        "seeds": list(experiment.equal.seeds),
        "seed_deviation": experiment.equal.seed_deviation,
        "min_half_width": scores.min_half_width(),
        "checkpoints": list(experiment.equal.checkpoints),
        "num_jobs": len(jobs),
        "num_done": len(jobs) - len(missing),
        "missing": _missing(missing),
        "tasks": {
            task.name: {
                "metric": task.metric_for_best,
                "seeds": len(task.seeds),
                "split": task.split,
                "has_data": task.name in tasks,
            }
            for task in experiment.tasks
        },
        "mean": MEAN,
        "arms": {arm.name: _arm(arm.name, scores) for arm in experiment.arms},
        "scores": scores.rows(),
        "degenerate": _degenerate(out, jobs),
        "shared_words": _accuracies([ExperimentJob("shared-words")], out),
        "claims": [judge(claim, scores) for claim in experiment.claims],
    }
    write_json(out / RESULTS, results)
    return results


def _arm(name: str, scores: Scores) -> dict[str, Any]:
    """Label and published score of an arm, cost of its first seed, and sentence-head accuracies over all seeds."""
    out, resolved, seeds = scores.out, scores.resolved, scores.equal.seeds
    arm, budget = resolved.experiment.arm(name), resolved.arms[name]
    return {
        "label": arm.title,
        "preset": arm.preset,
        "panels": list(arm.panels),
        "published": arm.published,
        "planned_steps": budget.steps,
        "planned_flops": budget.flops_at(1.0),
        "planned_words": budget.steps * budget.step_words,
        "minutes": minutes_of(name, scores),
        "record": ExperimentJob("pretrain", name, seeds[0]).result(out),
        "sentence_head": _accuracies([ExperimentJob("sentence-head", name, seed) for seed in seeds], out),
    }


def _accuracies(jobs: list[ExperimentJob], out: Path) -> dict[str, dict] | None:
    """Accuracies on NSP and SOP pairs over the finished jobs; None if there are none."""
    done = [result for job in jobs if (result := job.result(out)) is not None]
    return {kind: over_seeds([each[kind] for each in done]) for kind in ("nsp", "sop")} if done else None


def _degenerate(out: Path, jobs: list[ExperimentJob]) -> list[str]:
    """Degenerate fine-tuning runs, one line per checkpoint and task. Their scores still count."""
    groups: dict[tuple, list[str | None]] = {}
    for job in jobs:
        if job.is_task and (result := job.result(out)) is not None:
            groups.setdefault((job.arm, job.seed, job.fraction, job.task), []).append(result["degenerate"])
    lines = []
    for (arm, seed, fraction, task), reasons in groups.items():
        if known := [reason for reason in reasons if reason]:
            where = f"{task} on {arm}{f', seed {seed},' if seed else ''} at {100 * fraction:.4g}% of the FLOPs"
            lines.append(f"{where}: {len(known)} of {len(reasons)}, {' or '.join(dict.fromkeys(known))}")
    return lines


def _missing(jobs: list[ExperimentJob]) -> dict[str, int]:
    """The number of missing jobs by kind and arm."""
    counts: dict[str, int] = Counter()
    kinds = {
        "pretrain": "pre-training",
        "sentence-head": "sentence tasks",
        "finetune": "fine-tuning",
        "score": "scoring",
        "shared-words": "shared words",
    }
    for job in jobs:
        name = f"{kinds[job.kind]} {job.arm}".strip()
        name += f" at {job.fraction:.4g}" if job.is_task else ""
        counts[name] += 1
    return counts
