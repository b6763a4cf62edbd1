"""Which runs can answer together."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hornbook.infer.predictor import Member


def check_agreement(members: Sequence["Member"]) -> None:
    """Models that answer together must read and answer the same things."""
    first = members[0]
    for other in members[1:]:
        for what in ("kind", "labels", "problem", "pairs", "answerable", "or_none", "tokenizer"):
            one, two = _trait(first, what), _trait(other, what)
            if one != two:
                detail = "another one" if what == "tokenizer" else f"{_words(one)}, and {_words(two)}"
                raise ValueError(
                    f"{first.folder} and {other.folder} cannot answer together, for they differ in {TRAITS[what]} "
                    f"({detail}): give runs of one task and one tokenizer"
                )


TRAITS = {
    "kind": "their kind of task",
    "labels": "their labels",
    "problem": "what they answer",
    "pairs": "how they read pairs",
    "answerable": "how they leave a question unanswered",
    "or_none": "whether they may leave a question unanswered",
    "tokenizer": "their tokenizer",
}


def _trait(member: "Member", what: str) -> Any:
    if what == "kind":
        return member.saved.kind
    if what == "tokenizer":
        return member.tokenizer.fingerprint
    task = member.saved.task
    return getattr(task, "or_none", False) if what == "or_none" else getattr(task.output, what)


def _words(trait: Any) -> str:
    if not isinstance(trait, tuple):
        return str(trait)
    shown = ", ".join(trait[:8]) or "none"
    return f"{shown}, … ({len(trait)})" if len(trait) > 8 else shown
