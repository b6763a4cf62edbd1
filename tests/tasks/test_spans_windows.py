"""Spans: windows over long passages and the tokens of an answer, against the published definition word for word."""

import numpy as np
import pytest
from made_up_passages import KINDS, SPAN, examples_of, gold_scores, passage_tokens, plain, trained, windows_of

from hornbook.tasks.kinds.spans import Spans
from hornbook.tasks.records import SpanExample
from hornbook.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    return {kind: trained(kind) for kind in KINDS}


@pytest.fixture(scope="module")
def wordpiece(tokenizers) -> Tokenizer:
    return tokenizers["wordpiece"]


# ---- windows


@pytest.mark.parametrize(("longest", "step"), [(384, 128), (40, 7), (24, 128), (20, 3)])
def test_windows_cover_every_token(wordpiece, longest, step):
    task = Spans(SPAN, step_tokens=step)
    examples = examples_of(1, 20, 600 if longest == 384 else 80)
    encoded = task.encode(examples, wordpiece, longest)
    assert max(map(len, encoded.ids)) <= longest
    assert len(encoded.ids) > len(examples), "nothing was long enough"
    question = wordpiece.encode_batch(["where is it?"])[0].ids
    for owner, example in enumerate(examples):
        tokens = passage_tokens(wordpiece, example.passage)
        seen: dict[int, int] = {}
        starts = []
        for number in windows_of(encoded, owner):
            place, ids = encoded.decode_info[number], encoded.ids[number].tolist()
            assert ids == [
                wordpiece.cls_id,
                *question,
                wordpiece.sep_id,
                *ids[place.first : place.last],
                wordpiece.sep_id,
            ]
            assert encoded.segments[number].tolist() == [0] * place.first + [1] * (len(ids) - place.first)
            room = longest - len(question) - 3
            starts.append(len(starts) * min(step, -(-room // 2)))
            for i, token in enumerate(ids[place.first : place.last]):
                assert tokens[starts[-1] + i] == token
                seen[starts[-1] + i] = seen.get(starts[-1] + i, 0) + int(place.has_most_context[i])
        assert sorted(seen) == list(range(len(tokens))), "a token is in no window"
        assert set(seen.values()) == {1}, "a token counts in no window, or in several"


def test_windows_start_every_128_tokens(wordpiece):
    """Published settings: of a passage of many tokens, windows of 384 start 128 apart, until the end is in one."""
    passage = " ".join(["river"] * 1000)
    tokens = passage_tokens(wordpiece, passage)
    encoded = Spans(SPAN).encode([SpanExample("0", "where is it?", passage)], wordpiece, 384)
    room = encoded.decode_info[0].last - encoded.decode_info[0].first
    assert [place.offsets[0, 0] for place in encoded.decode_info] == [
        wordpiece.encode_batch([passage])[0].offsets[128 * i][0] for i in range(len(encoded.ids))
    ]
    assert len(encoded.ids) == 1 + -(-(len(tokens) - room) // 128)


@pytest.mark.parametrize(("longest", "step"), [(384, 128), (40, 7), (30, 5), (20, 1)])
def test_most_context_is_the_published_rule(wordpiece, longest, step):
    """A token counts in the window with the greatest min(left, right context) + 0.01 x length, the first of equals."""
    task = Spans(SPAN, step_tokens=step)
    examples = examples_of(2, 12, 700 if longest == 384 else 90)
    encoded = task.encode(examples, wordpiece, longest)
    num_choices = 0
    for owner in range(len(examples)):
        numbers = windows_of(encoded, owner)
        lengths = [encoded.decode_info[number].last - encoded.decode_info[number].first for number in numbers]
        room = longest - len(wordpiece.encode_batch(["where is it?"])[0].ids) - 3
        starts = [i * min(step, -(-room // 2)) for i in range(len(numbers))]
        for token in range(starts[-1] + lengths[-1]):
            best, holder = None, None
            for window, (start, length) in enumerate(zip(starts, lengths, strict=True)):
                if not start <= token < start + length:
                    continue
                left, right = token - start, start + length - 1 - token
                score = min(left, right) + 0.01 * length
                num_choices += best is not None
                if best is None or score > best:
                    best, holder = score, window
            for window, (start, length) in enumerate(zip(starts, lengths, strict=True)):
                if start <= token < start + length:
                    counts = encoded.decode_info[numbers[window]].has_most_context[token - start]
                    assert counts == (window == holder)
    assert num_choices > 100


def test_short_windows_overlap_by_half(wordpiece):
    """A step of 128 in windows of less would leave answers between two of them that neither holds."""
    examples = examples_of(3, 40)
    encoded = Spans(SPAN).encode(examples, wordpiece, 40)
    room = 40 - 3 - len(wordpiece.encode_batch(["where is it?"])[0].ids)
    for owner, example in enumerate(examples):
        answer = wordpiece.encode_batch([example.answers[0]])[0].ids
        held = [number for number in windows_of(encoded, owner) if encoded.labels[number].any()]
        assert held or len(answer) > room // 2


# ---- targets


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("longest", [40, 384])
def test_targets_give_the_answer_back(tokenizers, kind, longest):
    """Outputs that match the targets decode to the answer: over combining marks, accents, Hangul, double spaces, in all
    windows that contain it."""
    tokenizer = tokenizers[kind]
    task = Spans(SPAN)
    examples = examples_of(4, 150)
    encoded = task.encode(examples, tokenizer, longest)
    found = gold_scores(encoded)
    predictions = task.decode(found, encoded, examples)
    num_checked = 0
    for owner, (example, prediction) in enumerate(zip(examples, predictions, strict=True)):
        held = [number for number in windows_of(encoded, owner) if encoded.labels[number].any()]
        counted = [
            number
            for number in held
            if encoded.decode_info[number].has_most_context[
                encoded.labels[number, 0] - encoded.decode_info[number].first
            ]
        ]
        # In windows of a few words the one where a start counts may end before the answer does.
        assert longest == 40 or counted
        if counted and np.diff(encoded.labels[counted[0]])[0] < task.max_answer_length:
            assert plain(prediction.answer) == plain(example.answers[0])
            assert prediction.answer == example.passage[prediction.start : prediction.end]
            num_checked += 1
        for number in held:
            place, (start, end) = encoded.decode_info[number], encoded.labels[number]
            first, last = place.offsets[start - place.first, 0], place.offsets[end - place.first, 1]
            assert plain(example.passage[first:last]) == plain(example.answers[0])
    assert num_checked > 100


def test_every_window_that_holds_the_answer_points_at_it(wordpiece):
    examples = examples_of(5, 60)
    encoded = Spans(SPAN, step_tokens=5).encode(examples, wordpiece, 40)
    num_several = 0
    for owner, example in enumerate(examples):
        encoding = wordpiece.encode_batch([example.passage])[0]
        start, end = example.starts[0], example.starts[0] + len(example.answers[0])
        wanted = [i for i, (a, b) in enumerate(encoding.offsets) if a < end and b > start]
        held = 0
        for window, number in enumerate(windows_of(encoded, owner)):
            place = encoded.decode_info[number]
            within = [5 * window <= i < 5 * window + place.last - place.first for i in wanted]
            expected = [0, 0]
            if all(within):
                expected = [place.first + wanted[0] - 5 * window, place.first + wanted[-1] - 5 * window]
                held += 1
            assert encoded.labels[number].tolist() == expected
        num_several += held > 1
    assert num_several > 20


def test_one_word_answer_has_start_equal_to_end(wordpiece):
    passage = "the river is in the garden"
    for word in ("river", "garden"):
        start = passage.index(word)
        example = SpanExample("0", "where is it?", passage, (word,), (start,))
        encoded = Spans(SPAN).encode([example], wordpiece, 64)
        assert len(wordpiece.encode_batch([word])[0].ids) == 1
        ((first, last),) = encoded.labels.tolist()
        assert first == last > 0
        assert encoded.ids[0][first] == wordpiece.encode_batch([word])[0].ids[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("passage", "answer"),
    [
        ("\u200briver garden", "\u200briver"),  # a mark that is dropped, at the very start
        ("garden river\u200b", "river\u200b"),
        ("garden river\x00 garden", "river\x00"),
        (" river garden", " river"),
        ("garden river ", "river "),
        ("garden \u00e9t\u00e9", "\u00e9t\u00e9"),
        ("garden e\u0301t\u00e9 river", "e\u0301t\u00e9"),
        ("garden e\u0301te\u0301 river", "e\u0301te\u0301"),  # marks at the end
        ("river \u1112\u1161\u11ab\u1100\u116e\u11a8\u110b\u1165", "\u1112\u1161\u11ab\u1100\u116e\u11a8\u110b\u1165"),
    ],
)
def test_answers_with_marks_that_are_dropped(tokenizers, kind, passage, answer):
    example = SpanExample("0", "where?", passage, (answer,), (passage.index(answer),))
    task = Spans(SPAN)
    encoded = task.encode([example], tokenizers[kind], 64)
    assert encoded.labels[0].all()
    (prediction,) = task.decode(gold_scores(encoded), encoded, [example])
    marks = "\u200b\x00 "
    assert prediction.answer.strip(marks) == answer.strip(marks)


def test_a_part_of_a_token_points_at_the_whole(wordpiece):
    """An answer within a token: the token is the nearest possible prediction."""
    passage = "the river is in the garden"
    example = SpanExample("0", "where?", passage, ("ive",), (passage.index("ive"),))
    encoded = Spans(SPAN).encode([example], wordpiece, 64)
    assert encoded.labels[0, 0] == encoded.labels[0, 1] > 0


def test_no_answer_and_unknown_answers(wordpiece):
    none = SpanExample("0", "where?", "the river", (), ())
    unplaced = SpanExample("1", "where?", "the river", ("lake",), (-1,))
    assert Spans(SPAN).encode([none, unplaced], wordpiece, 64).labels.tolist() == [[0, 0], [0, 0]]
    unknown = SpanExample("2", "where?", "the river", None)
    assert Spans(SPAN).encode([none, unknown], wordpiece, 64).labels is None


def test_long_questions_are_cut_and_counted(wordpiece):
    long = " ".join(["river"] * 100)
    examples = [SpanExample("0", long, "the garden"), SpanExample("1", "where?", "the garden")]
    encoded = Spans(SPAN).encode(examples, wordpiece, 384)
    assert encoded.num_truncated == 1
    assert encoded.decode_info[0].first == 64 + 2
    small = Spans(SPAN).encode([SpanExample("0", " ".join(["river"] * 30), "the garden")], wordpiece, 43)
    assert small.decode_info[0].first == 20 + 2 and small.num_truncated == 1, (
        "cut to half of a short sequence, and not said"
    )


def test_the_target_is_the_first_answer_with_a_place(wordpiece):
    """Given answers need not occur in the passage: one that does is better than none."""
    passage = "the river is in the garden"
    typed = SpanExample("0", "where?", passage, ("a yard", "garden", "river"), (-1, passage.index("garden"), 4))
    marked = SpanExample("1", "where?", passage, ("garden",), (passage.index("garden"),))
    labels = Spans(SPAN).encode([typed, marked], wordpiece, 64).labels
    assert labels[0].tolist() == labels[1].tolist() and labels[0].all()
