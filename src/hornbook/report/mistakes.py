"""The worst mistakes of a fine-tuned model on dev, with their text."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from hornbook.report import wording
from hornbook.report.breakdown import is_miss
from hornbook.report.finetuned import FinetunedRun
from hornbook.report.run import number

MOST = 12


class Piece(NamedTuple):
    """Words of a text, and what is wrong about them, if anything."""

    words: str
    wrong: str = ""


@dataclass(frozen=True)
class Mistake:
    """`texts` are one, or the two of a pair, or a question; `note` says how sure the model was, or how far off."""

    key: str
    texts: list[list[Piece]]
    right: str
    said: str
    note: str


def worst_mistakes(run: FinetunedRun, most: int = MOST) -> tuple[str, list[Mistake]]:
    """(in which order they are, the mistakes)."""
    if run.kind == "classification":
        return _of_several(run, most) if run.is_multi else _of_classes(run, most)
    find = {"regression": _of_numbers, "spans": _of_spans, "tagging": _of_tags, "choice": _of_choices}.get(run.kind)
    return find(run, most) if find else ("", [])


def _texts(row: dict) -> list[list[Piece]]:
    found = [row[name] for name in ("text", "pair", "context", "question") if row.get(name)]
    return [[Piece(wording.cut(str(text)))] for text in found]


def _sure(row: dict) -> float:
    chance = number(row.get("probability"))
    return chance if math.isfinite(chance) else 0.0


def _of_classes(run: FinetunedRun, most: int) -> tuple[str, list[Mistake]]:
    wrong = [row for row in run.predictions if "label" in row and row["label"] != row["gold"]]
    wrong.sort(key=lambda row: -_sure(row))
    mistakes = []
    for row in wrong[:most]:
        chance = number((row.get("probabilities") or {}).get(row["gold"]))
        other = f"; {wording.percent(chance)} for the right class" if math.isfinite(chance) else ""
        note = f"{wording.percent(_sure(row))} sure{other}"
        mistakes.append(Mistake(str(row.get("key", "")), _texts(row), str(row["gold"]), str(row["label"]), note))
    return f"wrong and most sure of it, of {len(wrong):,} wrong in {len(run.predictions):,}", mistakes


def _of_several(run: FinetunedRun, most: int) -> tuple[str, list[Mistake]]:
    def missed(row: dict) -> float:
        chances = row.get("probabilities") or {}
        return sum(abs(number(chance) - (name in row["gold"])) for name, chance in chances.items())

    wrong = [row for row in run.predictions if set(row.get("labels") or []) != set(row["gold"])]
    wrong.sort(key=lambda row: -missed(row))
    mistakes = [
        Mistake(
            str(row.get("key", "")),
            _texts(row),
            ", ".join(row["gold"]) or "none",
            ", ".join(row.get("labels") or []) or "none",
            f"probabilities are {missed(row):.2f} off in sum",
        )
        for row in wrong[:most]
    ]
    return f"farthest off, of {len(wrong):,} that are not all right in {len(run.predictions):,}", mistakes


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
    return f"farthest off, of {len(rows):,}", mistakes


def _of_spans(run: FinetunedRun, most: int) -> tuple[str, list[Mistake]]:
    missed = [row for row in run.predictions if is_miss(row)]
    missed.sort(key=lambda row: (not row.get("answer"), -_sure(row)))
    mistakes = []
    for row in missed[:most]:
        right = " / ".join(dict.fromkeys(map(str, row["gold"]))) or "no answer"
        note = f"{wording.percent(_sure(row))} sure" if row.get("answer") else "left unanswered"
        said = wording.cut(str(row.get("answer") or "no answer"), 200)
        mistakes.append(Mistake(str(row.get("key", "")), _texts(row), wording.cut(right, 200), said, note))
    order = "no word in common with a right answer and most sure of it"
    return f"{order}, of {len(missed):,} such in {len(run.predictions):,}", mistakes


def _of_tags(run: FinetunedRun, most: int) -> tuple[str, list[Mistake]]:
    def num_wrong(row: dict) -> int:
        return sum(a != b for a, b in zip(row["gold"], row["tags"], strict=False))

    rows = [row for row in run.predictions if "tags" in row and num_wrong(row)]
    rows.sort(key=lambda row: -num_wrong(row))
    mistakes = []
    for row in rows[:most]:
        each = zip(row.get("words") or [], row["gold"], row["tags"], strict=False)
        pieces = [Piece(str(word), "" if a == b else f"{a}, not {b}") for word, a, b in each]
        note = f"{num_wrong(row)} of {len(row['tags'])} tags wrong"
        mistakes.append(Mistake(str(row.get("key", "")), [pieces], "", "", note))
    order = "most wrong tags (the right one comes first)"
    return f"{order}, of {len(rows):,} sentences with any in {len(run.predictions):,}", mistakes


def _of_choices(run: FinetunedRun, most: int) -> tuple[str, list[Mistake]]:
    wrong = [row for row in run.predictions if "choice" in row and row["choice"] != row["gold"]]
    wrong.sort(key=lambda row: -_sure(row))
    mistakes = []
    for row in wrong[:most]:
        endings, chances, gold = row.get("endings") or [], row.get("probabilities") or [], row["gold"]
        right = f"ending {gold + 1}" + (f": {endings[gold]}" if gold < len(endings) else "")
        other = f"; {wording.percent(number(chances[gold]))} for the right one" if gold < len(chances) else ""
        note = f"{wording.percent(_sure(row))} sure{other}"
        said = f"ending {row['choice'] + 1}: {row.get('ending', '')}"
        mistakes.append(Mistake(str(row.get("key", "")), _texts(row), right, said, note))
    return f"wrong and most sure of it, of {len(wrong):,} wrong in {len(run.predictions):,}", mistakes
