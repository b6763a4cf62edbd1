"""Precision, recall and F1 per class, entity type or tag, the confusion matrix, and the mistakes that reports list."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hornbook.metrics.classification import f1
from hornbook.metrics.formatting import cut, number

MAX_CLASSES = 20  # rows and columns of a confusion matrix


@dataclass(frozen=True)
class Judged:
    """Predictions with their gold labels. `rows` are those of `tasks.evaluation.prediction_rows`, as a run writes them
    to `predictions-dev.jsonl`; `labels` are those of the task."""

    rows: list[dict[str, Any]]
    labels: list[str]
    allows_no_answer: bool = False  # questions may have no answer
    has_entities: bool = False  # tags mark entities (B-, I-); False for tags such as parts of speech


@dataclass(frozen=True)
class Tally:
    """Counts of one class: in gold, predicted, and both (true positives)."""

    name: str
    num_gold: int
    num_predicted: int
    num_correct: int

    @property
    def precision(self) -> float:
        return self.num_correct / self.num_predicted if self.num_predicted else 0.0

    @property
    def recall(self) -> float:
        return self.num_correct / self.num_gold if self.num_gold else 0.0

    @property
    def f1(self) -> float:
        return f1(self.num_correct, self.num_predicted, self.num_gold)

    @property
    def scores(self) -> dict[str, float]:
        scores = {"precision": self.precision, "recall": self.recall, "f1": self.f1}
        return scores | {"gold": self.num_gold, "predicted": self.num_predicted}


@dataclass(frozen=True)
class Confusion:
    """`counts[i, j]`: number of items, such as words (`item_noun`), with gold `names[i]` that were predicted as
    `names[j]`."""

    names: list[str]
    counts: np.ndarray
    item_noun: str

    @property
    def shares(self) -> np.ndarray:
        """`counts` divided by the row sums; 0 in empty rows."""
        return self.counts / np.maximum(1, self.counts.sum(1, keepdims=True))


def confusion_matrix(pairs: list[tuple[str, str]], names: list[str], item_noun: str) -> Confusion | None:
    """The matrix of pairs of a gold and a predicted name; None without pairs. `names` are listed first, in this order.

    Beyond `MAX_CLASSES`, the rarest classes are merged into one row and column.
    """
    if not pairs:
        return None
    names = list(dict.fromkeys([*names, *(name for pair in pairs for name in pair)]))
    if len(names) > MAX_CLASSES:
        frequent = [name for name, _ in Counter(gold for gold, _ in pairs).most_common(MAX_CLASSES - 1)]
        others = f"{len(names) - len(frequent)} others"
        pairs = [tuple(name if name in frequent else others for name in pair) for pair in pairs]
        names = [*(name for name in names if name in frequent), others]
    index = {name: i for i, name in enumerate(names)}
    counts = np.zeros((len(names), len(names)), np.int64)
    for gold, predicted in pairs:
        counts[index[gold], index[predicted]] += 1
    return Confusion(names, counts, item_noun)


def tally_classes(pairs: Iterable[tuple[list, list]]) -> list[Tally]:
    """Each pair is (gold items, predicted items); the first element of an item is its class. The class that is
    most frequent in gold comes first."""
    in_gold, in_predicted, in_both = Counter(), Counter(), Counter()
    for gold, predicted in ((set(a), set(b)) for a, b in pairs):
        in_gold.update(item[0] for item in gold)
        in_predicted.update(item[0] for item in predicted)
        in_both.update(item[0] for item in gold & predicted)
    names = sorted(in_gold | in_predicted, key=lambda name: (-in_gold[name], name))
    return [Tally(name, in_gold[name], in_predicted[name], in_both[name]) for name in names]


def tag_type(tag: str) -> str:
    """The type of a BIO tag (PER for B-PER); other tags are returned unchanged."""
    return tag[2:] if tag[:2] in ("B-", "I-") else tag


def as_tables(tallies: list[Tally], matrix: Confusion | None) -> dict[str, Any]:
    """Tallies (`classes`) and the confusion matrix as values for JSON; those that the task does not have are
    omitted."""
    tables: dict[str, Any] = {}
    if tallies:
        tables["classes"] = {each.name: each.scores for each in tallies}
    if matrix is not None:
        tables["confusion"] = {"labels": matrix.names, "counts": matrix.counts.tolist(), "of": matrix.item_noun}
    return tables


class Fragment(NamedTuple):
    """A stretch of text, and the error made on it, if any."""

    text: str
    error: str = ""


@dataclass(frozen=True)
class Mistake:
    """`texts`: one text, the two of a pair, or a passage and question. `note`: the confidence of the model, or the
    distance from the gold value."""

    key: str
    texts: list[list[Fragment]]
    gold: str
    predicted: str
    note: str

    @classmethod
    def of(cls, row: dict[str, Any], gold: str, predicted: str, note: str) -> "Mistake":
        """A mistake on a row, with its input texts."""
        texts = [row[name] for name in ("text", "pair", "context", "question") if row.get(name)]
        return cls(str(row.get("key", "")), [[Fragment(cut(str(text)))] for text in texts], gold, predicted, note)


def confidence(row: dict[str, Any]) -> float:
    """The probability of the prediction of a row; 0 if it has none."""
    probability = number(row.get("probability"))
    return probability if math.isfinite(probability) else 0.0
