"""The scores of the fine-tuning runs of an experiment: means over seeds and tasks, with intervals; and the verdict on
each claim, by the rule stated in the experiment.

With several pre-training seeds, each gives one score (the mean over its fine-tuning runs), and intervals are over these
scores. With one pre-training seed, intervals are over fine-tuning seeds and do not include the variation between
pre-training runs; differences between arms then add the seed deviation stated in the experiment.

A condition of a claim is a metric with an interval, and bounds. It holds if the interval is within the bounds, and does
not hold at this scale if the interval is outside. It is not decided if the interval contains a bound, while jobs are
missing, or if an arm learned next to nothing. A claim holds if all its conditions hold, and does not hold if one of
them does not. A premise alone does not refute a claim: if it does not hold, the other conditions on its arm are not
decided.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, variance

from hornbook.evaluation.experiments.definition import Claim, Condition, TaskPlan
from hornbook.evaluation.experiments.jobs import ExperimentJob, task_job
from hornbook.evaluation.experiments.resolved import ResolvedExperiment
from hornbook.metrics.confidence_intervals import NORMAL_95, difference_interval, mean_interval
from hornbook.report.formatting import counted

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


# ---- verdicts


HOLDS, FAILS, UNDECIDED = "holds", "does not hold at this scale", "not decided"


@dataclass(frozen=True)
class Measurement:
    """A measured value with its interval. `missing`: what is not measured yet. `deviation`: standard deviation of the
    score of one pre-training run, for differences between arms. `not_learned`: which arms learned next to nothing, so
    that the value is meaningless. `note` is appended to the text."""

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    missing: str = ""
    deviation: float = math.nan
    unit: str = " points"
    not_learned: str = ""
    note: str = ""

    @property
    def text(self) -> str:
        sign = "+" if self.unit == " points" else ""
        has_interval = self.low != self.high and not math.isnan(self.low)
        interval = f" ({self.low:{sign}.1f} to {self.high:{sign}.1f})" if has_interval else ""
        return f"{self.value:{sign}.1f}{self.unit}{interval}{self.note}"

    def verdict(self, condition: Condition) -> str:
        if self.missing or self.not_learned or math.isnan(self.low):
            return UNDECIDED
        return verdict_of_interval(self.low, self.high, condition.min, condition.max)


def verdict_of_interval(low: float, high: float, minimum: float | None, maximum: float | None) -> str:
    """Whether an interval is inside its bounds (holds), outside (does not hold), or contains one (not decided).

    >>> [verdict_of_interval(low, high, 0.0, None) for low, high in ((0.4, 2.0), (-3.0, -1.0), (-1.0, 1.0))]
    ['holds', 'does not hold at this scale', 'not decided']
    """
    minimum = -math.inf if minimum is None else minimum
    maximum = math.inf if maximum is None else maximum
    if low > minimum and high < maximum:
        return HOLDS
    return FAILS if high <= minimum or low >= maximum else UNDECIDED


def judge(claim: Claim, scores: Scores) -> dict:
    """The verdict on a claim with its reason, and the results of its conditions."""
    judged = [
        (condition, found := measured(condition, scores), found.verdict(condition)) for condition in claim.conditions
    ]
    # The arms whose premise does not hold: failed conditions on them refute nothing, and more seeds decide nothing.
    doubtful = {condition.arm for condition, _, verdict in judged if condition.premise and verdict != HOLDS}
    fails = [condition.arm for condition, _, verdict in judged if verdict == FAILS and not condition.premise]
    if all(verdict == HOLDS for _, _, verdict in judged):
        overall = HOLDS
    else:
        overall = FAILS if set(fails) - doubtful else UNDECIDED
    conditions = [_result_of(*each) for each in judged]
    return {
        "name": claim.name,
        "description": claim.description,
        "verdict": overall,
        "reason": "; ".join(each["reason"] for each in conditions),
        "would_decide": _would_decide(claim, conditions, doubtful) if overall == UNDECIDED else "",
        "published": claim.published,
        "conditions": conditions,
    }


def _result_of(condition: Condition, measurement: Measurement, verdict: str) -> dict:
    bounds = [f"above {condition.min:g}"] if condition.min is not None else []
    bounds += [f"below {condition.max:g}"] if condition.max is not None else []
    reason = f"{condition.description}: {verdict}"
    if not math.isnan(measurement.value):
        reason += f", {measurement.text}, must be {' and '.join(bounds)}"
    reason += "".join(f", because {why}" for why in (measurement.missing, measurement.not_learned) if why)
    can_narrow = verdict == UNDECIDED and not (measurement.missing or measurement.not_learned)
    numbers = {name: getattr(measurement, name) for name in ("value", "low", "high")}
    return {
        "description": condition.description,
        "verdict": verdict,
        **{name: None if math.isnan(number) else number for name, number in numbers.items()},
        "reason": reason,
        "missing": measurement.missing,
        "seeds_needed": _seeds_needed(condition, measurement) if can_narrow else None,
    }


def _seeds_needed(condition: Condition, measurement: Measurement) -> int | None:
    """The number of pre-training seeds per arm for which Welch's interval no longer contains the nearest bound, if the
    value and the deviation stay the same."""
    from scipy.special import stdtrit

    bounds = [bound for bound in (condition.min, condition.max) if bound is not None]
    distance = min(abs(measurement.value - bound) for bound in bounds)
    if math.isnan(measurement.deviation) or distance < 1e-9:
        return None
    num_seeds = max(2, math.ceil(2 * (NORMAL_95 * measurement.deviation / distance) ** 2))  # a slight underestimate
    while stdtrit(2 * num_seeds - 2, 0.975) * measurement.deviation * math.sqrt(2 / num_seeds) > distance:
        num_seeds += 1
    return num_seeds


def _would_decide(claim: Claim, results: list[dict], doubtful: set[str]) -> str:
    """What would decide an open claim. More seeds cannot decide a condition whose premise does not hold."""
    if any(each["missing"] for each in results):
        return "the missing jobs"
    judged = zip(claim.conditions, results, strict=True)
    needed = [
        each["seeds_needed"] for condition, each in judged if each["seeds_needed"] and condition.arm not in doubtful
    ]
    more_seeds = f"about {max(needed)} pre-training seeds per arm, if the means stay the same" if needed else ""
    return "; ".join(filter(None, (claim.would_decide, more_seeds)))


# ---- metrics of conditions


def measured(condition: Condition, scores: Scores) -> Measurement:
    """The value of the metric of a condition, at the full FLOPs."""
    metrics = {
        "score-difference": _difference,
        "score": _score,
        "minutes": _minutes,
        "parameters": _parameters,
        "sentence-head": _accuracy,
        "shared-words": _accuracy,
    }
    return metrics[condition.metric](condition, scores)


def _difference(condition: Condition, scores: Scores) -> Measurement:
    tasks, arms = [condition.task] if condition.task else None, (condition.arm, condition.minus)
    if no_data := _no_data(condition, scores):
        return Measurement(missing=no_data)
    a, b = (scores.mean_scores(arm, 1.0, tasks) for arm in arms)
    are_scored = all(task.is_zero_shot for task in scores.tasks if tasks is None or task.name in tasks)
    counts = {arm: scores.num_missing(arm, 1.0, tasks) for arm in arms}
    missing = _missing(counts, "score" if are_scored else "fine-tuning run")
    if not a or not b:
        return Measurement(missing=missing)
    if min(len(a), len(b)) < 2:
        return Measurement(fmean(a) - fmean(b), missing=missing or "a single score has no interval")
    idle = [arm for arm in arms if not scores.has_learned(arm, 1.0, tasks)]
    not_learned = f"most fine-tuning runs of {' and '.join(idle)} are no better than chance" if idle else ""
    few = tasks is None and len(scores.tasks) < scores.num_planned
    note = f" over {len(scores.tasks)} of {scores.num_planned} tasks" if few else ""
    return Measurement(
        *scores.difference(a, b, tasks), missing, scores.deviation(a, b, tasks), not_learned=not_learned, note=note
    )


def _score(condition: Condition, scores: Scores) -> Measurement:
    """The score of one arm, with its interval over seeds."""
    if no_data := _no_data(condition, scores):
        return Measurement(missing=no_data)
    tasks = [condition.task] if condition.task else None
    values = scores.mean_scores(condition.arm, 1.0, tasks)
    missing = _missing({condition.arm: scores.num_missing(condition.arm, 1.0, tasks)}, "score")
    if not values:
        return Measurement(missing=missing)
    if len(values) < 2:
        return Measurement(fmean(values), missing=missing or "a single score has no interval", unit="")
    return Measurement(fmean(values), *mean_interval(values), missing, unit="")


def _no_data(condition: Condition, scores: Scores) -> str:
    """Why there are no scores for a condition; empty if there may be some."""
    names = [task.name for task in scores.tasks]
    is_there = condition.task in names if condition.task else names
    return "" if is_there else f"there is no data for {condition.task or 'any task'}"


def minutes_of(arm: str, scores: Scores) -> float | None:
    """Minutes of pre-training and of scoring without training, of the slowest seed; None if there is none yet."""
    totals = []
    for seed in scores.equal.seeds:
        jobs = [ExperimentJob("pretrain", arm, seed)]
        jobs += [task_job(task, arm, seed, 1.0, 0) for task in scores.resolved.experiment.tasks if task.is_zero_shot]
        results = [job.result(scores.out) for job in jobs]
        totals += [] if None in results else [sum(result["seconds"] for result in results) / 60]
    return max(totals, default=None)


def _minutes(condition: Condition, scores: Scores) -> Measurement:
    minutes = minutes_of(condition.arm, scores)
    if minutes is None:
        return Measurement(missing=f"{condition.arm} is not trained and scored yet")
    return Measurement(minutes, minutes, minutes, unit=" minutes")


def _missing(counts: dict[str, int], noun: str) -> str:
    """For example `1 fine-tuning run of nsp and 2 fine-tuning runs of mlm are missing`."""
    phrases = [f"{counted(num, noun)} of {arm}" for arm, num in counts.items() if num]
    is_or_are = "is" if sum(counts.values()) == 1 else "are"
    return f"{' and '.join(phrases)} {is_or_are} missing" if phrases else ""


def _parameters(condition: Condition, scores: Scores) -> Measurement:
    arms = (condition.arm, condition.over)
    results = [ExperimentJob("pretrain", arm, scores.equal.seeds[0]).result(scores.out) for arm in arms]
    if None in results:
        return Measurement(missing=f"{arms[results.index(None)]} is not pre-trained yet")
    percent = 100 * results[0]["parameters"] / results[1]["parameters"]
    return Measurement(percent, percent, percent, unit="%")


def _accuracy(condition: Condition, scores: Scores) -> Measurement:
    if condition.metric == "shared-words":
        jobs = [ExperimentJob("shared-words")]
    else:
        jobs = [ExperimentJob("sentence-head", condition.arm, seed) for seed in scores.equal.seeds]
    accuracies = [result[condition.pairs] for job in jobs if (result := job.result(scores.out)) is not None]
    missing = " and ".join(f"{job.description} is not done yet" for job in jobs if not job.is_done(scores.out))
    if not accuracies:
        return Measurement(missing=missing)
    return Measurement(**over_seeds(accuracies), missing=missing, unit="%")
