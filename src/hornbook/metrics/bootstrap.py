"""How far a score may be trusted: intervals from resampled examples, and of the difference between two methods."""

import math
from collections.abc import Callable, Sequence

import numpy as np


def interval(
    score: Callable[[np.ndarray], float], num_examples: int, rounds: int = 1000, level: float = 0.95, seed: int = 0
) -> tuple[float, float]:
    """The percentile bootstrap: (low, high) of `score(indices)` over examples drawn with replacement.

    interval(lambda indices: f1(gold[indices], predicted[indices], "yes"), len(gold))
    """
    return intervals(lambda indices: {"": score(indices)}, num_examples, rounds, level, seed)[""]


def intervals(
    score: Callable[[np.ndarray], dict[str, float]],
    num_examples: int,
    rounds: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, tuple[float, float]]:
    """`interval` of several scores at once, by the same draws. A score that some draws do not have, such as one of a
    kind of example that is not among them, is taken from those that have it."""
    _check(num_examples, rounds, level)
    generator = np.random.default_rng(seed)
    drawn: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, value in score(generator.integers(0, num_examples, num_examples)).items():
            drawn.setdefault(name, []).append(value)
    return {name: _percentiles(values, level) for name, values in drawn.items()}


def crossed_intervals(
    score: Callable[[int, np.ndarray], dict[str, float]],
    num_seeds: int,
    num_examples: int,
    rounds: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, tuple[float, float]]:
    """Of the mean over some seeds of `score(seed, indices)`, where every seed was scored on the same examples: both the
    seeds and the examples are drawn with replacement. Few seeds show too little of the spread between seeds: of two,
    half of its variance."""
    _check(num_seeds, rounds, level)
    generator = np.random.default_rng(seed)

    def mean(indices: np.ndarray) -> dict[str, float]:
        times = np.bincount(generator.integers(0, num_seeds, num_seeds), minlength=num_seeds)
        found = {each: score(each, indices) for each in np.flatnonzero(times).tolist()}
        names = next(iter(found.values()))
        return {name: sum(times[each] * its[name] for each, its in found.items()) / num_seeds for name in names}

    return intervals(mean, num_examples, rounds, level, seed + 1)


def mean_interval(scores: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """Student's t interval of the mean of some seeds' scores. It is a point where all are equal."""
    from scipy.special import stdtrit

    if len(scores) < 2:
        raise ValueError(f"{len(scores)} scores have no spread to judge by; run at least 2 seeds")
    _check(len(scores), 1, level)
    mean = float(np.mean(scores))
    reach = float(stdtrit(len(scores) - 1, 0.5 + level / 2)) * float(np.std(scores, ddof=1)) / math.sqrt(len(scores))
    return mean - reach, mean + reach


def difference_interval(a: Sequence[float], b: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """Welch's t interval of mean(a) - mean(b), for the scores of two methods over some seeds each.

    Where it holds 0, the seeds do not tell the methods apart. It is a point where all scores of each side are equal.
    """
    from scipy.special import stdtrit

    if min(len(a), len(b)) < 2:
        raise ValueError(f"{len(a)} and {len(b)} scores have no spread to judge by; run at least 2 seeds of each")
    _check(len(a), 1, level)
    difference = float(np.mean(a) - np.mean(b))
    squared_errors = [float(np.var(scores, ddof=1)) / len(scores) for scores in (a, b)]
    if sum(squared_errors) == 0:
        return difference, difference
    freedom = sum(squared_errors) ** 2 / sum(
        error**2 / (len(scores) - 1) for error, scores in zip(squared_errors, (a, b), strict=True)
    )
    reach = float(stdtrit(freedom, 0.5 + level / 2)) * math.sqrt(sum(squared_errors))
    return difference - reach, difference + reach


def _percentiles(scores: Sequence[float] | np.ndarray, level: float) -> tuple[float, float]:
    low, high = np.quantile(scores, [0.5 - level / 2, 0.5 + level / 2])
    return float(low), float(high)


def _check(num_examples: int, rounds: int, level: float) -> None:
    if num_examples < 1 or rounds < 1:
        raise ValueError(f"{num_examples} examples and {rounds} rounds give no interval; use at least 1 of each")
    if not 0 < level < 1:
        raise ValueError(f"a level of {level} is not between 0 and 1; for 95 percent use 0.95")
