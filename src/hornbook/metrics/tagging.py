"""Tag schemes that encode entities as one tag per word, conversion between them, and the entities in a sequence of
tags, as conlleval and seqeval (default mode) find them.

entities(["B-PER", "I-PER", "O", "B-LOC"])      # [("PER", 0, 2), ("LOC", 3, 4)]

The examples of a task are always in BIO, where an entity is `B-X I-X I-X`. In IOB1 an entity starts with `I-X`, and
with `B-X` only directly after another entity of the same type; in BIOES its last word is `E-X`, and a one-word entity
is `S-X`; BILOU has `L-X` and `U-X` for these. Plain tags mark no entities.

>>> to_bio(["I-LOC", "B-LOC", "O"], "IOB1")
['B-LOC', 'B-LOC', 'O']
"""

import re
from collections.abc import Iterable, Sequence
from typing import Literal

Scheme = Literal["IOB1", "BIO", "BIOES", "BILOU", "plain"]
ENTITY_TAG = re.compile(r"[BIESLU]-.+", re.DOTALL)
END_TO_BIO = {"E-": "I-", "L-": "I-", "S-": "B-", "U-": "B-"}
ENDS = {"BIOES": {"B": "S", "I": "E"}, "BILOU": {"B": "U", "I": "L"}}  # of an entity's last word, by that in BIO
PREFIXES = "BIES"
OUTSIDE = ("O", "")


def scheme_of(sentences: Iterable[Sequence[str]]) -> Scheme:
    """The scheme of the tags of all sentences of a file.

    If entities start with `I-X` more often than with `B-X`, the scheme is IOB1, otherwise BIO with some invalid tags.
    """
    sentences = list(sentences)
    marks = {tag[:2] if ENTITY_TAG.fullmatch(tag) else tag for sentence in sentences for tag in sentence} - {"O"}
    if not marks or not marks <= {"B-", "I-", *END_TO_BIO}:
        return "plain"
    if marks & END_TO_BIO.keys():
        return "BIOES" if marks & {"E-", "S-"} else "BILOU"
    num_b, num_i = 0, 0
    for sentence in sentences:
        for previous, tag in zip(["O", *sentence], sentence, strict=False):
            if tag == "O" or previous[2:] == tag[2:]:
                continue
            num_b, num_i = num_b + tag.startswith("B-"), num_i + tag.startswith("I-")
    return "IOB1" if num_i > num_b else "BIO"


def to_bio(tags: Sequence[str], scheme: Scheme) -> list[str]:
    """The tags of one sentence converted to BIO. An `I-X` that continues no entity is left for `repaired`."""
    if scheme in ENDS:
        return [END_TO_BIO.get(tag[:2], tag[:2]) + tag[2:] for tag in tags]
    if scheme == "IOB1":
        return repaired(tags)[0]
    return list(tags)


def from_bio(tags: Sequence[str], scheme: Scheme) -> list[str]:
    if scheme in ("BIO", "plain"):
        return list(tags)
    converted = []
    for previous, tag, following in zip(["O", *tags], tags, [*tags[1:], "O"], strict=False):
        if tag == "O":
            converted.append(tag)
        elif scheme in ENDS:
            continues = following == f"I-{tag[2:]}"
            converted.append((tag[0] if continues else ENDS[scheme][tag[0]]) + tag[1:])
        else:
            converted.append(("B" if tag[0] == "B" and previous[2:] == tag[2:] else "I") + tag[1:])
    return converted


def repaired(tags: Sequence[str]) -> tuple[list[str], int]:
    """(BIO tags in which every `I-X` continues an entity of its type, number of tags changed to `B-X`)."""
    repaired_tags, num_changed = [], 0
    for previous, tag in zip(["O", *tags], tags, strict=False):
        if tag.startswith("I-") and previous[2:] != tag[2:]:
            tag, num_changed = "B" + tag[1:], num_changed + 1
        repaired_tags.append(tag)
    return repaired_tags, num_changed


def entities(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """The (type, start, end) of each entity in one sequence of BIO, IOB1, IOE or BIOES tags; `end` is exclusive.

    Inconsistent sequences are accepted: an I or E outside an entity, or of another type, starts a new one. A prefix
    without a type has the type "_".
    """
    spans = []
    previous, start = OUTSIDE, 0
    for position, (prefix, kind) in enumerate([*map(_prefix_and_type, tags), OUTSIDE]):
        is_boundary = previous[0] in "OES" or prefix in "OBS" or previous[1] != kind
        if is_boundary and previous[0] != "O":
            spans.append((previous[1], start, position))
        if is_boundary:
            start = position
        previous = prefix, kind
    return spans


def _prefix_and_type(tag: str) -> tuple[str, str]:
    if tag == "O":
        return OUTSIDE
    prefix, _, kind = tag.partition("-")
    if len(prefix) != 1 or prefix not in PREFIXES:
        raise ValueError(f"'{tag}' is not a tag; use O, or one of B-, I-, E-, S- and a type, such as B-PER")
    return prefix, kind or "_"
