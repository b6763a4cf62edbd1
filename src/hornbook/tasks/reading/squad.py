"""Questions about passages: SQuAD 1.1 and 2.0, and data sets published in the same JSON layout."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hornbook.tasks.reading.content import JsonReader, read_text
from hornbook.tasks.reading.layout import FileLayout, Patterns
from hornbook.tasks.reading.notes import Defect, Notes
from hornbook.tasks.records import SpanExample


@dataclass(frozen=True)
class RawQuestion:
    """A question as read from a file. The start of an answer is None if the file does not give it, and -1 if the answer
    is accepted but not a span of the passage."""

    key: str
    question: str
    passage: str
    answers: tuple[tuple[str, int | None], ...] | None
    title: str = ""
    place: str = ""
    broken: Defect | None = None  # the kind of problem and its detail


@dataclass(frozen=True, kw_only=True)
class SquadLayout(FileLayout):
    allows_no_answer: bool = False

    def read_file(self, path: Path, split: str, notes: Notes) -> list[SpanExample]:
        return read_squad(path, split, self.allows_no_answer, notes)


def read_squad(path: Path, split: str, allows_no_answer: bool, notes: Notes) -> list[SpanExample]:
    articles = JsonReader(str(path), notes).elements(read_text(path, notes))
    return checked(_questions(articles, str(path), notes), split, str(path), allows_no_answer, notes)


def _questions(articles: list[Any], file: str, notes: Notes) -> Iterator[RawQuestion]:
    for number, article in enumerate(articles, 1):
        try:
            title, paragraphs = str(article.get("title") or ""), list(article["paragraphs"])
        except (KeyError, TypeError, AttributeError) as error:
            notes.problem("bad_json", file, f"article {number}", f"not in SQuAD's layout: {error!r}")
            continue
        for index, paragraph in enumerate(paragraphs, 1):
            place = f"article {number}, paragraph {index}"
            try:
                passage, questions = paragraph["context"] + "", list(paragraph["qas"])
            except (KeyError, TypeError) as error:
                notes.problem("bad_json", file, place, f"not in SQuAD's layout: {error!r}")
                continue
            for question in questions:
                yield _question(question, passage, title, place)


def _question(question: Any, passage: str, title: str, place: str) -> RawQuestion:
    key = str(question.get("id", "")) if isinstance(question, dict) else ""
    place = f"{place}, question {key}"
    try:
        answers = question.get("answers")
        if answers is not None:
            # Without duplicates: several annotators often marked the same words.
            answers = tuple(dict.fromkeys((str(each["text"]), _start(each)) for each in answers))
        answers = () if question.get("is_impossible") else answers
        return RawQuestion(str(question["id"]), question["question"].strip(), passage, answers, title, place)
    except (KeyError, TypeError, AttributeError) as error:
        broken = ("bad_json", f"not in SQuAD's layout: {error!r}")
        return RawQuestion(key, "", passage, None, title, place, broken)


def _start(answer: dict) -> int | None:
    start = answer.get("answer_start")
    return start if isinstance(start, int) and start >= 0 else None


def checked(
    questions: Iterator[RawQuestion], split: str, file: str, allows_no_answer: bool, notes: Notes
) -> list[SpanExample]:
    """Examples with answer starts that match the passage. Missing starts are searched and wrong ones corrected; wrong,
    ambiguous and unfound answers are recorded as problems."""
    examples = []
    for question in questions:
        answers, starts, missing = _located(question, file, notes)
        example = SpanExample(question.key, question.question, question.passage, answers, starts, question.title)
        problem = _problem(question, starts, missing, split, allows_no_answer)
        if notes.keeps(problem, split, file, question.place):
            examples.append(example)
            if problem is None and missing:
                notes.problem("kept_no_span", file, question.place, f"'{missing[:60]}' is not in the passage")
    return examples


def _problem(
    question: RawQuestion, starts: tuple[int, ...], missing: str, split: str, allows_no_answer: bool
) -> Defect | None:
    if question.broken:
        return question.broken
    if not question.question or not question.passage.strip():
        return "empty_text", f"the {'passage' if question.question else 'question'} is empty"
    if question.answers is None and not split.startswith("test"):
        return "no_label", "the question has no answers field"
    if question.answers == () and not allows_no_answer:
        return "no_label", "the question is unanswerable: use a task that allows this (squad2, spans-or-none)"
    if question.answers and max(starts) < 0 and (missing or split == "train"):
        return "no_span", f"'{(missing or question.answers[0][0])[:60]}' is not in the passage"
    return None


def _located(question: RawQuestion, file: str, notes: Notes) -> tuple[tuple[str, ...] | None, tuple[int, ...], str]:
    """(answers, their starts in the passage with -1 for not found, the first answer that was not found)."""
    if question.answers is None:
        return None, (), ""
    answers, starts, missing = [], [], ""
    for text, stated in question.answers:
        start = -1 if stated == -1 else nearest(question.passage, text, stated or 0)
        if start < 0 and stated != -1:
            missing = missing or text or "(empty)"
        elif stated is None and question.passage.find(text, start + 1) >= 0:
            notes.problem("several_spans", file, question.place, f"'{text[:60]}'")
        elif stated is not None and start != stated:
            detail = f"'{text[:60]}' is at character {start}, not {stated}"
            notes.problem("moved_span", file, question.place, detail)
        answers.append(text)
        starts.append(start)
    return tuple(answers), tuple(starts), missing


def nearest(passage: str, text: str, start: int) -> int:
    """Start of the occurrence of `text` nearest to `start`; -1 if there is none."""
    if not text:
        return -1
    if start >= 0 and passage.startswith(text, start):
        return start
    start = max(start, 0)
    before = passage.rfind(text, 0, start + len(text) - 1)
    after = passage.find(text, start)
    if before < 0 or after < 0:
        return max(before, after)
    return before if start - before <= after - start else after


def _files(version: str) -> Patterns:
    return {
        split: (f"{split}-v{version}.json", f"{split}*v{version[0]}*.json", f"{split}.json")
        for split in ("train", "dev")
    }


SQUAD = SquadLayout(files=_files("1.1"), folder="squad")
SQUAD2 = SquadLayout(files=_files("2.0"), folder="squad2", allows_no_answer=True)
KORQUAD = SquadLayout(
    files={
        split: (f"KorQuAD_v1.0_{split}.json", f"KorQuAD*{split}*.json", f"{split}.json") for split in ("train", "dev")
    },
    folder="korquad",
)
