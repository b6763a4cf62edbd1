"""Questions about passages: SQuAD 1.1 and 2.0, and what was published in their layout."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hornbook.tasks.reading.content import JsonReader, read_text
from hornbook.tasks.reading.layout import Patterns
from hornbook.tasks.reading.notes import Asked, Notes
from hornbook.tasks.records import SpanExample


@dataclass(frozen=True)
class Found:
    """A question as a file has it. An answer's start is None where the file does not say, -1 where it is none."""

    key: str
    question: str
    passage: str
    answers: tuple[tuple[str, int | None], ...] | None
    title: str = ""
    place: str = ""
    broken: tuple[str, str] | None = None  # the kind of problem and its detail


@dataclass(frozen=True)
class SquadLayout:
    files: Patterns
    may_be_none: bool = False
    folder: str = ""
    takes_columns = False

    def read(self, paths: Mapping[str, list[Path]], asked: Asked, notes: Notes) -> dict[str, list[SpanExample]]:
        return {
            part: [example for path in files for example in read_squad(path, part, self.may_be_none, notes)]
            for part, files in paths.items()
        }


def read_squad(path: Path, part: str, may_be_none: bool, notes: Notes) -> list[SpanExample]:
    articles = JsonReader(str(path), notes).elements(read_text(path, notes))
    return checked(_questions(articles, str(path), notes), part, str(path), may_be_none, notes)


def _questions(articles: list[Any], file: str, notes: Notes) -> Iterator[Found]:
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


def _question(question: Any, passage: str, title: str, place: str) -> Found:
    key = str(question.get("id", "")) if isinstance(question, dict) else ""
    place = f"{place}, question {key}"
    try:
        answers = question.get("answers")
        if answers is not None:
            # Each answer once: several people often marked the same words.
            answers = tuple(dict.fromkeys((str(each["text"]), _start(each)) for each in answers))
        answers = () if question.get("is_impossible") else answers
        return Found(str(question["id"]), question["question"].strip(), passage, answers, title, place)
    except (KeyError, TypeError, AttributeError) as error:
        broken = ("bad_json", f"not in SQuAD's layout: {error!r}")
        return Found(key, "", passage, None, title, place, broken)


def _start(answer: dict) -> int | None:
    start = answer.get("answer_start")
    return start if isinstance(start, int) and start >= 0 else None


def checked(questions: Iterator[Found], part: str, file: str, may_be_none: bool, notes: Notes) -> list[SpanExample]:
    """Examples whose answers stand where they are said to; what is not so is noted."""
    examples = []
    for found in questions:
        answers, starts, missing = _located(found, file, notes)
        example = SpanExample(found.key, found.question, found.passage, answers, starts, found.title)
        trouble = _trouble(found, starts, missing, part, may_be_none)
        if trouble is None or not notes.leaves_out(trouble[0], part, file, found.place, trouble[1]):
            examples.append(example)
            if trouble is None and missing:
                notes.problem("kept_no_span", file, found.place, f"'{missing[:60]}' is not in the passage")
    return examples


def _trouble(
    found: Found, starts: tuple[int, ...], missing: str, part: str, may_be_none: bool
) -> tuple[str, str] | None:
    if found.broken:
        return found.broken
    if not found.question or not found.passage.strip():
        return "empty_text", f"the {'passage' if found.question else 'question'} is empty"
    if found.answers is None and not part.startswith("test"):
        return "no_label", "there are no answers"
    if found.answers == () and not may_be_none:
        return "no_label", "there is no answer: choose a task with unanswerable questions (squad2, spans-or-none)"
    if found.answers and max(starts) < 0 and (missing or part == "train"):
        return "no_span", f"'{(missing or found.answers[0][0])[:60]}' is not in the passage"
    return None


def _located(found: Found, file: str, notes: Notes) -> tuple[tuple[str, ...] | None, tuple[int, ...], str]:
    """Answers, where they stand (-1 for nowhere), and the first that stands nowhere."""
    if found.answers is None:
        return None, (), ""
    answers, starts, missing = [], [], ""
    for text, said in found.answers:
        start = -1 if said == -1 else nearest(found.passage, text, said or 0)
        if start < 0 and said != -1:
            missing = missing or text or "(empty)"
        elif said is None and found.passage.find(text, start + 1) >= 0:
            notes.problem("several_spans", file, found.place, f"'{text[:60]}'")
        elif said is not None and start != said:
            detail = f"'{text[:60]}' is at {start} and not at {said}"
            notes.problem("moved_span", file, found.place, detail)
        answers.append(text)
        starts.append(start)
    return tuple(answers), tuple(starts), missing


def nearest(passage: str, text: str, start: int) -> int:
    """Where `text` stands nearest to `start`, or -1."""
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
        part: (f"{part}-v{version}.json", f"{part}*v{version[0]}*.json", f"{part}.json") for part in ("train", "dev")
    }


SQUAD = SquadLayout(_files("1.1"), folder="squad")
SQUAD2 = SquadLayout(_files("2.0"), may_be_none=True, folder="squad2")
KORQUAD = SquadLayout(
    {part: (f"KorQuAD_v1.0_{part}.json", f"KorQuAD*{part}*.json", f"{part}.json") for part in ("train", "dev")},
    folder="korquad",
)
