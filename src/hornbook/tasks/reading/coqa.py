"""CoQA: conversations about a story.

The turns before a question stand in front of it. People answered freely and marked the words that say so; the span is
their answer where it stands within those words, otherwise all of them. "yes" and "no" are put behind the story, so that
they are spans like any other; "unknown" is a question without an answer. In a dev part the accepted answers are those
that people typed, one for each person, as the published score leaves each person out in turn; where some said
"unknown" and others did not, theirs is the empty answer.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hornbook.tasks.reading.content import JsonReader, read_text
from hornbook.tasks.reading.layout import Patterns
from hornbook.tasks.reading.notes import Asked, Notes
from hornbook.tasks.reading.squad import Found, checked
from hornbook.tasks.records import SpanExample

NUM_TURNS = 2  # before a question; more of them crowd out the story
ENDING = "\nyes no"
PLACES = {"yes": 1, "no": 5}  # in the ending


@dataclass(frozen=True)
class CoqaLayout:
    files: Patterns
    folder: str = "coqa"
    takes_columns = False

    def read(self, paths: Mapping[str, list[Path]], asked: Asked, notes: Notes) -> dict[str, list[SpanExample]]:
        notes.log(
            f"each question has the {NUM_TURNS} turns before it in front; 'yes' and 'no' stand behind the story; "
            "'unknown' is no answer"
        )
        return {
            part: [example for path in files for example in _read_file(path, part, notes)]
            for part, files in paths.items()
        }


def _read_file(path: Path, part: str, notes: Notes) -> list[SpanExample]:
    stories = JsonReader(str(path), notes).elements(read_text(path, notes))
    return checked(_questions(stories, part, str(path), notes), part, str(path), True, notes)


def _questions(stories: list[Any], part: str, file: str, notes: Notes) -> Iterator[Found]:
    for number, story in enumerate(stories, 1):
        place = f"story {number}"
        try:
            name, passage, turns = str(story["id"]), story["story"] + ENDING, list(_turns(story, part))
        except (KeyError, TypeError, AttributeError) as error:
            notes.problem("bad_json", file, place, f"not in CoQA's layout: {error!r}")
            continue
        for turn, question, answers in turns:
            yield Found(f"{name}-{turn}", question, passage, answers, name, f"{place}, turn {turn}")


def _turns(story: dict, part: str) -> Iterator[tuple[int, str, tuple[tuple[str, int | None], ...] | None]]:
    before: list[str] = []
    for turn, text, several in _said(story):
        found = _accepted(several, story["story"], part) if several else None
        yield turn, " ".join([*before[-2 * NUM_TURNS :], text]), found
        before += [text, several[0]["input_text"].strip() if several else ""]


def _said(story: dict) -> Iterator[tuple[int, str, list[dict]]]:
    """The number of each turn, its question, and what each person answered, the one who was asked first."""
    answers = {answer["turn_id"]: answer for answer in story.get("answers", ())}
    others = [{answer["turn_id"]: answer for answer in each} for each in story.get("additional_answers", {}).values()]
    for question in story["questions"]:
        turn, answer = question["turn_id"], answers.get(question["turn_id"])
        several = [answer, *(each[turn] for each in others if turn in each)] if answer else []
        yield turn, question["input_text"].strip(), several


@dataclass(frozen=True, slots=True)
class Conversation:
    """A story and what was said about it: (number of the turn, question, what each person typed as its answer)."""

    key: str
    story: str
    turns: tuple[tuple[int, str, tuple[str, ...]], ...]


def read_conversations(path: Path, notes: Notes) -> list[Conversation]:
    """The same file as it was said, for a model that goes on with the conversation."""
    found = []
    for number, story in enumerate(JsonReader(str(path), notes).elements(read_text(path, notes)), 1):
        try:
            turns = [
                (turn, question, tuple(answer["input_text"].strip() for answer in several))
                for turn, question, several in _said(story)
            ]
            found.append(Conversation(str(story["id"]), story["story"], tuple(turns)))
        except (KeyError, TypeError, AttributeError) as error:
            notes.problem("bad_json", str(path), f"story {number}", f"not in CoQA's layout: {error!r}")
    return found


def _accepted(answers: list[dict], story: str, part: str) -> tuple[tuple[str, int | None], ...]:
    answers = answers[:1] if part == "train" else answers
    if all(_word(answer) == "unknown" for answer in answers):
        return ()
    return tuple((_span if part == "train" else _typed)(answer, story) for answer in answers)


def _typed(answer: dict, story: str) -> tuple[str, int | None]:
    """What was typed, and where it stands if it does."""
    if _word(answer) == "unknown":
        return "", -1
    text, start = _span(answer, story)
    typed = answer["input_text"].strip()
    return (text, start) if text.lower() == typed.lower().rstrip(".!") else (typed, -1)


def _span(answer: dict, story: str) -> tuple[str, int]:
    word = _word(answer)
    if word in PLACES:
        return word, len(story) + PLACES[word]
    start, marked = answer["span_start"], answer["span_text"]
    typed = answer["input_text"].strip().rstrip(".!")
    within = marked.lower().find(typed.lower()) if typed else -1
    if within >= 0 and len(marked.lower()) == len(marked):
        return marked[within : within + len(typed)], start + within
    return marked.strip(), start + len(marked) - len(marked.lstrip())


def _word(answer: dict) -> str:
    return answer["input_text"].strip().lower().strip(".!,")


COQA = CoqaLayout({part: (f"coqa-{part}-v1.0.json", f"coqa*{part}*.json", f"{part}.json") for part in ("train", "dev")})
