"""Start and end probabilities of a question-answering model for every token of a passage."""

import contextlib
from functools import partial

from hornbook.inference.predictor import Predictor
from hornbook.show.translations import Language, translate
from hornbook.show.visualization import Cell, TitledTable, TokenRow, Visualization, readable_token
from hornbook.tasks.evaluation import run_model
from hornbook.tasks.records import SpanExample
from hornbook.tasks.windows import token_probabilities


def show_answer(predictor: Predictor, question: str, passage: str, language: Language = "en") -> Visualization:
    """The tokens of the passage with the probability that the answer starts and ends there, and the answer. The
    probabilities are those of one model, so an ensemble is refused."""
    if predictor.task.kind != "spans":
        raise ValueError(f"this model does not find answers in a passage: its task is {predictor.task.kind}")
    example = SpanExample("0", question, passage)
    if example.reason_unusable:
        raise ValueError(f"{example.reason_unusable}: give a question and a passage")
    if len(predictor.members) > 1:
        raise ValueError("an ensemble has no start and end probabilities of its own: give one of its models")
    answer = predictor.predict_examples([example]).predictions[0]
    encoded = predictor.task.encode([example], predictor.tokenizer, predictor.max_length)
    if len(encoded.ids) > 1:
        raise ValueError("the passage is longer than the model reads at once: give a shorter one")
    member = predictor.members[0]
    logits_S2 = run_model(member.model, encoded, contextlib.nullcontext, predictor.max_length).outputs[0]
    window, ids = encoded.decode_info[0], encoded.ids[0].tolist()
    found = token_probabilities(logits_S2, len(ids), window)
    tokens = [readable_token(predictor.tokenizer, token_id) for token_id in ids[window.first : window.last]]
    rows, cells = [], []
    for token, (start, stop), *probabilities in zip(tokens, found.offsets_P2.tolist(), *found[1:3], strict=True):
        is_inside = bool(answer.answer) and answer.start <= start and stop <= answer.end
        cells.append(Cell(token, "answer" if is_inside else ""))
        rows.append((token, *(f"{probability:.1%}" for probability in probabilities)))
    start_none, end_none = found.none
    message, score, threshold = partial(translate, language), answer.no_answer_score, predictor.task.threshold
    notes = [
        message("found answer", answer=answer.answer) if answer.answer else message("no answer"),
        message("threshold", score=score, threshold=threshold, start=start_none, end=end_none),
    ]
    table = TitledTable("", (message("token"), message("start"), message("end")), rows)
    return Visualization(message("answer"), notes, [TokenRow(message("passage"), cells)], [table], language=language)
