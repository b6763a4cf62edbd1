"""The ways to write entities as one tag a word, and from one to another.

The examples of a task are always in BIO, where an entity is `B-X I-X I-X`. In IOB1 it begins with `I-X`, and with `B-X`
only just after another of its type; in BIOES its last word is `E-X`, and a word alone `S-X`. Plain tags mark no
entities.

>>> to_bio(["I-LOC", "B-LOC", "O"], "IOB1")
['B-LOC', 'B-LOC', 'O']
"""

import re
from collections.abc import Iterable, Sequence
from typing import Literal

Scheme = Literal["IOB1", "BIO", "BIOES", "plain"]
MARKED = re.compile(r"[BIESLU]-.+", re.DOTALL)
ENDING = {"E-": "I-", "L-": "I-", "S-": "B-", "U-": "B-"}  # BIOES, and its other spelling BILOU


def scheme_of(sentences: Iterable[Sequence[str]]) -> Scheme:
    """The scheme of all the sentences of a file. A plain list of tags counts as one sentence.

    Where `I-X` opens entities more often than `B-X` does it is IOB1, otherwise BIO in which some tags are broken.
    """
    sentences = list(sentences)
    if sentences and isinstance(sentences[0], str):
        sentences = [sentences]
    marks = {tag[:2] if MARKED.fullmatch(tag) else tag for sentence in sentences for tag in sentence} - {"O"}
    if not marks or not marks <= {"B-", "I-", *ENDING}:
        return "plain"
    if marks & ENDING.keys():
        return "BIOES"
    begun, opened = 0, 0
    for sentence in sentences:
        for before, tag in zip(["O", *sentence], sentence, strict=False):
            if tag == "O" or before[2:] == tag[2:]:
                continue
            begun, opened = begun + tag.startswith("B-"), opened + tag.startswith("I-")
    return "IOB1" if opened > begun else "BIO"


def to_bio(tags: Sequence[str], scheme: Scheme | None = None) -> list[str]:
    """The tags of one sentence in BIO. Tags that continue nothing are left for `repaired`."""
    scheme = scheme or scheme_of([tags])
    if scheme == "BIOES":
        return [ENDING.get(tag[:2], tag[:2]) + tag[2:] for tag in tags]
    if scheme == "IOB1":
        return repaired(tags)[0]
    return list(tags)


def from_bio(tags: Sequence[str], scheme: Scheme) -> list[str]:
    """The tags of one sentence, which are in BIO, in another scheme."""
    if scheme in ("BIO", "plain"):
        return list(tags)
    found = []
    for before, tag, after in zip(["O", *tags], tags, [*tags[1:], "O"], strict=False):
        if tag == "O":
            found.append(tag)
        elif scheme == "BIOES":
            goes_on = after == f"I-{tag[2:]}"
            mark = {("B", True): "B", ("B", False): "S", ("I", True): "I", ("I", False): "E"}[tag[0], goes_on]
            found.append(mark + tag[1:])
        else:
            found.append(("B" if tag[0] == "B" and before[2:] == tag[2:] else "I") + tag[1:])
    return found


def repaired(tags: Sequence[str]) -> tuple[list[str], int]:
    """BIO tags in which each `I-X` continues an entity of its type, and how many were changed to `B-X` for it."""
    found, num_changed = [], 0
    for before, tag in zip(["O", *tags], tags, strict=False):
        if tag.startswith("I-") and before[2:] != tag[2:]:
            tag, num_changed = "B" + tag[1:], num_changed + 1
        found.append(tag)
    return found, num_changed
