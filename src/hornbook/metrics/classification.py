"""Scores of predicted labels, as fractions between 0 and 1 (Matthews: between -1 and 1).

All follow from counts of examples, so that a resampled score needs only the counts anew. Shapes: N examples, L labels.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class ClassCounts:
    """How often each class is right, is in gold, and is predicted."""

    right_L: np.ndarray
    in_gold_L: np.ndarray
    in_predicted_L: np.ndarray

    def accuracy(self) -> float:
        return float(self.right_L.sum() / self.in_gold_L.sum())

    def f1(self, label: int) -> float:
        named = self.in_gold_L[label] + self.in_predicted_L[label]
        return float(2 * self.right_L[label] / named) if named else 0.0

    def macro_f1(self) -> float:
        named_L = self.in_gold_L + self.in_predicted_L
        is_there_L = named_L > 0
        return float((2 * self.right_L[is_there_L] / named_L[is_there_L]).mean())

    def matthews(self) -> float:
        in_gold_L, in_predicted_L = self.in_gold_L.astype(float), self.in_predicted_L.astype(float)
        total = in_gold_L.sum()
        spread = (total**2 - in_gold_L @ in_gold_L) * (total**2 - in_predicted_L @ in_predicted_L)
        return float((self.right_L.sum() * total - in_gold_L @ in_predicted_L) / np.sqrt(spread)) if spread else 0.0


def class_counts(gold_N: np.ndarray, predicted_N: np.ndarray, num_labels: int) -> ClassCounts:
    """Of the numbers of classes."""
    right_N = gold_N[gold_N == predicted_N]
    return ClassCounts(*(np.bincount(each, minlength=num_labels) for each in (right_N, gold_N, predicted_N)))


def numbered(gold: Sequence[str], predicted: Sequence[str]) -> tuple[list[str], np.ndarray, np.ndarray]:
    """The classes that are in gold or predicted, and both sides as their numbers."""
    _check_lengths(gold, predicted)
    labels = sorted({*gold, *predicted})
    number = {label: i for i, label in enumerate(labels)}
    return labels, np.array([number[label] for label in gold]), np.array([number[label] for label in predicted])


def accuracy(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """The share of labels that are right."""
    return _counted(gold, predicted).accuracy()


def f1(gold: Sequence[str], predicted: Sequence[str], positive: str) -> float:
    """F1 of one class: 2 tp / (2 tp + fp + fn), and 0 where the class is neither in gold nor predicted."""
    labels, gold_N, predicted_N = numbered(gold, predicted)
    return class_counts(gold_N, predicted_N, len(labels)).f1(labels.index(positive)) if positive in labels else 0.0


def macro_f1(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """The mean of the F1 of the classes that are in gold or predicted."""
    return _counted(gold, predicted).macro_f1()


def matthews(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """Matthews' correlation for two or more classes, and 0 where one side is a single class (Gorodkin 2004)."""
    return _counted(gold, predicted).matthews()


def _counted(gold: Sequence[str], predicted: Sequence[str]) -> ClassCounts:
    labels, gold_N, predicted_N = numbered(gold, predicted)
    return class_counts(gold_N, predicted_N, len(labels))


def multi_label_f1(
    gold: Sequence[Collection[str]], predicted: Sequence[Collection[str]], labels: Sequence[str]
) -> dict[str, float]:
    """`micro_f1`, `macro_f1` and `exact_match` where each example has any number of labels.

    A label that is neither in gold nor predicted has F1 0 in the macro mean. Without any label on either side, both F1
    are 0 and the exact match is 1.
    """
    counts = multi_label_counts(gold, predicted, labels)
    return multi_label_scores(counts.sum(0), len(counts))


def multi_label_counts(
    gold: Sequence[Collection[str]], predicted: Sequence[Collection[str]], labels: Sequence[str]
) -> np.ndarray:
    """A row for each example, N x (2 L + 1): which labels are right, how often each is named in gold and predicted
    together, and whether all are right. The scores follow from sums of rows."""
    _check_lengths(gold, predicted)
    gold_NL, predicted_NL = (_holds(side, labels) for side in (gold, predicted))
    is_right_N = (gold_NL == predicted_NL).all(1)
    named_NL = gold_NL.astype(float) + predicted_NL
    return np.concatenate([gold_NL & predicted_NL, named_NL, is_right_N[:, None]], 1)


def multi_label_scores(sums: np.ndarray, num_examples: int) -> dict[str, float]:
    """Of the summed rows of `multi_label_counts`."""
    hits_L, named_L = np.split(sums[:-1], 2)
    return {
        "micro_f1": float(2 * hits_L.sum() / max(named_L.sum(), 1)),
        "macro_f1": float((2 * hits_L / np.maximum(named_L, 1)).mean()),
        "exact_match": float(sums[-1] / num_examples),
    }


def _holds(side: Sequence[Collection[str]], labels: Sequence[str]) -> np.ndarray:
    number = {label: i for i, label in enumerate(labels)}
    holds_NL = np.zeros((len(side), len(labels)), bool)
    for row, named in zip(holds_NL, side, strict=True):
        if unknown := set(named) - number.keys():
            raise ValueError(
                f"'{min(unknown, key=str)}' is not one of the labels {', '.join(map(str, labels))}; add it there"
            )
        row[[number[label] for label in named]] = True
    return holds_NL


def _check_lengths(gold: Sequence, predicted: Sequence) -> None:
    if len(gold) != len(predicted):
        raise ValueError(f"{len(gold)} gold labels but {len(predicted)} predicted ones; give one prediction an example")
    if len(gold) == 0:
        raise ValueError("there is nothing to score; give at least one example")
