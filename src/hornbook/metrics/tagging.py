"""The entities in a sequence of tags, as conlleval and seqeval (default mode) find them.

entities(["B-PER", "I-PER", "O", "B-LOC"])      # [("PER", 0, 2), ("LOC", 3, 4)]
"""

from collections.abc import Sequence

PREFIXES = "BIES"
OUTSIDE = ("O", "")


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
