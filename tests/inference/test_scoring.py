"""How likely texts are: against sums of log-softmax over `transformers`' scores, and windows against a plain loop."""

import math

import numpy as np
import pytest
import torch
import transformers
from small_gpts import CONTEXT, FAMILIES, PROMPTS, saved_gpt
from tiny import tiny_text

import hornbook
from hornbook.inference.scoring import window_bounds
from hornbook.interop.folder import save_model
from hornbook.models.bert import Bert, BertConfig
from hornbook.text.training import train_tokenizer

LONG = tiny_text(4)


@pytest.fixture(scope="module", params=FAMILIES)
def pair(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    theirs = saved_gpt(folder, request.param).double()
    return hornbook.load(folder).to("cpu", torch.float64), theirs


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bert")
    tokenizer = train_tokenizer(tiny_text(60).split("\n\n"), vocab_size=200)
    config = BertConfig(
        vocab_size=tokenizer.vocab_size, num_layers=2, width=32, num_heads=2, inner_width=64, max_positions=32,
        init_std=0.3,
    )  # fmt: skip
    model = Bert(config, ("mlm",))
    model.initialize(torch.Generator().manual_seed(5))
    save_model(folder, model)
    tokenizer.save(folder)
    return hornbook.load(folder)


@torch.no_grad()
def their_scores(theirs, ids: list[int]) -> np.ndarray:
    """log p of each token but the first."""
    scores = theirs(torch.tensor([ids[:-1]])).logits[0].log_softmax(-1)
    return scores[torch.arange(len(ids) - 1), ids[1:]].numpy()


def by_a_loop(theirs, ids: list[int], stride: int) -> np.ndarray:
    """Each target in the first window of CONTEXT tokens that reaches it."""
    found: dict[int, float] = {}
    for first in range(0, len(ids) - 1, stride):
        for place, score in enumerate(their_scores(theirs, ids[first : first + CONTEXT + 1]), first + 1):
            found.setdefault(place, score)
    return np.array([found[place] for place in range(1, len(ids))])


def test_score_is_the_sum_of_log_softmax(pair):
    ours, theirs = pair
    found = ours.score(PROMPTS)
    for text, score in zip(PROMPTS, found, strict=True):
        ids = ours.tokenizer.encode_batch([text])[0].ids
        expected = their_scores(theirs, [ours.eos_id, *ids])
        assert np.allclose(score.log_probabilities, expected, atol=1e-9)
        assert score.total == pytest.approx(expected.sum()) and score.per_token == pytest.approx(expected.mean())
        assert len(score.tokens) == len(ids) and score.text == text
    assert ours.score(PROMPTS[1])[0] == ours.score([PROMPTS[1]])[0]
    assert math.isnan(ours.score("")[0].per_token)


def test_a_long_text_is_scored_in_windows(pair):
    ours, theirs = pair
    ids = [ours.eos_id, *ours.tokenizer.encode_batch([LONG])[0].ids]
    assert len(ids) > 5 * CONTEXT
    assert np.allclose(ours.score(LONG)[0].log_probabilities, by_a_loop(theirs, ids, CONTEXT // 2), atol=1e-9)


def test_without_an_end_the_first_token_is_not_scored(tmp_path):
    theirs = saved_gpt(tmp_path, end=None)
    ours = hornbook.load(tmp_path)
    ids = ours.tokenizer.encode_batch(["the river"])[0].ids
    assert np.allclose(ours.score("the river")[0].log_probabilities, their_scores(theirs, ids), atol=1e-4)


@pytest.mark.parametrize("num", [0, 1, 7, 8, 9, 30])
@pytest.mark.parametrize("stride", [1, 5, 8])
def test_windows_score_every_target_once(num, stride):
    found = list(window_bounds(num, 8, stride))
    assert [place for _, scored, end in found for place in range(scored, end)] == list(range(num))
    for first, scored, end in found:
        assert first % stride == 0 and end - first <= 8
        assert first == 0 or scored - first >= 8 - stride


@pytest.mark.parametrize("stride", [None, 7, CONTEXT])
@pytest.mark.parametrize("documents", ["blank-line", "file"])
def test_perplexity_is_that_of_a_plain_loop(pair, tmp_path, monkeypatch, stride, documents):
    ours, theirs = pair
    monkeypatch.setattr("hornbook.inference.scoring.BATCH_TOKENS", 200)  # several batches
    (tmp_path / "text.txt").write_text(LONG, encoding="utf-8")
    seen = []
    found = ours.perplexity(tmp_path / "text.txt", stride, documents, on_progress=lambda *each: seen.append(each))
    texts = LONG.strip().split("\n\n") if documents == "blank-line" else [LONG.strip()]
    encoded = [ours.tokenizer.encode_batch([text])[0].ids for text in texts]
    total = sum(by_a_loop(theirs, [ours.eos_id, *ids], stride or CONTEXT // 2).sum() for ids in encoded)
    num_tokens = sum(map(len, encoded))
    assert (found.num_tokens, found.num_documents) == (num_tokens, len(texts))
    assert found.per_token == pytest.approx(math.exp(-total / num_tokens))
    num_bytes = sum(len(text.encode()) for text in texts)
    assert found.bits_per_byte == pytest.approx(-total / math.log(2) / num_bytes)
    assert found.per_word == pytest.approx(math.exp(-total / len(LONG.split())))
    assert seen[-1] == (num_tokens, num_tokens) and len(seen) > 1
    assert f"start {stride or CONTEXT // 2} apart" in found.definition


def test_what_makes_no_sense(pair, tmp_path):
    ours, _ = pair
    (tmp_path / "text.txt").write_text("the river", encoding="utf-8")
    for stride in (0, CONTEXT + 1):
        with pytest.raises(ValueError, match="stride= must be between 1 and"):
            ours.perplexity(tmp_path / "text.txt", stride)
    with pytest.raises(ValueError, match="documents must be"):
        ours.perplexity(tmp_path / "text.txt", documents="lines")
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(ValueError, match="no document"):
        ours.perplexity(tmp_path / "empty.txt")


def test_pseudo_log_likelihood(encoder, monkeypatch):
    """Each token masked in turn, one text at a time."""
    monkeypatch.setattr("hornbook.inference.scoring.BATCH_TOKENS", 30)
    theirs = transformers.BertForMaskedLM.from_pretrained(encoder.folder).eval()
    for text in ("the river", "a teacher of the garden, and letters"):
        ids = encoder.tokenizer.encode(text).ids
        expected = []
        for place in range(1, len(ids) - 1):
            masked = torch.tensor([[*ids[:place], encoder.tokenizer.mask_id, *ids[place + 1 :]]])
            with torch.no_grad():
                expected.append(float(theirs(masked).logits[0, place].log_softmax(-1)[ids[place]]))
        (found,) = encoder.score([text])
        assert np.allclose(found.log_probabilities, expected, atol=1e-4)
        assert len(found.tokens) == len(ids) - 2
    with pytest.raises(ValueError, match="more than the model's maximum"):
        encoder.score("bread " * 50)


def test_an_encoder_fills_masks_one_by_one(encoder):
    """Each mask as `fill_mask` guesses it, with those before it filled in."""
    ids = encoder.tokenizer.encode("the river [MASK] [MASK] [MASK]").ids
    special = set(encoder.tokenizer.special_ids)
    for place in [i for i, number in enumerate(ids) if number == encoder.tokenizer.mask_id]:
        with torch.no_grad():
            logits = encoder.model.vocabulary_logits(encoder.model(encoder._pack([ids], [[0] * len(ids)])))[place]
        order = logits[: encoder.tokenizer.vocab_size].argsort(descending=True).tolist()
        ids[place] = next(number for number in order if number not in special)
    expected = encoder.tokenizer.decode(ids)
    assert encoder.fill("the river [MASK] [MASK] [MASK]") == expected
    assert encoder.fill("the river", 3) == expected
    with pytest.raises(ValueError, match="bidirectional and cannot generate text"):
        encoder.generate("the river")
    with pytest.raises(ValueError, match="use a GPT"):
        encoder.perplexity("file")
