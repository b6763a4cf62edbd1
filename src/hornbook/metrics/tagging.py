"""Scores of tag sequences by whole entities, as conlleval and seqeval's default count them; fractions of 0 to 1.

entities(["B-PER", "I-PER", "O", "B-LOC"])      # [("PER", 0, 2), ("LOC", 3, 4)]
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

PREFIXES = "BIES"
OUTSIDE = ("O", "")


def entities(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """The (type, start, end) of each entity in one sequence of BIO, IOB1, IOE or BIOES tags; `end` is exclusive.

    Broken sequences are read kindly: an I or E where nothing is open, or of another type, starts an entity. A bare
    prefix without a type has the type "_".
    """
    found = []
    before, start = OUTSIDE, 0
    for position, (prefix, kind) in enumerate([*map(_parts, tags), OUTSIDE]):
        is_border = before[0] in "OES" or prefix in "OBS" or before[1] != kind
        if is_border and before[0] != "O":
            found.append((before[1], start, position))
        if is_border:
            start = position
        before = prefix, kind
    return found


def entity_scores(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, Any]:
    """`precision`, `recall` and `f1` over all entities, `support` (how many are in gold), and the same for each type
    under `types`. A score that is undefined is 0."""
    _check_lengths(gold, predicted)
    in_gold, in_predicted, in_both = Counter(), Counter(), Counter()
    for right, ours in zip(gold, predicted, strict=True):
        right_entities, our_entities = set(entities(right)), set(entities(ours))
        in_gold.update(_types(right_entities))
        in_predicted.update(_types(our_entities))
        in_both.update(_types(right_entities & our_entities))
    return {
        **_scores(in_both.total(), in_predicted.total(), in_gold.total()),
        "types": {
            kind: _scores(in_both[kind], in_predicted[kind], in_gold[kind]) for kind in sorted(in_gold | in_predicted)
        },
    }


def tag_accuracy(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> float:
    """The share of single tags that are right."""
    _check_lengths(gold, predicted)
    num_tags = sum(map(len, gold))
    if num_tags == 0:
        raise ValueError("there is nothing to score; give at least one tag")
    return sum(a == b for tags in zip(gold, predicted, strict=True) for a, b in zip(*tags, strict=True)) / num_tags


def _parts(tag: str) -> tuple[str, str]:
    if tag == "O":
        return OUTSIDE
    prefix, _, kind = tag.partition("-")
    if len(prefix) != 1 or prefix not in PREFIXES:
        raise ValueError(f"'{tag}' is not a tag; use O, or one of B-, I-, E-, S- and a type, such as B-PER")
    return prefix, kind or "_"


def _types(found: Iterable[tuple[str, int, int]]) -> Iterable[str]:
    return (kind for kind, _, _ in found)


def _scores(num_right: int, num_predicted: int, num_gold: int) -> dict[str, float]:
    precision = num_right / num_predicted if num_predicted else 0.0
    recall = num_right / num_gold if num_gold else 0.0
    f1 = 2 * precision * recall / (precision + recall) if num_right else 0.0
    return {"precision": precision, "recall": recall, "f1": f1, "support": num_gold}


def _check_lengths(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> None:
    if len(gold) != len(predicted):
        raise ValueError(f"{len(gold)} gold sequences but {len(predicted)} predicted; give one prediction a sequence")
    for number, (right, ours) in enumerate(zip(gold, predicted, strict=True)):
        if len(right) != len(ours):
            raise ValueError(
                f"sequence {number} has {len(right)} gold tags but {len(ours)} predicted; give one tag a word, "
                f"also for words that were cut off"
            )
