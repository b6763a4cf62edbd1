"""Scores of predicted numbers. The correlations are 0 where one side is constant: they are undefined there."""

from collections.abc import Sequence

import numpy as np


def pearson(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """The linear correlation, between -1 and 1."""
    from scipy import stats

    gold, predicted = _arrays(gold, predicted, at_least=2)
    if _is_constant(gold) or _is_constant(predicted):
        return 0.0
    return float(stats.pearsonr(gold, predicted).statistic)


def spearman(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """The correlation of the ranks, between -1 and 1; equal numbers share their mean rank."""
    from scipy import stats

    gold, predicted = _arrays(gold, predicted, at_least=2)
    if _is_constant(gold) or _is_constant(predicted):
        return 0.0
    return float(stats.spearmanr(gold, predicted).statistic)


def mean_squared_error(gold: Sequence[float], predicted: Sequence[float]) -> float:
    gold, predicted = _arrays(gold, predicted, at_least=1)
    return float(np.mean((gold - predicted) ** 2))


def _arrays(gold: Sequence[float], predicted: Sequence[float], at_least: int) -> tuple[np.ndarray, np.ndarray]:
    if len(gold) != len(predicted):
        raise ValueError(f"{len(gold)} gold numbers but {len(predicted)} predicted; give one prediction an example")
    if len(gold) < at_least:
        raise ValueError(f"{len(gold)} examples cannot be scored; give at least {at_least}")
    return np.asarray(gold, np.float64), np.asarray(predicted, np.float64)


def _is_constant(numbers: np.ndarray) -> bool:
    return bool((numbers == numbers[0]).all())
