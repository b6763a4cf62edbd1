"""Questions about passages: users' own tables, SQuAD 1.1 and 2.0 and data sets in their JSON layout, and TriviaQA."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hornbook.metrics.formatting import cut
from hornbook.tasks.reading.cells import as_text, is_missing, parse_int
from hornbook.tasks.reading.layout import FileLayout, Paths, Patterns, Tables, TabularLayout
from hornbook.tasks.reading.reader import Defect, Reader
from hornbook.tasks.reading.rows import RowTable, find_column, key_column, key_of
from hornbook.tasks.reading.text_files import decoded, json_elements, read_json_list, read_text
from hornbook.tasks.records import SpanExample, Splits

QUESTIONS = ("question", "query")
PASSAGES = ("passage", "context", "document", "text", "paragraph")
ANSWERS = ("answers", "answer", "answer_text", "label")
STARTS = ("start", "answer_start", "starts")
VERIFIED = re.compile(r'"VerifiedEval"\s*:\s*true')
PAGES = {"EntityPages": "wikipedia", "SearchResults": "web"}


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
    defect: Defect | None = None  # the kind of problem and its detail


@dataclass(frozen=True)
class QuestionLayout(FileLayout):
    """Published files, of which `questions` reads one: (path, split, reader)."""

    questions: Callable[[Path, str, Reader], Iterator[RawQuestion]]
    allows_no_answer: bool = False

    def read_file(self, path: Path, split: str, reader: Reader) -> list[SpanExample]:
        return checked(self.questions(path, split, reader), split, str(path), self.allows_no_answer, reader)


# ---- SQuAD


def squad_questions(path: Path, split: str, reader: Reader) -> Iterator[RawQuestion]:
    file = str(path)
    for number, article in enumerate(read_json_list(path, reader), 1):
        try:
            title, paragraphs = str(article.get("title") or ""), list(article["paragraphs"])
        except (KeyError, TypeError, AttributeError) as error:
            reader.add_problem("bad_json", file, f"article {number}", f"not in SQuAD's layout: {error!r}")
            continue
        for index, paragraph in enumerate(paragraphs, 1):
            place = f"article {number}, paragraph {index}"
            try:
                passage, questions = paragraph["context"] + "", list(paragraph["qas"])
            except (KeyError, TypeError) as error:
                reader.add_problem("bad_json", file, place, f"not in SQuAD's layout: {error!r}")
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
        defect = ("bad_json", f"not in SQuAD's layout: {error!r}")
        return RawQuestion(key, "", passage, None, title, place, defect)


def _start(answer: dict) -> int | None:
    start = answer.get("answer_start")
    return start if isinstance(start, int) and start >= 0 else None


# ---- answers in the passage


def checked(
    questions: Iterator[RawQuestion], split: str, file: str, allows_no_answer: bool, reader: Reader
) -> list[SpanExample]:
    """Examples with answer starts that match the passage. Missing starts are searched and wrong ones corrected; wrong,
    ambiguous and unfound answers are recorded as problems."""
    examples = []
    for question in questions:
        answers, starts, missing = _located(question, file, reader)
        example = SpanExample(question.key, question.question, question.passage, answers, starts, question.title)
        problem = _problem(question, starts, missing, split, allows_no_answer)
        if reader.keep_example(problem, split, file, question.place):
            examples.append(example)
            if problem is None and missing:
                reader.add_problem("kept_no_span", file, question.place, f"'{cut(missing, 60)}' is not in the passage")
    return examples


def _problem(
    question: RawQuestion, starts: tuple[int, ...], missing: str, split: str, allows_no_answer: bool
) -> Defect | None:
    if question.defect:
        return question.defect
    if not question.question or not question.passage.strip():
        return "empty_text", f"the {'passage' if question.question else 'question'} is empty"
    if question.answers is None and not split.startswith("test"):
        return "no_label", "the question has no answers field"
    if question.answers == () and not allows_no_answer:
        return "no_label", "the question is unanswerable: use a task that allows this (squad2, spans-or-none)"
    if question.answers and max(starts) < 0 and (missing or split == "train"):
        return "no_span", f"'{cut(missing or question.answers[0][0], 60)}' is not in the passage"
    return None


def _located(question: RawQuestion, file: str, reader: Reader) -> tuple[tuple[str, ...] | None, tuple[int, ...], str]:
    """(answers, their starts in the passage with -1 for not found, the first answer that was not found)."""
    if question.answers is None:
        return None, (), ""
    answers, starts, missing = [], [], ""
    for text, stated in question.answers:
        start = -1 if stated == -1 else nearest(question.passage, text, stated or 0)
        if start < 0 and stated != -1:
            missing = missing or text or "(empty)"
        elif stated is None and question.passage.find(text, start + 1) >= 0:
            reader.add_problem("several_spans", file, question.place, f"'{cut(text, 60)}'")
        elif stated is not None and start != stated:
            detail = f"'{cut(text, 60)}' is at character {start}, not {stated}"
            reader.add_problem("moved_span", file, question.place, detail)
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


# ---- users' own files


@dataclass(frozen=True)
class CustomSpans(TabularLayout):
    """Tables with columns for the question, the passage, the answer and optionally its start; or SQuAD's JSON."""

    allows_no_answer: bool = False

    def read(self, paths: Paths, reader: Reader) -> Splits:
        squad = {split: files for split, files in paths.items() if all(map(is_squad, files))}
        tables = {split: files for split, files in paths.items() if split not in squad}
        return QuestionLayout(squad_questions, self.allows_no_answer).read(squad, reader) | super().read(tables, reader)

    def from_tables(self, tables: Tables, reader: Reader) -> Splits:
        return {split: self._examples(table, split, reader) for split, table in tables.items()}

    def _examples(self, table: RowTable, split: str, reader: Reader) -> list[SpanExample]:
        requested = reader.requested
        is_test = split.startswith("test")
        question = find_column(table, requested.column("text"), QUESTIONS, "text", what="question")
        passage = find_column(table, requested.column("pair"), PASSAGES, "pair", what="passage")
        answer = find_column(table, requested.column("label"), ANSWERS, "label", what="answer", may_be_missing=is_test)
        start = find_column(table, None, STARTS, "start", may_be_missing=True)
        key = key_column(table)
        title = find_column(table, None, ("title", "article"), "title", may_be_missing=True)
        reader.set_roles(text=question, pair=passage, label=answer, key=key)
        reader.log_columns(question=question, passage=passage, answer=answer, start=start)
        questions = (
            RawQuestion(
                key_of(row, key, index),
                as_text(row.fields.get(question)).strip(),
                as_text(row.fields.get(passage)),
                None if answer is None or row.defect else _in_cells(row.fields.get(answer), row.fields.get(start)),
                as_text(row.fields.get(title)) if title else "",
                row.place,
                row.defect,
            )
            for index, row in enumerate(table.rows)
        )
        return checked(questions, split, table.file, self.allows_no_answer, reader)


def _in_cells(cell: Any, start: Any) -> tuple[tuple[str, int | None], ...]:
    if isinstance(cell, dict):  # {"text": [...], "answer_start": [...]}
        cell, start = cell.get("text"), cell.get("answer_start")
    texts = cell if isinstance(cell, list | tuple) else [] if is_missing(cell) else [cell]
    starts = start if isinstance(start, list | tuple) else [start]
    starts = [*starts, *[None] * len(texts)]
    return tuple(dict.fromkeys(zip(map(as_text, texts), map(parse_int, starts), strict=False)))


def is_squad(path: Path) -> bool:
    if path.suffix.lower() != ".json":
        return False
    with open(path, encoding="utf-8", errors="replace") as file:
        return '"paragraphs"' in file.read(1 << 16)


# ---- TriviaQA


def _evidence(path: Path) -> Path:
    candidates = [folder / "evidence" for folder in (path.parent, path.parent.parent)]
    evidence = next((folder for folder in candidates if folder.is_dir()), None)
    if evidence is None:
        names = " or ".join(map(str, candidates))
        raise ValueError(f"the evidence documents of {path} are missing: put the published folder at {names}")
    return evidence


def trivia_questions(path: Path, split: str, reader: Reader) -> Iterator[RawQuestion]:
    """One question per document, with the key "question--document". The span is the first answer alias that occurs in
    the document, ignoring case; all aliases are accepted answers."""
    if is_squad(path):
        yield from squad_questions(path, split, reader)
        return
    file, text = str(path), read_text(path, reader)
    items, evidence, is_verified = json_elements(text, file, reader), _evidence(path), bool(VERIFIED.search(text))
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
            reader.add_problem("bad_json", file, place, f"not in TriviaQA's layout: {error!r}")
            continue
        for source, name in names:
            passage = _document(evidence / source / name, file, place, reader)
            answers = None if aliases is None else _aliases_in(passage, aliases)
            yield RawQuestion(f"{key}--{name}", question, passage, answers, name, f"{place}, {name}")


def _document(path: Path, file: str, place: str, reader: Reader) -> str:
    try:
        return decoded(path.read_bytes(), str(path), "", reader)
    except OSError as error:
        reader.add_problem("unreadable", file, place, f"document {path} cannot be read: {error.strerror}")
        return ""


def _aliases_in(passage: str, aliases: list[str]) -> tuple[tuple[str, int | None], ...]:
    """(answer, start) pairs: first the alias as it occurs in the passage, then all aliases with start -1."""
    matches = (re.search(re.escape(alias), passage, re.IGNORECASE) for alias in aliases if alias)
    first = next(filter(None, matches), None)
    spans = [(first.group(), first.start())] if first else []
    return (*spans, *((alias, -1) for alias in aliases))


# ---- data sets


def _squad_files(version: str) -> Patterns:
    return {
        split: (f"{split}-v{version}.json", f"{split}*v{version[0]}*.json", f"{split}.json")
        for split in ("train", "dev")
    }


def _trivia_files(split: str, ending: str = "") -> tuple[str, ...]:
    names = [f"{source}-{split}{ending}.json" for source in ("wikipedia", "web")]
    return (*(f"qa/{name}" for name in names), *names, f"{split}.json", f"*{split}*.json")


SQUAD = QuestionLayout(squad_questions, files=_squad_files("1.1"), folder="squad")
SQUAD2 = QuestionLayout(squad_questions, True, files=_squad_files("2.0"), folder="squad2")
KORQUAD = QuestionLayout(
    squad_questions,
    files={
        split: (f"KorQuAD_v1.0_{split}.json", f"KorQuAD*{split}*.json", f"{split}.json") for split in ("train", "dev")
    },
    folder="korquad",
)
# TriviaQA's answer spans are found by string search, so a document without the answer has no span to learn from.
TRIVIAQA = QuestionLayout(
    trivia_questions,
    files={
        "train": _trivia_files("train"),
        "dev": _trivia_files("dev"),
        "test": _trivia_files("test", "-without-answers")[:4],
    },
    folder="triviaqa",
)
