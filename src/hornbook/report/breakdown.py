"""Where a fine-tuned model is right and where not: counts by class, type or length, from its predictions."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from hornbook.report.finetuned import FinetunedRun

MOST_CLASSES = 20
LENGTHS = ((1, 1, "1 word"), (2, 3, "2 or 3 words"), (4, 7, "4 to 7 words"), (8, 10**9, "8 words or more"))
ARTICLES = {"a", "an", "the"}


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


def confusion(run: FinetunedRun) -> Confusion | None:
    """Of classes, kinds of tag, places of endings, or having an answer; None where a run has nothing of these."""
    rows = run.predictions
    if run.kind == "classification" and not run.is_multi:
        pairs = [(str(row["gold"]), str(row["label"])) for row in rows if "label" in row]
        return _confusion(pairs, run.labels, "examples")
    if run.kind == "tagging":
        pairs = [(tag_type(a), tag_type(b)) for row in rows for a, b in zip(row["gold"], row["tags"], strict=False)]
        return _confusion(pairs, list(dict.fromkeys(map(tag_type, run.labels))), "words")
    if run.kind == "choice":
        places = [(row["gold"], row["choice"]) for row in rows if "choice" in row]
        last = max((place for pair in places for place in pair), default=-1)
        names = [f"ending {place + 1}" for place in range(last + 1)]
        return _confusion([(names[right], names[said]) for right, said in places], names, "questions")
    if run.kind == "spans" and run.or_none:
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


def tallies(run: FinetunedRun) -> list[Tally]:
    """Of each class, kind of entity or tag that is right or said anywhere, the commonest first."""
    rows = run.predictions
    if run.kind == "classification":
        said = "labels" if run.is_multi else "label"
        return _tallies((_several(row["gold"]), _several(row[said])) for row in rows if said in row)
    if run.kind == "tagging":
        if has_entities(run):
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
    return [(str(each),) for each in (label if isinstance(label, list) else [label])]


def has_entities(run: FinetunedRun) -> bool:
    """Whether tags mark entities (B-, I-), and are not words' own, such as parts of speech."""
    return "entity_f1" in (run.task.get("measures") or run.parts.get("dev", {}))


def tag_type(tag: str) -> str:
    """PER of B-PER; a plain tag is itself."""
    return tag[2:] if tag[:2] in ("B-", "I-") else tag


def entities(tags: list[str]) -> list[tuple[str, int, int]]:
    """(type, first word, word after the last) of BIO tags; an I where nothing of its type is open begins one."""
    found, start, open_type = [], 0, None
    for place, tag in enumerate([*tags, "O"]):
        prefix, kind = (tag[0], tag_type(tag)) if tag != "O" else ("O", None)
        if prefix == "I" and kind == open_type:
            continue
        if open_type is not None:
            found.append((open_type, start, place))
        start, open_type = place, kind
    return found


def by_length(run: FinetunedRun) -> list[tuple[str, int, int]]:
    """(how long the right answer is, questions, of those the ones whose answer shares no word with any right one)."""
    rows = [(len(row["gold"][0].split()), is_miss(row)) for row in run.predictions if row["gold"]]
    out = []
    for shortest, longest, words in LENGTHS:
        missed = [miss for length, miss in rows if shortest <= max(1, length) <= longest]
        out.append((words, len(missed), sum(missed)))
    return [each for each in out if each[1]]


def is_miss(row: dict) -> bool:
    """Whether an answer has no word in common with a right one; of a question without an answer, whether it has one."""
    said = _words(row.get("answer") or "")
    if not row["gold"]:
        return bool(row.get("answer"))
    return not any(said & _words(right) for right in row["gold"])


def _words(text: str) -> set[str]:
    """In lower case and without articles; a text that has no letters or digits is a word itself."""
    words = set(re.findall(r"\w+", text.lower()))
    return words - ARTICLES or words or {text.strip()} - {""}
