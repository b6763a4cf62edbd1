"""The scores of the fine-tuning runs of an experiment: means over seeds and tasks, with intervals.

With several pre-training seeds, each gives one score (the mean over its fine-tuning runs), and intervals are over these
scores. With one pre-training seed, intervals are over fine-tuning seeds and do not include the variation between
pre-training runs; differences between arms then add the seed deviation stated in the experiment.
"""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, variance

from hornbook.evaluation.experiments.definition import TaskPlan
from hornbook.evaluation.experiments.jobs import task_job
from hornbook.evaluation.experiments.resolved import ResolvedExperiment
from hornbook.metrics.confidence_intervals import NORMAL_95, difference_interval, mean_interval

MEAN = "mean"  # key of the mean over tasks


class Scores:
    """The scores of all finished fine-tuning runs of an experiment in the folder `out`, in points out of 100."""

    def __init__(self, out: Path, resolved: ResolvedExperiment, tasks: Sequence[str]):
        self.out, self.resolved, self.equal = out, resolved, resolved.experiment.equal
        self.tasks: list[TaskPlan] = [task for task in resolved.experiment.tasks if task.name in tasks]
        self.num_planned = len(resolved.experiment.tasks)
        # By arm, fraction of the FLOPs, task, pre-training seed, and index of the fine-tuning seed.
        self.values: dict[tuple[str, float, str, int, int], float] = {}
        self.degenerate: set[tuple[str, float, str, int, int]] = set()
        checkpoints = itertools.product(resolved.experiment.arms, self.equal.seeds, self.equal.checkpoints)
        for (arm, seed, fraction), task in itertools.product(checkpoints, self.tasks):
            for i, task_seed in enumerate(task.seeds):
                result = task_job(task, arm.name, seed, fraction, task_seed).result(out)
                if result is not None:
                    key = (arm.name, fraction, task.name, seed, i)
                    self.values[key] = result["score"]
                    if result["degenerate"]:
                        self.degenerate.add(key)

    def mean_scores(self, arm: str, fraction: float, tasks: Sequence[str] | None = None) -> list[float]:
        """The mean over `tasks` (by default all): one score per pre-training seed or, if there is only one, per
        fine-tuning seed that all tasks have."""
        tasks = tasks or [task.name for task in self.tasks]
        by_seed = []
        for seed in self.equal.seeds:
            indices = sorted({key[4] for key in self._keys(arm, fraction, tasks) if key[3] == seed})
            scores = [[self.values.get((arm, fraction, task, seed, i)) for task in tasks] for i in indices]
            by_seed.append([fmean(of_tasks) for of_tasks in scores if None not in of_tasks])
        if len(self.equal.seeds) > 1:
            return [fmean(each) for each in by_seed if each]
        return by_seed[0]

    def num_missing(self, arm: str, fraction: float, tasks: Sequence[str] | None = None) -> int:
        """The number of fine-tuning runs missing for the mean."""
        plans = [task for task in self.tasks if tasks is None or task.name in tasks]
        num_planned = len(self.equal.seeds) * sum(len(task.seeds) for task in plans)
        return num_planned - len(self._keys(arm, fraction, [task.name for task in plans]))

    def has_learned(self, arm: str, fraction: float, tasks: Sequence[str] | None = None) -> bool:
        """Whether at most half of the fine-tuning runs are degenerate: arms that learned nothing look the same."""
        keys = self._keys(arm, fraction, tasks or [task.name for task in self.tasks])
        return sum(key in self.degenerate for key in keys) <= len(keys) / 2

    def _keys(self, arm: str, fraction: float, tasks: Sequence[str]) -> list[tuple[str, float, str, int, int]]:
        return [key for key in self.values if key[:2] == (arm, fraction) and key[2] in tasks]

    def difference(
        self, a: list[float], b: list[float], tasks: Sequence[str] | None = None
    ) -> tuple[float, float, float]:
        """(mean of a - mean of b, low, high); with one pre-training seed, the stated seed deviation is added."""
        middle = fmean(a) - fmean(b)
        low, high = difference_interval(a, b)
        if len(self.equal.seeds) == 1:
            half_width = math.hypot((high - low) / 2, self.min_half_width(tasks))
            low, high = middle - half_width, middle + half_width
        return middle, low, high

    def min_half_width(self, tasks: Sequence[str] | None = None) -> float:
        """Half the width of the interval of a difference from the stated seed deviation alone."""
        return NORMAL_95 * math.sqrt(2) * self._stated_deviation(tasks)

    def deviation(self, a: list[float], b: list[float], tasks: Sequence[str] | None = None) -> float:
        """Standard deviation of the score of one pre-training run, including fine-tuning noise: measured with several
        pre-training seeds, otherwise from the stated deviation."""
        mean_variance = (variance(a) + variance(b)) / 2
        if len(self.equal.seeds) > 1:
            return math.sqrt(mean_variance)
        return math.hypot(self._stated_deviation(tasks), math.sqrt(mean_variance / min(len(a), len(b))))

    def _stated_deviation(self, tasks: Sequence[str] | None) -> float:
        """The stated deviation is of the mean over all planned tasks; for fewer tasks it is scaled up as if tasks were
        independent."""
        return self.equal.seed_deviation * math.sqrt(self.num_planned / max(1, len(tasks or self.tasks)))

    def rows(self) -> list[dict]:
        """Every point: arm, fraction and number of FLOPs, task or `mean`, score with interval, number of scores."""
        rows = []
        for arm, budget in self.resolved.arms.items():
            for fraction in self.equal.checkpoints:
                for task in [MEAN, *(task.name for task in self.tasks)]:
                    values = self.mean_scores(arm, fraction, None if task == MEAN else [task])
                    if values:
                        low, high = mean_interval(values) if len(values) > 1 else (None, None)
                        point = {"arm": arm, "share": fraction, "flops": budget.flops_at(fraction), "task": task}
                        score = {
                            "score": fmean(values),
                            "low": low,
                            "high": high,
                            "of": len(values),
                            "values": values,
                        }
                        rows.append(point | score)
        return rows


def over_seeds(accuracies: Sequence[dict[str, float]]) -> dict[str, float]:
    """The mean accuracy over pre-training seeds, with the union of their intervals."""
    low, high = min(each["low"] for each in accuracies), max(each["high"] for each in accuracies)
    return {"value": fmean([each["value"] for each in accuracies]), "low": low, "high": high}
