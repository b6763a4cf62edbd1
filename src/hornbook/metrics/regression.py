"""Scores of predicted numbers. The correlations are 0 where one side is constant: they are undefined there."""

from collections.abc import Sequence

import numpy as np


def pearson(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """The linear correlation, between -1 and 1."""
    gold, predicted = _arrays(gold, predicted, at_least=2)
    if _is_constant(gold) or _is_constant(predicted):
        return 0.0
    return float(np.clip(_unit(gold) @ _unit(predicted), -1, 1))


def spearman(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """The correlation of the ranks, between -1 and 1; equal numbers share their mean rank."""
    gold, predicted = _arrays(gold, predicted, at_least=2)
    return pearson(ranks(order(gold)), ranks(order(predicted)))


def mean_squared_error(gold: Sequence[float], predicted: Sequence[float]) -> float:
    gold, predicted = _arrays(gold, predicted, at_least=1)
    return float(np.mean((gold - predicted) ** 2))


def order(numbers: np.ndarray) -> np.ndarray:
    """Each number's place among the distinct ones, which `ranks` of any of them follow from; -1 where it is none."""
    places = np.unique(numbers, return_inverse=True)[1]
    places[np.isnan(numbers)] = -1
    return places


def ranks(places: np.ndarray) -> np.ndarray:
    """From 1; equal numbers share the mean of theirs. All are undefined where one number is."""
    if places.min() < 0:
        return np.full(len(places), np.nan)
    counts = np.bincount(places)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]


def _unit(numbers: np.ndarray) -> np.ndarray:
    """Less their mean, and of length 1."""
    apart = numbers - numbers.mean()
    apart /= np.abs(apart).max()  # squares of very large or small numbers would not be finite or not be there
    return apart / np.sqrt(apart @ apart)


def _arrays(gold: Sequence[float], predicted: Sequence[float], at_least: int) -> tuple[np.ndarray, np.ndarray]:
    if len(gold) != len(predicted):
        raise ValueError(f"{len(gold)} gold numbers but {len(predicted)} predicted; give one prediction an example")
    if len(gold) < at_least:
        raise ValueError(f"{len(gold)} examples cannot be scored; give at least {at_least}")
    return np.asarray(gold, np.float64), np.asarray(predicted, np.float64)


def _is_constant(numbers: np.ndarray) -> bool:
    return bool((numbers == numbers[0]).all())
