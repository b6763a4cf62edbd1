"""Precision, recall and F1 per class, entity type or tag, and the confusion matrix."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hornbook.metrics.tagging import entities

MOST_CLASSES = 20  # rows and columns of a confusion matrix


@dataclass(frozen=True)
class Judged:
    """Predictions with their gold labels. `rows` are those of `tasks.evaluation.rows`, as a run writes them to
    `predictions-dev.jsonl`; `kind` and `labels` are those of the task."""

    kind: str
    rows: list[dict[str, Any]]
    labels: list[str]
    is_multi: bool = False
    or_none: bool = False
    has_entities: bool = False  # tags mark entities (B-, I-); False for tags such as parts of speech

    @property
    def counted(self) -> str:
        """What each entry of `tallies` stands for."""
        return "class" if self.kind == "classification" else "type of entity" if self.has_entities else "tag"


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
        return 2 * self.num_correct / max(1, self.num_gold + self.num_predicted)


@dataclass(frozen=True)
class Confusion:
    """`counts[i, j]`: number of items with gold `names[i]` that were predicted as `names[j]`; `of` names the items."""

    names: list[str]
    counts: np.ndarray
    of: str

    @property
    def shares(self) -> np.ndarray:
        """`counts` divided by the row sums; 0 in empty rows."""
        return self.counts / np.maximum(1, self.counts.sum(1, keepdims=True))


def confusion(judged: Judged) -> Confusion | None:
    """The confusion matrix over classes, tag types, ending numbers, or answerable and unanswerable questions; None for
    other tasks."""
    rows = judged.rows
    if judged.kind == "classification" and not judged.is_multi:
        pairs = [(str(row["gold"]), str(row["label"])) for row in rows if "label" in row]
        return _confusion(pairs, judged.labels, "examples")
    if judged.kind == "tagging":
        pairs = [(tag_type(a), tag_type(b)) for row in rows for a, b in zip(row["gold"], row["tags"], strict=False)]
        return _confusion(pairs, list(dict.fromkeys(map(tag_type, judged.labels))), "words")
    if judged.kind == "choice":
        numbers = [(row["gold"], row["choice"]) for row in rows if "choice" in row]
        last = max((number for pair in numbers for number in pair), default=-1)
        names = [f"ending {number + 1}" for number in range(last + 1)]
        return _confusion([(names[gold], names[predicted]) for gold, predicted in numbers], names, "questions")
    if judged.kind == "spans" and judged.or_none:
        names = ("has no answer", "has an answer")
        pairs = [(names[bool(row["gold"])], names[bool(row.get("answer"))]) for row in rows]
        return _confusion(pairs, list(names), "questions")
    return None


def _confusion(pairs: list[tuple[str, str]], names: list[str], of: str) -> Confusion | None:
    """Beyond `MOST_CLASSES`, the rarest classes are merged into one row and column."""
    if not pairs:
        return None
    names = list(dict.fromkeys([*names, *(name for pair in pairs for name in pair)]))
    if len(names) > MOST_CLASSES:
        kept = [name for name, _ in Counter(gold for gold, _ in pairs).most_common(MOST_CLASSES - 1)]
        others = f"{len(names) - len(kept)} others"
        pairs = [tuple(name if name in kept else others for name in pair) for pair in pairs]
        names = [*(name for name in names if name in kept), others]
    index = {name: number for number, name in enumerate(names)}
    counts = np.zeros((len(names), len(names)), np.int64)
    for gold, predicted in pairs:
        counts[index[gold], index[predicted]] += 1
    return Confusion(names, counts, of)


def tallies(judged: Judged) -> list[Tally]:
    """One tally per class, entity type or tag that occurs in gold or predictions, most frequent in gold first."""
    rows = judged.rows
    if judged.kind == "classification":
        field = "labels" if judged.is_multi else "label"
        return _tallies((_as_items(row["gold"]), _as_items(row[field])) for row in rows if field in row)
    if judged.kind == "tagging":
        if judged.has_entities:
            return _tallies((entities(row["gold"]), entities(row["tags"])) for row in rows)
        return _tallies(([(a, 0)], [(b, 0)]) for row in rows for a, b in zip(row["gold"], row["tags"], strict=False))
    return []


def _tallies(pairs: Iterable[tuple[list, list]]) -> list[Tally]:
    """Each pair is (gold items, predicted items); the first element of an item is its class."""
    in_gold, in_predicted, in_both = Counter(), Counter(), Counter()
    for gold, predicted in ((set(a), set(b)) for a, b in pairs):
        in_gold.update(item[0] for item in gold)
        in_predicted.update(item[0] for item in predicted)
        in_both.update(item[0] for item in gold & predicted)
    names = sorted(in_gold | in_predicted, key=lambda name: (-in_gold[name], name))
    return [Tally(name, in_gold[name], in_predicted[name], in_both[name]) for name in names]


def _as_items(label: object) -> list[tuple[str]]:
    return [(str(each),) for each in (label if isinstance(label, list | tuple) else [label])]


def tag_type(tag: str) -> str:
    """The type of a BIO tag (PER for B-PER); other tags are returned unchanged."""
    return tag[2:] if tag[:2] in ("B-", "I-") else tag


def as_tables(judged: Judged) -> dict[str, Any]:
    """Tallies (`classes`) and the confusion matrix as values for JSON; those that the task does not have are
    omitted."""
    tables: dict[str, Any] = {}
    if found := tallies(judged):
        names = {
            "precision": "precision",
            "recall": "recall",
            "f1": "f1",
            "num_gold": "gold",
            "num_predicted": "predicted",
        }
        tables["classes"] = {each.name: {new: getattr(each, old) for old, new in names.items()} for each in found}
    matrix = confusion(judged)
    if matrix is not None:
        tables["confusion"] = {"labels": matrix.names, "counts": matrix.counts.tolist(), "of": matrix.of}
    return tables
