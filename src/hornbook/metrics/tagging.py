"""Entity-level scores of tag sequences, as conlleval and seqeval (default mode) compute them; fractions from 0 to 1.

entities(["B-PER", "I-PER", "O", "B-LOC"])      # [("PER", 0, 2), ("LOC", 3, 4)]
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

PREFIXES = "BIES"
OUTSIDE = ("O", "")


def entities(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """The (type, start, end) of each entity in one sequence of BIO, IOB1, IOE or BIOES tags; `end` is exclusive.

    Inconsistent sequences are accepted: an I or E outside an entity, or of another type, starts a new one. A prefix
    without a type has the type "_".
    """
    found = []
    previous, start = OUTSIDE, 0
    for position, (prefix, kind) in enumerate([*map(_prefix_and_type, tags), OUTSIDE]):
        is_boundary = previous[0] in "OES" or prefix in "OBS" or previous[1] != kind
        if is_boundary and previous[0] != "O":
            found.append((previous[1], start, position))
        if is_boundary:
            start = position
        previous = prefix, kind
    return found


def entity_scores(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, Any]:
    """`precision`, `recall` and `f1` over all entities, `support` (number in gold), and the same per type under
    `types`. Undefined scores are 0."""
    _check_lengths(gold, predicted)
    in_gold, in_predicted, in_both = Counter(), Counter(), Counter()
    for gold_tags, predicted_tags in zip(gold, predicted, strict=True):
        gold_entities, predicted_entities = set(entities(gold_tags)), set(entities(predicted_tags))
        in_gold.update(_types(gold_entities))
        in_predicted.update(_types(predicted_entities))
        in_both.update(_types(gold_entities & predicted_entities))
    return {
        **_scores(in_both.total(), in_predicted.total(), in_gold.total()),
        "types": {
            kind: _scores(in_both[kind], in_predicted[kind], in_gold[kind]) for kind in sorted(in_gold | in_predicted)
        },
    }


def tag_accuracy(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> float:
    """The fraction of tags that are correct."""
    _check_lengths(gold, predicted)
    num_tags = sum(map(len, gold))
    if num_tags == 0:
        raise ValueError("nothing to score: give at least one tag")
    return sum(a == b for tags in zip(gold, predicted, strict=True) for a, b in zip(*tags, strict=True)) / num_tags


def _prefix_and_type(tag: str) -> tuple[str, str]:
    if tag == "O":
        return OUTSIDE
    prefix, _, kind = tag.partition("-")
    if len(prefix) != 1 or prefix not in PREFIXES:
        raise ValueError(f"'{tag}' is not a tag; use O, or one of B-, I-, E-, S- and a type, such as B-PER")
    return prefix, kind or "_"


def _types(found: Iterable[tuple[str, int, int]]) -> Iterable[str]:
    return (kind for kind, _, _ in found)


def _scores(num_correct: int, num_predicted: int, num_gold: int) -> dict[str, float]:
    precision = num_correct / num_predicted if num_predicted else 0.0
    recall = num_correct / num_gold if num_gold else 0.0
    f1 = 2 * precision * recall / (precision + recall) if num_correct else 0.0
    return {"precision": precision, "recall": recall, "f1": f1, "support": num_gold}


def _check_lengths(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> None:
    if len(gold) != len(predicted):
        raise ValueError(f"{len(gold)} gold sequences but {len(predicted)} predicted; give one prediction per sequence")
    for number, (right, ours) in enumerate(zip(gold, predicted, strict=True)):
        if len(right) != len(ours):
            raise ValueError(
                f"sequence {number} has {len(right)} gold tags but {len(ours)} predicted; give one tag per word, "
                f"including words that were truncated"
            )
