"""The errors of a fine-tuned model on dev: the worst ones with their texts, and missed answers by length."""

import math
import re
from dataclasses import dataclass
from typing import NamedTuple

from hornbook.report import wording
from hornbook.report.finetuned import FinetunedRun
from hornbook.report.run import number

MOST = 12
LENGTHS = ((1, 1, "1 word"), (2, 3, "2 or 3 words"), (4, 7, "4 to 7 words"), (8, 10**9, "8 words or more"))
ARTICLES = {"a", "an", "the"}


class Fragment(NamedTuple):
    """A stretch of text, and the error made on it, if any."""

    text: str
    error: str = ""


@dataclass(frozen=True)
class Mistake:
    """`texts`: one text, the two of a pair, or a passage and question. `note`: the confidence of the model, or the
    distance from the gold value."""

    key: str
    texts: list[list[Fragment]]
    gold: str
    predicted: str
    note: str


def worst_mistakes(run: FinetunedRun, most: int = MOST) -> tuple[str, list[Mistake]]:
    """(description of the order, mistakes, worst first)."""
    if run.kind == "classification":
        return _of_label_sets(run, most) if run.is_multi else _of_classes(run, most)
    find = {"regression": _of_numbers, "spans": _of_spans, "tagging": _of_tags, "choice": _of_choices}.get(run.kind)
    return find(run, most) if find else ("", [])


def _texts(row: dict) -> list[list[Fragment]]:
    found = [row[name] for name in ("text", "pair", "context", "question") if row.get(name)]
    return [[Fragment(wording.cut(str(text)))] for text in found]


def _confidence(row: dict) -> float:
    probability = number(row.get("probability"))
    return probability if math.isfinite(probability) else 0.0


def _of_classes(run: FinetunedRun, most: int) -> tuple[str, list[Mistake]]:
    wrong = [row for row in run.predictions if "label" in row and row["label"] != row["gold"]]
    wrong.sort(key=lambda row: -_confidence(row))
    mistakes = []
    for row in wrong[:most]:
        probability = number((row.get("probabilities") or {}).get(row["gold"]))
        other = f", gold label {wording.percent(probability)}" if math.isfinite(probability) else ""
        note = f"probability {wording.percent(_confidence(row))}{other}"
        mistakes.append(Mistake(str(row.get("key", "")), _texts(row), str(row["gold"]), str(row["label"]), note))
    return f"most confident errors, of {len(wrong):,} in {len(run.predictions):,} examples", mistakes


def _of_label_sets(run: FinetunedRun, most: int) -> tuple[str, list[Mistake]]:
    def distance(row: dict) -> float:
        probabilities = row.get("probabilities") or {}
        return sum(abs(number(each) - (name in row["gold"])) for name, each in probabilities.items())

    wrong = [row for row in run.predictions if set(row.get("labels") or []) != set(row["gold"])]
    wrong.sort(key=lambda row: -distance(row))
    mistakes = [
        Mistake(
            str(row.get("key", "")),
            _texts(row),
            ", ".join(row["gold"]) or "none",
            ", ".join(row.get("labels") or []) or "none",
            f"sum of absolute probability errors {distance(row):.2f}",
        )
        for row in wrong[:most]
    ]
    return f"largest errors, of {len(wrong):,} in {len(run.predictions):,} examples", mistakes


def _of_numbers(run: FinetunedRun, most: int) -> tuple[str, list[Mistake]]:
    rows = [row for row in run.predictions if "value" in row]
    rows.sort(key=lambda row: -abs(number(row["value"]) - number(row["gold"])))
    mistakes = [
        Mistake(
            str(row.get("key", "")),
            _texts(row),
            f"{number(row['gold']):.2f}",
            f"{number(row['value']):.2f}",
            f"{number(row['value']) - number(row['gold']):+.2f}",
        )
        for row in rows[:most]
    ]
    return f"largest errors, of {len(rows):,} examples", mistakes


def _of_spans(run: FinetunedRun, most: int) -> tuple[str, list[Mistake]]:
    missed = [row for row in run.predictions if _is_miss(row)]
    missed.sort(key=lambda row: (not row.get("answer"), -_confidence(row)))
    mistakes = []
    for row in missed[:most]:
        gold = " / ".join(dict.fromkeys(map(str, row["gold"]))) or "no answer"
        note = f"probability {wording.percent(_confidence(row))}" if row.get("answer") else "not answered"
        predicted = wording.cut(str(row.get("answer") or "no answer"), 200)
        mistakes.append(Mistake(str(row.get("key", "")), _texts(row), wording.cut(gold, 200), predicted, note))
    order = "most confident answers without a word in common with a gold answer"
    return f"{order}, of {len(missed):,} in {len(run.predictions):,} questions", mistakes


def _of_tags(run: FinetunedRun, most: int) -> tuple[str, list[Mistake]]:
    def num_wrong(row: dict) -> int:
        return sum(a != b for a, b in zip(row["gold"], row["tags"], strict=False))

    rows = [row for row in run.predictions if "tags" in row and num_wrong(row)]
    rows.sort(key=lambda row: -num_wrong(row))
    mistakes = []
    for row in rows[:most]:
        each = zip(row.get("words") or [], row["gold"], row["tags"], strict=False)
        fragments = [Fragment(str(word), "" if a == b else f"{a}, not {b}") for word, a, b in each]
        note = f"{num_wrong(row)} of {len(row['tags'])} tags wrong"
        mistakes.append(Mistake(str(row.get("key", "")), [fragments], "", "", note))
    order = "most wrong tags (marked as: gold, not predicted)"
    return f"{order}, of {len(rows):,} sentences with errors in {len(run.predictions):,}", mistakes


def _of_choices(run: FinetunedRun, most: int) -> tuple[str, list[Mistake]]:
    wrong = [row for row in run.predictions if "choice" in row and row["choice"] != row["gold"]]
    wrong.sort(key=lambda row: -_confidence(row))
    mistakes = []
    for row in wrong[:most]:
        endings, probabilities, gold = row.get("endings") or [], row.get("probabilities") or [], row["gold"]
        right = f"ending {gold + 1}" + (f": {endings[gold]}" if gold < len(endings) else "")
        of_gold = wording.percent(number(probabilities[gold])) if gold < len(probabilities) else ""
        note = f"probability {wording.percent(_confidence(row))}" + (f", gold ending {of_gold}" if of_gold else "")
        predicted = f"ending {row['choice'] + 1}: {row.get('ending', '')}"
        mistakes.append(Mistake(str(row.get("key", "")), _texts(row), right, predicted, note))
    return f"most confident errors, of {len(wrong):,} in {len(run.predictions):,} examples", mistakes


def by_length(run: FinetunedRun) -> list[tuple[str, int, int]]:
    """Rows of (gold answer length, number of questions, number of misses as defined by `_is_miss`).

    Questions without a gold answer are left out; the length is that of the first gold answer.
    """
    rows = [(len(row["gold"][0].split()), _is_miss(row)) for row in run.predictions if row["gold"]]
    out = []
    for shortest, longest, label in LENGTHS:
        missed = [miss for length, miss in rows if shortest <= max(1, length) <= longest]
        out.append((label, len(missed), sum(missed)))
    return [each for each in out if each[1]]


def _is_miss(row: dict) -> bool:
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
