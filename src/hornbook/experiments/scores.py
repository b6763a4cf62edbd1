"""What fine-tunings come to: means over seeds and tasks, with intervals.

What is drawn at random decides what an interval is over. Where several pre-training seeds were trained, each gives one
score, the mean over its fine-tunings, and the interval is over those. Where there is one, it is over the fine-tuning
seeds, and says nothing of how another pre-training would have come out: a difference between arms then counts in the
deviation between pre-training seeds that the experiment states.
"""

import math
import statistics
from collections.abc import Sequence
from pathlib import Path

from hornbook.experiments.definition import TaskPlan
from hornbook.experiments.plan import Piece
from hornbook.experiments.resolved import ResolvedExperiment
from hornbook.metrics.bootstrap import difference_interval, mean_interval

MEAN = "mean"  # over the tasks
TWO_SIDED = 1.96  # deviations of a normal distribution that 95% lie within


class Scores:
    """The scores, in points of 100, of all fine-tunings that are done."""

    def __init__(self, out: Path, decided: ResolvedExperiment, tasks: Sequence[str]):
        self.equal = decided.experiment.equal
        self.tasks: list[TaskPlan] = [task for task in decided.experiment.tasks if task.name in tasks]
        self.num_planned = len(decided.experiment.tasks)
        self.found: dict[tuple[str, float, str, int, int], float] = {}
        self.learned_nothing: set[tuple[str, float, str, int, int]] = set()
        for arm in decided.experiment.arms:
            for seed in self.equal.seeds:
                for share in self.equal.checkpoints:
                    for task in self.tasks:
                        for place, task_seed in enumerate(task.seeds):
                            left = Piece("finetune", arm.name, seed, share, task.name, task_seed).found(out)
                            if left is not None:
                                key = (arm.name, share, task.name, seed, place)
                                self.found[key] = left["score"]
                                if left["degenerate"]:
                                    self.learned_nothing.add(key)

    def of_task(self, arm: str, share: float, task: str) -> list[float]:
        """One score for each pre-training seed or, where there is one, for each fine-tuning seed."""
        by_seed = [
            [value for key, value in self.found.items() if key[:4] == (arm, share, task, seed)]
            for seed in self.equal.seeds
        ]
        return self._drawn([each for each in by_seed if each])

    def of_mean(self, arm: str, share: float, tasks: Sequence[str] | None = None) -> list[float]:
        """The same of the mean over tasks, of those seeds that every task has."""
        tasks = tasks or [task.name for task in self.tasks]
        by_seed = []
        for seed in self.equal.seeds:
            places = sorted({key[4] for key in self.found if key[:2] == (arm, share) and key[3] == seed})
            whole = [place for place in places if all((arm, share, task, seed, place) in self.found for task in tasks)]
            by_seed.append([_mean([self.found[arm, share, task, seed, place] for task in tasks]) for place in whole])
        return self._drawn([each for each in by_seed if each])

    def _drawn(self, by_seed: list[list[float]]) -> list[float]:
        if len(self.equal.seeds) > 1:
            return [_mean(each) for each in by_seed]
        return by_seed[0] if by_seed else []

    def num_missing(self, arm: str, share: float, tasks: Sequence[str] | None = None) -> int:
        """Fine-tunings that the mean waits for."""
        plans = [task for task in self.tasks if tasks is None or task.name in tasks]
        wanted = len(self.equal.seeds) * sum(len(task.seeds) for task in plans)
        names = {task.name for task in plans}
        return wanted - sum(key[:2] == (arm, share) and key[2] in names for key in self.found)

    def has_learned(self, arm: str, share: float, tasks: Sequence[str] | None = None) -> bool:
        """Whether half of the fine-tunings or more answer by what they are asked: else arms that learned nothing would
        look alike."""
        names = tasks or [task.name for task in self.tasks]
        keys = [key for key in self.found if key[:2] == (arm, share) and key[2] in names]
        return sum(key in self.learned_nothing for key in keys) <= len(keys) / 2

    def difference(
        self, a: list[float], b: list[float], tasks: Sequence[str] | None = None
    ) -> tuple[float, float, float]:
        """(mean of a - mean of b, low, high), the deviation between pre-training seeds counted in where it is not
        measured."""
        middle = _mean(a) - _mean(b)
        low, high = difference_interval(a, b)
        if len(self.equal.seeds) == 1:
            reach = math.hypot((high - low) / 2, self.least_reach(tasks))
            low, high = middle - reach, middle + reach
        return middle, low, high

    def least_reach(self, tasks: Sequence[str] | None = None) -> float:
        """What the interval of a difference has to either side by the stated deviation alone."""
        return TWO_SIDED * math.sqrt(2) * self._stated_deviation(tasks)

    def deviation(self, a: list[float], b: list[float], tasks: Sequence[str] | None = None) -> float:
        """Of the score of one pre-training, its fine-tunings' chance counted in: measured, or as it is stated."""
        variance = (statistics.variance(a) + statistics.variance(b)) / 2
        if len(self.equal.seeds) > 1:
            return math.sqrt(variance)
        return math.hypot(self._stated_deviation(tasks), math.sqrt(variance / min(len(a), len(b))))

    def _stated_deviation(self, tasks: Sequence[str] | None) -> float:
        """What is stated is of the mean over all planned tasks: that over some of them deviates more, as if each task
        had its own chance."""
        return self.equal.seed_deviation * math.sqrt(self.num_planned / max(1, len(tasks or self.tasks)))

    def rows(self, decided: ResolvedExperiment) -> list[dict]:
        """Every point: arm, share, FLOPs, task or `mean`, score with its interval, how many scores it is of."""
        rows = []
        for arm, budget in decided.arms.items():
            for share in self.equal.checkpoints:
                for task in [MEAN, *(task.name for task in self.tasks)]:
                    values = self.of_mean(arm, share) if task == MEAN else self.of_task(arm, share, task)
                    if values:
                        low, high = mean_interval(values) if len(values) > 1 else (None, None)
                        about = {"arm": arm, "share": share, "flops": budget.flops_at(share), "task": task}
                        point = {"score": _mean(values), "low": low, "high": high, "of": len(values), "values": values}
                        rows.append(about | point)
        return rows


def over_seeds(accuracies: Sequence[dict[str, float]]) -> dict[str, float]:
    """Of one kind of pairs, over pre-training seeds: their mean, and what the intervals of all of them cover."""
    low, high = min(each["low"] for each in accuracies), max(each["high"] for each in accuracies)
    return {"value": _mean([each["value"] for each in accuracies]), "low": low, "high": high}


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
