"""Scores of predicted labels, as fractions between 0 and 1 (Matthews: between -1 and 1).

All are computed from counts, so that a bootstrap resample needs only new counts. Shapes: N examples, L labels.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class ClassCounts:
    """Per class: number of correct predictions, of gold labels, and of predictions."""

    correct_L: np.ndarray
    in_gold_L: np.ndarray
    in_predicted_L: np.ndarray

    def accuracy(self) -> float:
        return float(self.correct_L.sum() / self.in_gold_L.sum())

    def f1(self, label: int) -> float:
        total = self.in_gold_L[label] + self.in_predicted_L[label]
        return float(2 * self.correct_L[label] / total) if total else 0.0

    def macro_f1(self) -> float:
        total_L = self.in_gold_L + self.in_predicted_L
        mask_L = total_L > 0
        return float((2 * self.correct_L[mask_L] / total_L[mask_L]).mean())

    def matthews(self) -> float:
        in_gold_L, in_predicted_L = self.in_gold_L.astype(float), self.in_predicted_L.astype(float)
        total = in_gold_L.sum()
        spread = (total**2 - in_gold_L @ in_gold_L) * (total**2 - in_predicted_L @ in_predicted_L)
        return float((self.correct_L.sum() * total - in_gold_L @ in_predicted_L) / np.sqrt(spread)) if spread else 0.0


def class_counts(gold_N: np.ndarray, predicted_N: np.ndarray, num_labels: int) -> ClassCounts:
    """Counts from class indices."""
    correct_N = gold_N[gold_N == predicted_N]
    return ClassCounts(*(np.bincount(each, minlength=num_labels) for each in (correct_N, gold_N, predicted_N)))


def numbered(gold: Sequence[str], predicted: Sequence[str]) -> tuple[list[str], np.ndarray, np.ndarray]:
    """(sorted classes in gold or predictions, gold as class indices, predictions as class indices)."""
    _check_lengths(gold, predicted)
    labels = sorted({*gold, *predicted})
    number = {label: i for i, label in enumerate(labels)}
    return labels, np.array([number[label] for label in gold]), np.array([number[label] for label in predicted])


def multi_label_counts(
    gold: Sequence[Collection[str]], predicted: Sequence[Collection[str]], labels: Sequence[str]
) -> np.ndarray:
    """One row per example, N x (2 L + 1): per label the true positives and the occurrences in gold plus predictions,
    then whether all labels are correct. `multi_label_scores` needs only the sum of the rows."""
    _check_lengths(gold, predicted)
    gold_NL, predicted_NL = (_indicators(side, labels) for side in (gold, predicted))
    is_correct_N = (gold_NL == predicted_NL).all(1)
    total_NL = gold_NL.astype(float) + predicted_NL
    return np.concatenate([gold_NL & predicted_NL, total_NL, is_correct_N[:, None]], 1)


def multi_label_scores(sums: np.ndarray, num_examples: int) -> dict[str, float]:
    """Scores from the summed rows of `multi_label_counts`."""
    correct_L, total_L = np.split(sums[:-1], 2)
    return {
        "micro_f1": float(2 * correct_L.sum() / max(total_L.sum(), 1)),
        "macro_f1": float((2 * correct_L / np.maximum(total_L, 1)).mean()),
        "exact_match": float(sums[-1] / num_examples),
    }


def _indicators(side: Sequence[Collection[str]], labels: Sequence[str]) -> np.ndarray:
    number = {label: i for i, label in enumerate(labels)}
    indicators_NL = np.zeros((len(side), len(labels)), bool)
    for row, named in zip(indicators_NL, side, strict=True):
        if unknown := set(named) - number.keys():
            raise ValueError(
                f"'{min(unknown, key=str)}' is not one of the labels {', '.join(map(str, labels))}; add it there"
            )
        row[[number[label] for label in named]] = True
    return indicators_NL


def _check_lengths(gold: Sequence, predicted: Sequence) -> None:
    if len(gold) != len(predicted):
        raise ValueError(
            f"{len(gold)} gold labels but {len(predicted)} predicted ones; give one prediction per example"
        )
    if len(gold) == 0:
        raise ValueError("nothing to score: give at least one example")
