"""TriviaQA: its original layout with the evidence documents, or its conversion to SQuAD's JSON."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hornbook.tasks.reading.content import JsonReader, decoded, read_text
from hornbook.tasks.reading.layout import FileLayout
from hornbook.tasks.reading.notes import Notes
from hornbook.tasks.reading.squad import RawQuestion, checked, read_squad
from hornbook.tasks.reading.tables import is_squad
from hornbook.tasks.records import SpanExample

VERIFIED = re.compile(r'"VerifiedEval"\s*:\s*true')
PAGES = {"EntityPages": "wikipedia", "SearchResults": "web"}


@dataclass(frozen=True, kw_only=True)
class TriviaLayout(FileLayout):
    """One example per question and document, with the key "question--document". The span is the first answer alias that
    occurs in the document, ignoring case; all aliases are accepted answers."""

    def read_file(self, path: Path, split: str, notes: Notes) -> list[SpanExample]:
        if is_squad(path):
            return read_squad(path, split, False, notes)
        text = read_text(path, notes)
        items = JsonReader(str(path), notes).elements(text)
        questions = _questions(items, _evidence(path), bool(VERIFIED.search(text)), str(path), notes)
        # Answer spans are found by string search, so a document without the answer has no span to learn from.
        return checked(questions, split, str(path), False, notes)


def _evidence(path: Path) -> Path:
    candidates = [folder / "evidence" for folder in (path.parent, path.parent.parent)]
    evidence = next((folder for folder in candidates if folder.is_dir()), None)
    if evidence is None:
        names = " or ".join(map(str, candidates))
        raise ValueError(f"the evidence documents of {path} are missing: put the published folder at {names}")
    return evidence


def _questions(items: list[Any], evidence: Path, is_verified: bool, file: str, notes: Notes) -> Iterator[RawQuestion]:
    for number, item in enumerate(items, 1):
        place = f"element {number}"
        try:
            if is_verified and not item["QuestionPartOfVerifiedEval"]:
                continue
            key, question = str(item["QuestionId"]), item["Question"].strip()
            names = [
                (folder, page["Filename"] + "")  # which also refuses other types
                for source, folder in PAGES.items()
                for page in item.get(source, ())
                if not is_verified or page.get("DocPartOfVerifiedEval", True)
            ]
            answer = item.get("Answer")
            aliases = answer and list(
                dict.fromkeys(map(str, [*answer.get("NormalizedAliases", ()), *answer["Aliases"]]))
            )
        except (KeyError, TypeError, AttributeError) as error:
            notes.problem("bad_json", file, place, f"not in TriviaQA's layout: {error!r}")
            continue
        for source, name in names:
            passage = _document(evidence / source / name, file, place, notes)
            answers = None if aliases is None else _answers(aliases, passage)
            yield RawQuestion(f"{key}--{name}", question, passage, answers, name, f"{place}, {name}")


def _document(path: Path, file: str, place: str, notes: Notes) -> str:
    try:
        return decoded(path.read_bytes(), str(path), "", notes)
    except OSError as error:
        notes.problem("unreadable", file, place, f"document {path} cannot be read: {error.strerror}")
        return ""


def _answers(aliases: list[str], passage: str) -> tuple[tuple[str, int | None], ...]:
    """(answer, start) pairs: first the alias as it occurs in the passage, then all aliases with start -1."""
    matches = (re.search(re.escape(alias), passage, re.IGNORECASE) for alias in aliases if alias)
    first = next(filter(None, matches), None)
    spans = [(first.group(), first.start())] if first else []
    return (*spans, *((alias, -1) for alias in aliases))


def _files(split: str, ending: str = "") -> tuple[str, ...]:
    names = [f"{source}-{split}{ending}.json" for source in ("wikipedia", "web")]
    return (*(f"qa/{name}" for name in names), *names, f"{split}.json", f"*{split}*.json")


TRIVIAQA = TriviaLayout(
    files={"train": _files("train"), "dev": _files("dev"), "test": _files("test", "-without-answers")[:4]},
    folder="triviaqa",
)
