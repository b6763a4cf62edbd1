"""Start and end probabilities of a question-answering model for every token of a passage."""

import contextlib
from functools import partial

import numpy as np

from hornbook.inference.predictor import Predictor
from hornbook.show.picture import Cell, Picture, PictureTable, Strip, readable
from hornbook.show.words import Language, say
from hornbook.tasks.features import softmax
from hornbook.tasks.records import SpanExample
from hornbook.tasks.running import run_model


def show_answer(predictor: Predictor, question: str, passage: str, language: Language = "en") -> Picture:
    """The tokens of the passage with the probability that the answer starts and ends there, and the answer."""
    if predictor.saved.kind != "spans":
        raise ValueError(f"this model does not find answers in a passage: its task is {predictor.saved.kind}")
    example = SpanExample("0", question, passage)
    if example.problem:
        raise ValueError(f"{example.problem}: give a question and a passage")
    answer = predictor.predict_examples([example])[0]
    features = predictor.task.encode([example], predictor.tokenizer, predictor.longest)
    if len(features.ids) > 1:
        raise ValueError("the passage is longer than the model reads at once: give a shorter one")
    member = predictor.members[0]
    logits_S2 = run_model(member.model, features, contextlib.nullcontext, predictor.longest).outputs[0]
    chances_S2 = np.stack([softmax(logits_S2[: len(features.ids[0]), i]) for i in range(2)], -1)
    place = features.places[0]
    rows, cells = [], []
    for number in range(place.first, place.last):
        start, stop = place.offsets[number - place.first].tolist()
        is_inside = bool(answer.answer) and answer.start <= start and stop <= answer.end
        token = readable(predictor.tokenizer, int(features.ids[0][number]))
        cells.append(Cell(token, "answer" if is_inside else ""))
        rows.append((token, *(f"{chance:.1%}" for chance in chances_S2[number])))
    start_none, end_none = chances_S2[0]
    said, score, threshold = partial(say, language), answer.no_answer_score, predictor.task.threshold
    notes = [
        said("found answer", answer=answer.answer) if answer.answer else said("no answer"),
        said("threshold", score=score, threshold=threshold, start=start_none, end=end_none),
    ]
    table = PictureTable("", (said("token"), said("start"), said("end")), rows)
    return Picture(said("answer"), notes, [Strip(said("passage"), cells)], [table], language=language)
