"""Where predictions are right and where not: counts by class, by type of entity or by tag, and the confusion matrix."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hornbook.metrics.tagging import entities

MOST_CLASSES = 20  # of a confusion matrix


@dataclass(frozen=True)
class Judged:
    """Predictions beside what is right. `rows` are those of `tasks.evaluation.rows`, as a run writes them to
    `predictions-dev.jsonl`; `kind` and `labels` are those of the task."""

    kind: str
    rows: list[dict[str, Any]]
    labels: list[str]
    is_multi: bool = False
    or_none: bool = False
    has_entities: bool = False  # tags mark entities (B-, I-), and are not words' own, such as parts of speech

    @property
    def counted(self) -> str:
        """What `tallies` are of."""
        return "class" if self.kind == "classification" else "type of entity" if self.has_entities else "tag"


@dataclass(frozen=True)
class Tally:
    """Of one class: how often it is right, how often it was said, and how often both."""

    name: str
    num_right: int
    num_said: int
    num_hits: int

    @property
    def precision(self) -> float:
        return self.num_hits / self.num_said if self.num_said else 0.0

    @property
    def recall(self) -> float:
        return self.num_hits / self.num_right if self.num_right else 0.0

    @property
    def f1(self) -> float:
        return 2 * self.num_hits / max(1, self.num_right + self.num_said)


@dataclass(frozen=True)
class Confusion:
    """`counts[i, j]` things are `names[i]` and were called `names[j]`; `of` says what is counted."""

    names: list[str]
    counts: np.ndarray
    of: str

    @property
    def shares(self) -> np.ndarray:
        """Each row as shares of its sum; 0 in an empty one."""
        return self.counts / np.maximum(1, self.counts.sum(1, keepdims=True))


def confusion(judged: Judged) -> Confusion | None:
    """Of classes, kinds of tag, places of endings, or having an answer; None for tasks without any of these."""
    rows = judged.rows
    if judged.kind == "classification" and not judged.is_multi:
        pairs = [(str(row["gold"]), str(row["label"])) for row in rows if "label" in row]
        return _confusion(pairs, judged.labels, "examples")
    if judged.kind == "tagging":
        pairs = [(tag_type(a), tag_type(b)) for row in rows for a, b in zip(row["gold"], row["tags"], strict=False)]
        return _confusion(pairs, list(dict.fromkeys(map(tag_type, judged.labels))), "words")
    if judged.kind == "choice":
        places = [(row["gold"], row["choice"]) for row in rows if "choice" in row]
        last = max((place for pair in places for place in pair), default=-1)
        names = [f"ending {place + 1}" for place in range(last + 1)]
        return _confusion([(names[right], names[said]) for right, said in places], names, "questions")
    if judged.kind == "spans" and judged.or_none:
        names = ("has no answer", "has an answer")
        pairs = [(names[bool(row["gold"])], names[bool(row.get("answer"))]) for row in rows]
        return _confusion(pairs, list(names), "questions")
    return None


def _confusion(pairs: list[tuple[str, str]], names: list[str], of: str) -> Confusion | None:
    """The rarest of many classes are put together."""
    if not pairs:
        return None
    names = list(dict.fromkeys([*names, *(name for pair in pairs for name in pair)]))
    if len(names) > MOST_CLASSES:
        often = [name for name, _ in Counter(right for right, _ in pairs).most_common(MOST_CLASSES - 1)]
        others = f"{len(names) - len(often)} others"
        pairs = [tuple(name if name in often else others for name in pair) for pair in pairs]
        names = [*(name for name in names if name in often), others]
    place = {name: number for number, name in enumerate(names)}
    counts = np.zeros((len(names), len(names)), np.int64)
    for right, said in pairs:
        counts[place[right], place[said]] += 1
    return Confusion(names, counts, of)


def tallies(judged: Judged) -> list[Tally]:
    """Of each class, kind of entity or tag that is right or said anywhere, the commonest first."""
    rows = judged.rows
    if judged.kind == "classification":
        said = "labels" if judged.is_multi else "label"
        return _tallies((_several(row["gold"]), _several(row[said])) for row in rows if said in row)
    if judged.kind == "tagging":
        if judged.has_entities:
            return _tallies((entities(row["gold"]), entities(row["tags"])) for row in rows)
        return _tallies(([(a, 0)], [(b, 0)]) for row in rows for a, b in zip(row["gold"], row["tags"], strict=False))
    return []


def _tallies(pairs: Iterable[tuple[list, list]]) -> list[Tally]:
    """Each pair holds what is right and what was said, things whose first part is their class."""
    right, said, hits = Counter(), Counter(), Counter()
    for ours, theirs in ((set(a), set(b)) for a, b in pairs):
        right.update(thing[0] for thing in ours)
        said.update(thing[0] for thing in theirs)
        hits.update(thing[0] for thing in ours & theirs)
    names = sorted(right | said, key=lambda name: (-right[name], name))
    return [Tally(name, right[name], said[name], hits[name]) for name in names]


def _several(label: object) -> list[tuple[str]]:
    return [(str(each),) for each in (label if isinstance(label, list | tuple) else [label])]


def tag_type(tag: str) -> str:
    """PER of B-PER; a plain tag is itself."""
    return tag[2:] if tag[:2] in ("B-", "I-") else tag


def as_tables(judged: Judged) -> dict[str, Any]:
    """Both as plain values for JSON; what a task has nothing of is left out."""
    tables: dict[str, Any] = {}
    if found := tallies(judged):
        names = {"precision": "precision", "recall": "recall", "f1": "f1", "num_right": "gold", "num_said": "predicted"}
        tables["classes"] = {each.name: {new: getattr(each, old) for old, new in names.items()} for each in found}
    matrix = confusion(judged)
    if matrix is not None:
        tables["confusion"] = {"labels": matrix.names, "counts": matrix.counts.tolist(), "of": matrix.of}
    return tables
