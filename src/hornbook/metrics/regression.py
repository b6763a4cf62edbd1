"""Scores of predicted numbers. Correlations are 0 where gold or predictions are constant (undefined by definition)."""

from collections.abc import Callable, Sequence

import numpy as np


def pearson(gold: Sequence[float], predicted: Sequence[float]) -> float:
    gold, predicted = _arrays(gold, predicted, at_least=2)
    if _is_constant(gold) or _is_constant(predicted):
        return 0.0
    return float(np.clip(_unit(gold) @ _unit(predicted), -1, 1))


def mean_errors(gold: Sequence[float], predicted: Sequence[float]) -> dict[str, float]:
    """The mean absolute error, in the unit of the numbers, and the mean squared error."""
    gold, predicted = _arrays(gold, predicted, at_least=1)
    errors = gold - predicted
    return {"mean_absolute_error": float(np.abs(errors).mean()), "mean_squared_error": float(np.mean(errors**2))}


def order(numbers: np.ndarray) -> np.ndarray:
    """Index of each number among the sorted distinct numbers, -1 for NaN. `ranks` of any subset follow from these
    indices."""
    indices = np.unique(numbers, return_inverse=True)[1]
    indices[np.isnan(numbers)] = -1
    return indices


def ranks(indices: np.ndarray) -> np.ndarray:
    """Ranks from 1, ties with their mean rank, from the indices of `order`; all NaN if one number is NaN."""
    if indices.min() < 0:
        return np.full(len(indices), np.nan)
    counts = np.bincount(indices)
    return (np.cumsum(counts) - (counts - 1) / 2)[indices]


def correlations(gold: Sequence[float], predicted: Sequence[float]) -> Callable[..., dict[str, float]]:
    """A function from the indices of examples, by default all, to their Pearson and Spearman correlations."""
    numbers = [np.array(each, float) for each in (gold, predicted)]
    orders = [order(each) for each in numbers]

    def score(chosen: np.ndarray | slice = slice(None)) -> dict[str, float]:
        spearman = pearson(*(ranks(each[chosen]) for each in orders))
        return {"spearman": spearman, "pearson": pearson(*(each[chosen] for each in numbers))}

    return score


def _unit(numbers: np.ndarray) -> np.ndarray:
    """The numbers minus their mean, scaled to length 1."""
    centred = numbers - numbers.mean()
    centred /= np.abs(centred).max()  # avoids overflow and underflow of the squares
    return centred / np.sqrt(centred @ centred)


def _arrays(gold: Sequence[float], predicted: Sequence[float], at_least: int) -> tuple[np.ndarray, np.ndarray]:
    if len(gold) != len(predicted):
        raise ValueError(f"{len(gold)} gold numbers but {len(predicted)} predicted; give one prediction per example")
    if len(gold) < at_least:
        raise ValueError(f"{len(gold)} examples cannot be scored; give at least {at_least}")
    return np.asarray(gold, np.float64), np.asarray(predicted, np.float64)


def _is_constant(numbers: np.ndarray) -> bool:
    return bool((numbers == numbers[0]).all())
