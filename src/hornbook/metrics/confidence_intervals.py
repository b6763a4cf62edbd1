"""95% confidence intervals: bootstrap over examples, Wilson's of a proportion, and t intervals over seeds and for the
difference of two methods."""

import math
from collections.abc import Callable, Sequence

import numpy as np

NORMAL_95 = 1.959964  # quantile of the normal distribution: 95% lie within plus or minus this
TAILS = (0.025, 0.975)  # quantiles between which 95% lie
ROUNDS = 1000  # resamples


def interval(score: Callable[[np.ndarray], float], num_examples: int) -> tuple[float, float]:
    """The percentile bootstrap interval (low, high) of `score(indices)`, with examples resampled with replacement.

    interval(lambda indices: np.mean(right[indices]), len(right))
    """
    return intervals(lambda indices: {"": score(indices)}, num_examples)[""]


def intervals(
    score: Callable[[np.ndarray], dict[str, float]], num_examples: int, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """`interval` of several scores at once, from the same resamples. A score that is missing from some resamples (for
    example because they contain no example of its class) uses only the resamples that have it."""
    if num_examples < 1:
        raise ValueError(f"{num_examples} examples are too few for an interval; use at least 1")
    generator = np.random.default_rng(seed)
    drawn: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        for name, value in score(generator.integers(0, num_examples, num_examples)).items():
            drawn.setdefault(name, []).append(value)
    return {name: tuple(np.quantile(values, TAILS).tolist()) for name, values in drawn.items()}


def crossed_intervals(
    score: Callable[[int, np.ndarray], dict[str, float]], num_seeds: int, num_examples: int
) -> dict[str, tuple[float, float]]:
    """Intervals of the mean over seeds of `score(seed, indices)`, where every seed was scored on the same examples:
    both seeds and examples are resampled with replacement. With few seeds the variance between seeds is underestimated:
    with two, by half."""
    generator = np.random.default_rng(0)

    def mean(indices: np.ndarray) -> dict[str, float]:
        times_drawn = np.bincount(generator.integers(0, num_seeds, num_seeds), minlength=num_seeds)
        by_seed = {each: score(each, indices) for each in np.flatnonzero(times_drawn).tolist()}
        names = next(iter(by_seed.values()))
        return {
            name: sum(times_drawn[each] * scores[name] for each, scores in by_seed.items()) / num_seeds
            for name in names
        }

    return intervals(mean, num_examples, seed=1)


def wilson_interval(proportion: float, num_examples: int) -> tuple[float, float]:
    """Wilson's 95% interval of a proportion: it stays within 0 and 1, and is not empty where all examples are right.

    >>> low, high = wilson_interval(0.75, 4)
    >>> round(low, 3), round(high, 3)
    (0.301, 0.954)
    """
    z2 = NORMAL_95**2 / num_examples
    centre, width = proportion + z2 / 2, math.sqrt(z2 * proportion * (1 - proportion) + z2 * z2 / 4)
    return max(0.0, (centre - width) / (1 + z2)), min(1.0, (centre + width) / (1 + z2))


def mean_interval(scores: Sequence[float]) -> tuple[float, float]:
    """Student's t interval of the mean score over seeds; both ends equal the mean when all scores are equal."""
    from scipy.special import stdtrit

    if len(scores) < 2:
        raise ValueError(f"an interval needs at least 2 scores, not {len(scores)}; run at least 2 seeds")
    mean = float(np.mean(scores))
    half_width = float(stdtrit(len(scores) - 1, TAILS[1])) * float(np.std(scores, ddof=1)) / math.sqrt(len(scores))
    return mean - half_width, mean + half_width


def difference_interval(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """Welch's t interval of mean(a) - mean(b), for the scores of two methods over several seeds each.

    If the interval contains 0, the difference is not significant at the 5% level. Both ends equal the difference when
    the scores of each method do not vary.
    """
    from scipy.special import stdtrit

    if min(len(a), len(b)) < 2:
        raise ValueError(
            f"an interval needs at least 2 scores per method, not {len(a)} and {len(b)}; run at least 2 seeds of each"
        )
    difference = float(np.mean(a) - np.mean(b))
    squared_errors = [float(np.var(scores, ddof=1)) / len(scores) for scores in (a, b)]
    if sum(squared_errors) == 0:
        return difference, difference
    degrees_of_freedom = sum(squared_errors) ** 2 / sum(
        error**2 / (len(scores) - 1) for error, scores in zip(squared_errors, (a, b), strict=True)
    )
    half_width = float(stdtrit(degrees_of_freedom, TAILS[1])) * math.sqrt(sum(squared_errors))
    return difference - half_width, difference + half_width
