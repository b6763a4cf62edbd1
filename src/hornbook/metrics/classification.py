"""Scores of predicted labels, as fractions between 0 and 1 (Matthews: between -1 and 1).

All are computed from counts, so that a bootstrap resample needs only new counts. Shapes: N examples, L labels.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np


def f1(num_correct: int, num_predicted: int, num_gold: int) -> float:
    """F1 from counts; 0 if nothing is in gold or predictions."""
    total = num_predicted + num_gold
    return float(2 * num_correct / total) if total else 0.0


def macro_f1(correct_L: np.ndarray, total_L: np.ndarray) -> float:
    """Mean F1 of the classes from counts of correct ones and of those in gold plus predictions. A class in neither has
    no F1 and is left out, as by scikit-learn for classes, and with `zero_division=nan` for several labels per text."""
    mask_L = total_L > 0
    return float((2 * correct_L[mask_L] / total_L[mask_L]).mean()) if mask_L.any() else 0.0


@dataclass(frozen=True)
class ClassCounts:
    """Per class: number of correct predictions, of gold labels, and of predictions."""

    correct_L: np.ndarray
    in_gold_L: np.ndarray
    in_predicted_L: np.ndarray

    def accuracy(self) -> float:
        return float(self.correct_L.sum() / self.in_gold_L.sum())

    def f1(self, label: int) -> float:
        return f1(self.correct_L[label], self.in_predicted_L[label], self.in_gold_L[label])

    def macro_f1(self) -> float:
        return macro_f1(self.correct_L, self.in_gold_L + self.in_predicted_L)

    def matthews(self) -> float:
        in_gold_L, in_predicted_L = self.in_gold_L.astype(float), self.in_predicted_L.astype(float)
        total = in_gold_L.sum()
        spread = (total**2 - in_gold_L @ in_gold_L) * (total**2 - in_predicted_L @ in_predicted_L)
        return float((self.correct_L.sum() * total - in_gold_L @ in_predicted_L) / np.sqrt(spread)) if spread else 0.0


def class_counts(gold_N: np.ndarray, predicted_N: np.ndarray, num_labels: int) -> ClassCounts:
    correct_N = gold_N[gold_N == predicted_N]
    return ClassCounts(*(np.bincount(each, minlength=num_labels) for each in (correct_N, gold_N, predicted_N)))


def as_indices(gold: Sequence[str], predicted: Sequence[str]) -> tuple[list[str], np.ndarray, np.ndarray]:
    """(sorted classes in gold or predictions, gold as class indices, predictions as class indices)."""
    _check_lengths(gold, predicted)
    labels = sorted({*gold, *predicted})
    index = {label: i for i, label in enumerate(labels)}
    return labels, np.array([index[label] for label in gold]), np.array([index[label] for label in predicted])


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
    correct_L, total_L = np.split(sums[:-1], 2)
    return {
        "micro_f1": float(2 * correct_L.sum() / max(total_L.sum(), 1)),
        "macro_f1": macro_f1(correct_L, total_L),
        "exact_match": float(sums[-1] / num_examples),
    }


def loose_counts(gold: Sequence[Collection[str]], predicted: Sequence[Collection[str]]) -> np.ndarray:
    """One row per example, N x 3: labels that are right, predicted, and in gold."""
    _check_lengths(gold, predicted)
    pairs = [(set(a), set(b)) for a, b in zip(gold, predicted, strict=True)]
    return np.array([(len(a & b), len(b), len(a)) for a, b in pairs], float)


def loose_scores(counts_N3: np.ndarray) -> dict[str, float]:
    """Scores of entity typing (Ling & Weld 2012): loose micro F1 from the sums of the counts, loose macro F1 from the
    means of the precision and recall of each example (0 where nothing is predicted), and the share of examples whose
    labels are all right.

    >>> found = loose_scores(loose_counts([{"person", "artist"}, {"place"}], [{"person"}, {"person", "place"}]))
    >>> {name: round(value, 3) for name, value in found.items()}
    {'loose_micro_f1': 0.667, 'loose_macro_f1': 0.75, 'exact_match': 0.0}
    """
    correct, predicted, gold = counts_N3.T
    micro = correct.sum() / max(predicted.sum(), 1), correct.sum() / max(gold.sum(), 1)
    macro = (correct / np.maximum(predicted, 1)).mean(), (correct / np.maximum(gold, 1)).mean()
    is_exact = (correct == predicted) & (correct == gold)
    return {
        "loose_micro_f1": _f1(*micro),
        "loose_macro_f1": _f1(*macro),
        "exact_match": float(is_exact.mean()),
    }


def _f1(precision: float, recall: float) -> float:
    total = precision + recall
    return float(2 * precision * recall / total) if total else 0.0


def relation_counts(gold: Sequence[str], predicted: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """(relations without their direction, one row per example and relation, N x R x 2: whether it is right, and how
    often the relation is in gold and predictions). `Other` is no relation."""
    _check_lengths(gold, predicted)
    names = sorted({undirected(label) for label in {*gold, *predicted}} - {*NO_RELATION})
    index = {name: i for i, name in enumerate(names)}
    counts_NR2 = np.zeros((len(gold), len(names), 2))
    for row, gold_label, predicted_label in zip(counts_NR2, gold, predicted, strict=True):
        for label in (gold_label, predicted_label):
            if (name := undirected(label)) in index:
                row[index[name], 1] += 1
        if gold_label == predicted_label and undirected(gold_label) in index:
            row[index[undirected(gold_label)], 0] = 1
    return names, counts_NR2


def relation_f1(sums_R2: np.ndarray) -> float:
    """The official score of SemEval-2010 task 8 from summed `relation_counts`: the mean F1 of the relations. A relation
    in the wrong direction is an error."""
    return macro_f1(sums_R2[:, 0], sums_R2[:, 1])


NO_RELATION = ("Other", "no_relation", "NA")


def undirected(label: str) -> str:
    """
    >>> undirected("Cause-Effect(e2,e1)")
    'Cause-Effect'
    """
    return label.removesuffix("(e1,e2)").removesuffix("(e2,e1)")


def _indicators(side: Sequence[Collection[str]], labels: Sequence[str]) -> np.ndarray:
    index = {label: i for i, label in enumerate(labels)}
    indicators_NL = np.zeros((len(side), len(labels)), bool)
    for row, named in zip(indicators_NL, side, strict=True):
        if unknown := set(named) - index.keys():
            raise ValueError(
                f"'{min(unknown, key=str)}' is not one of the labels {', '.join(map(str, labels))}; add it there"
            )
        row[[index[label] for label in named]] = True
    return indicators_NL


def _check_lengths(gold: Sequence, predicted: Sequence) -> None:
    if len(gold) != len(predicted):
        raise ValueError(
            f"{len(gold)} gold labels but {len(predicted)} predicted ones; give one prediction per example"
        )
    if len(gold) == 0:
        raise ValueError("nothing to score: give at least one example")
