"""CoQA: conversations about a story.

The previous turns are prepended to each question. Annotators typed a free answer and marked a rationale in the story;
the target span is the typed answer if it occurs in the rationale, otherwise the whole rationale. "yes" and "no" are
appended to the story, so that they are spans too; "unknown" means unanswerable. In the dev split the accepted answers
are the typed ones, one per annotator, as the official score leaves out one annotator at a time; if only some annotators
answered "unknown", their answer is "".
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hornbook.tasks.reading.reader import Reader
from hornbook.tasks.reading.spans import QuestionLayout, RawQuestion
from hornbook.tasks.reading.text_files import read_json_list

NUM_TURNS = 2  # prepended to a question; more would leave too few tokens for the story
YES_NO = "\nyes no"
OFFSETS = {"yes": 1, "no": 5}  # in YES_NO


def coqa_questions(path: Path, split: str, reader: Reader) -> Iterator[RawQuestion]:
    reader.log(
        f"the {NUM_TURNS} previous turns are prepended to each question; 'yes' and 'no' are appended to the story; "
        "'unknown' means no answer"
    )
    file = str(path)
    for number, story in enumerate(read_json_list(path, reader), 1):
        place = f"story {number}"
        try:
            name, passage, turns = str(story["id"]), story["story"] + YES_NO, list(_turns(story, split))
        except (KeyError, TypeError, AttributeError) as error:
            reader.add_problem("bad_json", file, place, f"not in CoQA's layout: {error!r}")
            continue
        for turn, question, answers in turns:
            yield RawQuestion(f"{name}-{turn}", question, passage, answers, name, f"{place}, turn {turn}")


def _turns(story: dict, split: str) -> Iterator[tuple[int, str, tuple[tuple[str, int | None], ...] | None]]:
    history: list[str] = []
    for turn, text, answers_of_turn in _annotated_turns(story):
        answers = _accepted(answers_of_turn, story["story"], split) if answers_of_turn else None
        yield turn, " ".join([*history[-2 * NUM_TURNS :], text]), answers
        history += [text, answers_of_turn[0]["input_text"].strip() if answers_of_turn else ""]


def _annotated_turns(story: dict) -> Iterator[tuple[int, str, list[dict]]]:
    """(turn number, question, answers) of each turn; the first answer is by the original annotator, the others are
    additional."""
    answers = {answer["turn_id"]: answer for answer in story.get("answers", ())}
    others = [{answer["turn_id"]: answer for answer in each} for each in story.get("additional_answers", {}).values()]
    for question in story["questions"]:
        turn, answer = question["turn_id"], answers.get(question["turn_id"])
        answers_of_turn = [answer, *(each[turn] for each in others if turn in each)] if answer else []
        yield turn, question["input_text"].strip(), answers_of_turn


@dataclass(frozen=True, slots=True)
class Conversation:
    """A story and its turns: (turn number, question, typed answer of each annotator)."""

    key: str
    story: str
    turns: tuple[tuple[int, str, tuple[str, ...]], ...]


def read_conversations(path: Path, reader: Reader) -> list[Conversation]:
    """The stories of a CoQA file with their turns unchanged, for models that continue the conversation."""
    conversations = []
    for number, story in enumerate(read_json_list(path, reader), 1):
        try:
            turns = [
                (turn, question, tuple(answer["input_text"].strip() for answer in answers_of_turn))
                for turn, question, answers_of_turn in _annotated_turns(story)
            ]
            conversations.append(Conversation(str(story["id"]), story["story"], tuple(turns)))
        except (KeyError, TypeError, AttributeError) as error:
            reader.add_problem("bad_json", str(path), f"story {number}", f"not in CoQA's layout: {error!r}")
    return conversations


def _accepted(answers: list[dict], story: str, split: str) -> tuple[tuple[str, int | None], ...]:
    answers = answers[:1] if split == "train" else answers
    if all(_word(answer) == "unknown" for answer in answers):
        return ()
    return tuple((_span if split == "train" else _typed)(answer, story) for answer in answers)


def _typed(answer: dict, story: str) -> tuple[str, int | None]:
    """(typed answer, its start in the story or -1 if it is not a span)."""
    if _word(answer) == "unknown":
        return "", -1
    text, start = _span(answer, story)
    typed = answer["input_text"].strip()
    return (text, start) if text.lower() == typed.lower().rstrip(".!") else (typed, -1)


def _span(answer: dict, story: str) -> tuple[str, int]:
    word = _word(answer)
    if word in OFFSETS:
        return word, len(story) + OFFSETS[word]
    start, marked = int(answer["span_start"]), answer["span_text"]
    typed = answer["input_text"].strip().rstrip(".!")
    within = marked.lower().find(typed.lower()) if typed else -1
    if within >= 0 and len(marked.lower()) == len(marked):
        return marked[within : within + len(typed)], start + within
    return marked.strip(), start + len(marked) - len(marked.lstrip())


def _word(answer: dict) -> str:
    return answer["input_text"].strip().lower().strip(".!,")


COQA = QuestionLayout(
    coqa_questions,
    True,
    files={split: (f"coqa-{split}-v1.0.json", f"coqa*{split}*.json", f"{split}.json") for split in ("train", "dev")},
    folder="coqa",
)
