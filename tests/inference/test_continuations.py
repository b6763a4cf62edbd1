"""Texts behind contexts: against the same scores token by token, packed with others, and too long for the context."""

import numpy as np
import pytest
import torch
from small_gpts import CONTEXT, FAMILIES, byte_tokenizer, saved_gpt

import hornbook
from hornbook.inference.scoring import continuation_scores

PAIRS = [
    ("the river", " and bread"),
    ("the river", " of"),
    ("the river", " a"),
    ("한국어", " 위키"),
    ("A teacher", "s"),
]


@pytest.fixture(scope="module", params=FAMILIES)
def both(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    theirs = saved_gpt(folder, request.param).double()
    return hornbook.load(folder).to("cpu", torch.float64), theirs


@torch.no_grad()
def theirs_of(theirs, context: list[int], continuation: list[int]) -> tuple[np.ndarray, np.ndarray]:
    ids = [*context, *continuation]
    logits = theirs(torch.tensor([ids[:-1][-CONTEXT:]])).logits[0, -len(continuation) :]
    scores = logits.log_softmax(-1)[torch.arange(len(continuation)), continuation]
    return scores.numpy(), (logits.argmax(-1) == torch.tensor(continuation)).numpy()


def test_equal_transformers_packed_and_alone(both):
    ours, theirs = both
    found = ours.continuations(PAIRS)
    for (context, text), each in zip(PAIRS, found, strict=True):
        ids = [pieces.ids for pieces in byte_tokenizer().encode_batch([context, text])]
        if byte_tokenizer().encode_batch([context + text])[0].ids != ids[0] + ids[1]:
            continue
        scores, is_greedy = theirs_of(theirs, *ids)
        np.testing.assert_allclose(each.log_probabilities, scores, atol=1e-9)
        assert each.is_greedy.tolist() == is_greedy.tolist()
        np.testing.assert_allclose(ours.continuations([(context, text)])[0].log_probabilities, scores, atol=1e-12)


def test_a_long_context_loses_its_beginning(both):
    ours, theirs = both
    context, continuation = list(range(10, 10 + CONTEXT + 20)), [5, 6, 7]
    (found,) = continuation_scores(ours.model, [(context, continuation)])
    np.testing.assert_allclose(found.log_probabilities, theirs_of(theirs, context, continuation)[0], atol=1e-9)


def test_what_the_model_would_have_written(both):
    ours, _ = both
    context = byte_tokenizer().encode_batch(["the river"])[0].ids
    (free,) = ours.generate("the river", 4, temperature=0)
    other = [*free.ids[:-1], free.ids[-1] - 1]
    found = continuation_scores(ours.model, [(context, free.ids), (context, other)])
    assert found[0].is_greedy.tolist() == [True] * 4 and found[1].is_greedy.tolist() == [True] * 3 + [False]


def test_what_is_read_alike_is_read_once(both, monkeypatch):
    ours, _ = both
    num_tokens, forward = [], type(ours.model).forward

    def counting(self, batch, *rest, **more):
        num_tokens.append(batch.num_tokens)
        return forward(self, batch, *rest, **more)

    monkeypatch.setattr(type(ours.model), "forward", counting)
    context = list(range(20))
    continuation_scores(ours.model, [(context, [number]) for number in range(30)] + [(context, [3, 4])])
    assert num_tokens == [20 + 21]


def test_a_token_across_the_border_counts_to_the_continuation(both):
    ours, _ = both
    whole = byte_tokenizer().encode_batch(["the river"])[0]
    border = whole.offsets[-1][1] - 1  # within the last token
    (found,) = ours.continuations([("the river"[:border], "the river"[border:])])
    assert len(found.log_probabilities) == 1


def test_refusals_and_the_beginning_of_a_document(both):
    ours, _ = both
    (found,) = ours.continuations([("", "the river")])
    assert found.total == pytest.approx(ours.score("the river")[0].total)
    with pytest.raises(ValueError, match="both need at least 1 token"):
        ours.continuations([("the river", "")])
    with pytest.raises(ValueError, match=f"at most {CONTEXT}"):
        continuation_scores(ours.model, [([1], list(range(CONTEXT + 1)))])


def test_no_text_begins_with_what_must_not_be_first(both):
    ours, _ = both
    (free,) = ours.generate("the river", 5, temperature=0)
    (other,) = ours.generate("the river", 5, temperature=0, begin_suppress_tokens=[free.ids[0]])
    assert other.ids[0] != free.ids[0]
    (later,) = (
        ours.generate("the river", 5, temperature=0, begin_suppress_tokens=[free.ids[1]])
        if free.ids[1] != free.ids[0]
        else (free,)
    )
    assert later.ids == free.ids
    with pytest.raises(ValueError, match="does not support begin_suppress_tokens"):
        ours.generate("the", 5, num_beams=2, begin_suppress_tokens=[1])
