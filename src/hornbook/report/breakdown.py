"""Answers of a fine-tuned span model that have no word in common with a gold answer, by gold answer length."""

import re

from hornbook.report.finetuned import FinetunedRun

LENGTHS = ((1, 1, "1 word"), (2, 3, "2 or 3 words"), (4, 7, "4 to 7 words"), (8, 10**9, "8 words or more"))
ARTICLES = {"a", "an", "the"}


def by_length(run: FinetunedRun) -> list[tuple[str, int, int]]:
    """Rows of (gold answer length, number of questions, number of misses as defined by `is_miss`).

    Questions without a gold answer are left out; the length is that of the first gold answer.
    """
    rows = [(len(row["gold"][0].split()), is_miss(row)) for row in run.predictions if row["gold"]]
    out = []
    for shortest, longest, label in LENGTHS:
        missed = [miss for length, miss in rows if shortest <= max(1, length) <= longest]
        out.append((label, len(missed), sum(missed)))
    return [each for each in out if each[1]]


def is_miss(row: dict) -> bool:
    """True if the predicted answer shares no word with any gold answer.

    For a question without a gold answer: True if the model gave one.
    """
    predicted = _words(row.get("answer") or "")
    if not row["gold"]:
        return bool(row.get("answer"))
    return not any(predicted & _words(gold) for gold in row["gold"])


def _words(text: str) -> set[str]:
    """The lower-cased words without articles, unless there are only articles; a text without letters or digits counts
    as one word."""
    words = set(re.findall(r"\w+", text.lower()))
    return words - ARTICLES or words or {text.strip()} - {""}
