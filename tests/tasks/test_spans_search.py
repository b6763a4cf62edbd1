"""Spans: the search for the best ones, against a plain search of all, and questions that are left unanswered."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from made_up_passages import SPAN, examples_of, gold_scores, plain, trained, windows_of

from hornbook.models.head_config import MASKED_LOGIT, HeadConfig
from hornbook.tasks.encoded import EncodedExamples
from hornbook.tasks.kinds.spans import Spans
from hornbook.tasks.records import SpanExample
from hornbook.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def wordpiece() -> Tokenizer:
    return trained("wordpiece")


def brute_force(
    task: Spans, found: list[np.ndarray], encoded: EncodedExamples, owner: int, passage: str
) -> list[tuple]:
    """(score, text) of every allowed span of every window, the best of each text, best first."""
    best: dict[str, float] = {}
    for number in windows_of(encoded, owner):
        place, scores = encoded.decode_info[number], found[number]
        tokens = range(place.first, place.last)
        for start, end in itertools.product(tokens, tokens):
            if not start <= end < start + task.max_answer_length or not place.has_most_context[start - place.first]:
                continue
            text = passage[place.offsets[start - place.first, 0] : place.offsets[end - place.first, 1]]
            score = float(scores[start, 0]) + float(scores[end, 1])
            best[text] = max(score, best.get(text, -np.inf))
    return sorted(((score, text) for text, score in best.items()), reverse=True)


def random_scores(encoded: EncodedExamples, seed: int, answerable: bool = False) -> list[np.ndarray]:
    draw = np.random.default_rng(seed)
    longest = max(map(len, encoded.ids))
    found = []
    for ids in encoded.ids:
        scores = np.full((longest, 2), MASKED_LOGIT)
        scores[: len(ids)] = draw.normal(0, 3, (len(ids), 2))
        found.append(np.concatenate([scores, draw.normal(0, 3, (1, 2))]) if answerable else scores)
    return found


@pytest.mark.parametrize(
    ("longest", "step", "max_answer_length"), [(384, 128, 30), (40, 6, 30), (40, 6, 4), (30, 5, 1)]
)
def test_decoding_is_a_search_of_all_spans(wordpiece, longest, step, max_answer_length):
    task = Spans(SPAN, step_tokens=step, max_answer_length=max_answer_length)
    examples = examples_of(6, 15, 50)
    encoded = task.encode(examples, wordpiece, longest)
    found = random_scores(encoded, 0)
    for owner, prediction in enumerate(task.decode(found, encoded, examples)):
        expected = brute_force(task, found, encoded, owner, examples[owner].passage)[: task.num_best]
        assert [each.text for each in prediction.n_best] == [text for _, text in expected]
        shares = np.exp([score for score, _ in expected])
        assert [each.probability for each in prediction.n_best] == pytest.approx(list(shares / shares.sum()))
        assert prediction.answer == expected[0][1]
        best = min(found[i][0].sum() for i in windows_of(encoded, owner)) - expected[0][0]
        assert prediction.no_answer_score == pytest.approx(best)


def test_best_starts_that_lie_after_the_best_ends(wordpiece):
    """The 20 best starts and the 20 best ends do not make one span here: still the best allowed one is found."""
    passage = " ".join(["river garden the a"] * 20)
    example = SpanExample("0", "where?", passage)
    task = Spans(SPAN, max_answer_length=3)
    encoded = task.encode([example], wordpiece, 384)
    place = encoded.decode_info[0]
    num = place.last - place.first
    assert len(encoded.ids) == 1 and num >= 80
    scores = np.zeros((len(encoded.ids[0]), 2))
    scores[place.first : place.last, 0] = np.arange(num)  # later starts are better
    scores[place.first : place.last, 1] = -0.9 * np.arange(num)  # and earlier ends
    (prediction,) = task.decode([scores], encoded, [example])
    assert prediction.answer == brute_force(task, [scores], encoded, 0, passage)[0][1]


def test_spans_outside_the_passage_are_never_answers(wordpiece):
    """Whatever `[CLS]`, the question and `[SEP]` score."""
    examples = examples_of(7, 10, 20)
    task = Spans(SPAN)
    encoded = task.encode(examples, wordpiece, 384)
    found = random_scores(encoded, 1)
    plain = task.decode(found, encoded, examples)
    for scores, place in zip(found, encoded.decode_info, strict=True):
        scores[1 : place.first] += 100
        scores[place.last :] += 100
    assert task.decode(found, encoded, examples) == plain


def test_a_text_counts_once(wordpiece):
    passage = "river garden river"
    task = Spans(SPAN, max_answer_length=1)
    encoded = task.encode([SpanExample("0", "where?", passage)], wordpiece, 64)
    scores = np.zeros((len(encoded.ids[0]), 2))
    scores[encoded.decode_info[0].last - 1] = 5
    (prediction,) = task.decode([scores], encoded, [SpanExample("0", "where?", passage)])
    assert [each.text for each in prediction.n_best] == ["river", "garden"]
    assert prediction.start == passage.rindex("river")


def test_predictions_in_the_order_of_the_examples(wordpiece):
    """One for each, those with nothing to read too."""
    examples = examples_of(8, 30, 15)
    examples[3] = SpanExample("3", "where?", "\u200b\u200b", ("x",), (-1,))
    task = Spans(SPAN)
    encoded = task.encode(examples, wordpiece, 384)
    predictions = task.decode(gold_scores(encoded), encoded, examples)
    assert len(predictions) == len(examples)
    for example, prediction in zip(examples, predictions, strict=True):
        if example.key != "3":
            assert plain(prediction.answer) == plain(example.answers[0])
    assert predictions[3].answer == "" and predictions[3].n_best == ()
    assert np.isfinite(predictions[3].no_answer_score)
    assert task.decode([], task.encode([], wordpiece, 40), []) == []


# ---- no answer


@pytest.mark.parametrize("answerable", [False, True])
def test_no_answer_score_and_threshold(wordpiece, answerable):
    """No-answer score minus the best span, or the output of the classifier; the minimum over windows. Above the
    threshold: no answer."""
    task = Spans(HeadConfig("spans", 2, has_answer_classifier=answerable), step_tokens=6, allows_no_answer=True)
    examples = examples_of(9, 25, 50)
    encoded = task.encode(examples, wordpiece, 40)
    found = random_scores(encoded, 2, answerable)
    predictions = task.decode(found, encoded, examples)
    scores = []
    for owner, prediction in enumerate(predictions):
        numbers = windows_of(encoded, owner)
        best = brute_force(task, found, encoded, owner, examples[owner].passage)[0]
        if answerable:
            expected = min(found[i][-1, 1] - found[i][-1, 0] for i in numbers)
        else:
            expected = min(found[i][0, 0] + found[i][0, 1] for i in numbers) - best[0]
        assert prediction.no_answer_score == pytest.approx(expected)
        assert prediction.answer == ("" if prediction.no_answer_score > 0 else best[1])
        assert prediction.n_best[0].text == best[1]
        scores.append(prediction.no_answer_score)
    middle = float(np.median(scores))
    other = replace(task, threshold=middle)
    again = other.apply_threshold(predictions)
    assert again == other.decode(found, encoded, examples)
    assert [each.answer == "" for each in again] == [score > middle for score in scores]
    assert {each.answer == "" for each in again} == {True, False}
    assert all(each.answer for each in Spans(task.head_config).decode(found, encoded, examples)), "a task without none"


def test_best_threshold_is_the_best_of_all(wordpiece):
    task = Spans(SPAN, step_tokens=6, allows_no_answer=True, rules="squad2")
    examples = [
        SpanExample(each.key, each.question, each.passage, (), ()) if i % 2 else each
        for i, each in enumerate(examples_of(10, 30, 15))
    ]
    encoded = task.encode(examples, wordpiece, 40)
    found = random_scores(encoded, 3)
    for scores, (start, end) in zip(found, encoded.labels, strict=True):
        scores[start, 0] += 6  # right more often than not
        scores[end, 1] += 6
    predictions = task.decode(found, encoded, examples)

    def f1(threshold: float) -> float:
        other = replace(task, threshold=threshold)
        return other.scorer(examples, other.apply_threshold(predictions))()["f1"]

    threshold = task.with_best_threshold(examples, predictions).threshold
    best = f1(threshold)
    assert min(abs(each.no_answer_score - threshold) for each in predictions) > 1e-4, "rounding decides no question"
    several = [each.no_answer_score + nudge for each in predictions for nudge in (-1e-6, 0, 1e-6)]
    assert best == pytest.approx(max(map(f1, several)))
    assert best > f1(np.inf) and best > f1(-np.inf)
