"""Scores of predicted labels, as fractions between 0 and 1 (Matthews: between -1 and 1)."""

from collections.abc import Collection, Sequence

import numpy as np


def accuracy(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """The share of labels that are right."""
    _check_lengths(gold, predicted)
    return sum(right == ours for right, ours in zip(gold, predicted, strict=True)) / len(gold)


def f1(gold: Sequence[str], predicted: Sequence[str], positive: str) -> float:
    """F1 of one class: 2 tp / (2 tp + fp + fn), and 0 where the class is neither in gold nor predicted."""
    _check_lengths(gold, predicted)
    hits = sum(right == ours == positive for right, ours in zip(gold, predicted, strict=True))
    named = sum(label == positive for label in gold) + sum(label == positive for label in predicted)
    return 2 * hits / named if named else 0.0


def macro_f1(gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str] | None = None) -> float:
    """The mean of the classes' F1; without `labels`, over the classes that are in gold or predicted."""
    _check_lengths(gold, predicted)
    return float(_class_f1(confusion(gold, predicted, _present(gold, predicted) if labels is None else labels)).mean())


def matthews(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """Matthews' correlation for two or more classes, and 0 where one side is a single class (Gorodkin 2004)."""
    _check_lengths(gold, predicted)
    counts = confusion(gold, predicted, _present(gold, predicted)).astype(np.float64)
    in_gold, in_predicted, total = counts.sum(1), counts.sum(0), counts.sum()
    spread = (total**2 - in_gold @ in_gold) * (total**2 - in_predicted @ in_predicted)
    return float((np.trace(counts) * total - in_gold @ in_predicted) / np.sqrt(spread)) if spread else 0.0


def confusion(gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str]) -> np.ndarray:
    """How often each gold label (row) got each predicted label (column), in the order of `labels`."""
    _check_lengths(gold, predicted)
    place = {label: number for number, label in enumerate(labels)}
    _check_known({*gold, *predicted}, place)
    cells = [place[right] * len(labels) + place[ours] for right, ours in zip(gold, predicted, strict=True)]
    return np.bincount(cells, minlength=len(labels) ** 2).reshape(len(labels), len(labels))


def multi_label_f1(
    gold: Sequence[Collection[str]], predicted: Sequence[Collection[str]], labels: Sequence[str]
) -> dict[str, float]:
    """`micro_f1`, `macro_f1` and `exact_match` where each example has any number of labels.

    A label that is neither in gold nor predicted has F1 0 in the macro mean. Without any label on either side, both F1
    are 0 and the exact match is 1.
    """
    _check_lengths(gold, predicted)
    place = {label: number for number, label in enumerate(labels)}
    hits, named = np.zeros(len(labels)), np.zeros(len(labels))
    num_exact = 0
    for right, ours in zip(map(set, gold), map(set, predicted), strict=True):
        _check_known(right | ours, place)
        num_exact += right == ours
        for label in right | ours:
            hits[place[label]] += label in right and label in ours
            named[place[label]] += (label in right) + (label in ours)
    return {
        "micro_f1": float(2 * hits.sum() / max(named.sum(), 1)),
        "macro_f1": float((2 * hits / np.maximum(named, 1)).mean()),
        "exact_match": num_exact / len(gold),
    }


def _class_f1(counts: np.ndarray) -> np.ndarray:
    return 2 * np.diag(counts) / np.maximum(counts.sum(0) + counts.sum(1), 1)


def _present(gold: Sequence[str], predicted: Sequence[str]) -> list[str]:
    return sorted({*gold, *predicted})


def _check_lengths(gold: Sequence, predicted: Sequence) -> None:
    if len(gold) != len(predicted):
        raise ValueError(f"{len(gold)} gold labels but {len(predicted)} predicted ones; give one prediction an example")
    if len(gold) == 0:
        raise ValueError("there is nothing to score; give at least one example")


def _check_known(found: set[str], known: dict[str, int]) -> None:
    if unknown := found - known.keys():
        raise ValueError(
            f"'{min(unknown, key=str)}' is not one of the labels {', '.join(map(str, known))}; add it there"
        )
