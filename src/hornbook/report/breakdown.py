"""Which answers of a fine-tuned model share no word with the right one, by the length of the right one."""

import re

from hornbook.report.finetuned import FinetunedRun

LENGTHS = ((1, 1, "1 word"), (2, 3, "2 or 3 words"), (4, 7, "4 to 7 words"), (8, 10**9, "8 words or more"))
ARTICLES = {"a", "an", "the"}


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
