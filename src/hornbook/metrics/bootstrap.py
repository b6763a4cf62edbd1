"""How far a score may be trusted: intervals from resampled examples, and of the difference between two methods."""

import math
from collections.abc import Callable, Sequence

import numpy as np

INDICES_AT_ONCE = 1 << 22  # 32 MB of indices


def interval(
    score: Callable[[np.ndarray], float], num_examples: int, rounds: int = 1000, level: float = 0.95, seed: int = 0
) -> tuple[float, float]:
    """The percentile bootstrap: (low, high) of `score(indices)` over examples drawn with replacement.

    interval(lambda indices: f1(gold[indices], predicted[indices], "yes"), len(gold))
    """
    _check(num_examples, rounds, level)
    generator = np.random.default_rng(seed)
    return _percentiles(
        [score(generator.integers(0, num_examples, num_examples)) for _ in range(rounds)],
        level,
    )


def mean_interval(
    per_example: Sequence[float] | np.ndarray, rounds: int = 1000, level: float = 0.95, seed: int = 0
) -> tuple[float, float]:
    """`interval` for a score that is the mean over examples: the same draws, many rounds at once."""
    values = np.asarray(per_example, np.float64)
    _check(len(values), rounds, level)
    generator = np.random.default_rng(seed)
    at_once = max(1, INDICES_AT_ONCE // len(values))
    means = [
        values[generator.integers(0, len(values), (min(at_once, rounds - done), len(values)))].mean(1)
        for done in range(0, rounds, at_once)
    ]
    return _percentiles(np.concatenate(means), level)


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
