"""Checks whether runs can form an ensemble."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hornbook.inference.predictor import Member


def check_agreement(members: Sequence["Member"]) -> None:
    """Raises unless all members have the same task, outputs and tokenizer."""
    first = members[0]
    for other in members[1:]:
        for what in ("kind", "labels", "problem", "pairs", "answerable", "or_none", "tokenizer"):
            one, two = _trait(first, what), _trait(other, what)
            if one != two:
                detail = "different vocabularies" if what == "tokenizer" else f"{_text(one)}, and {_text(two)}"
                raise ValueError(
                    f"{first.folder} and {other.folder} cannot form an ensemble: they differ in {TRAITS[what]} "
                    f"({detail}); give runs with the same task and tokenizer"
                )


TRAITS = {
    "kind": "their task kind",
    "labels": "their labels",
    "problem": "their problem type",
    "pairs": "how they encode pairs",
    "answerable": "how they detect unanswerable questions",
    "or_none": "whether they may give no answer",
    "tokenizer": "their tokenizer",
}


def _trait(member: "Member", what: str) -> Any:
    if what == "kind":
        return member.saved.kind
    if what == "tokenizer":
        return member.tokenizer.fingerprint
    task = member.saved.task
    return getattr(task, "or_none", False) if what == "or_none" else getattr(task.output, what)


def _text(trait: Any) -> str:
    if not isinstance(trait, tuple):
        return str(trait)
    text = ", ".join(trait[:8]) or "none"
    return f"{text}, … ({len(trait)})" if len(trait) > 8 else text
