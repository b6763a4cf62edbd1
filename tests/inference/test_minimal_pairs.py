"""Minimal pairs: scores against one forward pass per masked token, files, intervals and the command."""

import json
import math
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from small_gpts import saved_gpt

import hornbook as library
from hornbook.evaluation.minimal_pairs import Accuracy, _totals, mean_of, minimal_pairs, read_pairs
from hornbook.inference import scoring

SENTENCES = ["the river bridge lantern", "teachers of letters", "the morning", "the morning river of the old teacher"]


def write_pairs(file, pairs, **more):
    lines = (json.dumps({"sentence_good": good, "sentence_bad": bad} | more) for good, bad in pairs)
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


@pytest.mark.parametrize("is_supported", [False, True])
def test_precision_on_a_gpu(monkeypatch, is_supported):
    casts = []
    monkeypatch.setattr(torch, "autocast", lambda *arguments: casts.append(arguments) or nullcontext())
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: is_supported)
    model = SimpleNamespace(
        device=torch.device("cuda"), score=lambda texts, **options: [SimpleNamespace(total=-1.0) for _ in texts]
    )
    assert _totals(model, [("", "the river")], False, lambda done: None) == {("", "the river"): -1.0}
    assert casts == [("cuda", torch.bfloat16)] * is_supported


@pytest.mark.parametrize("within_word", [False, True])
def test_batched_scores_are_those_of_one_masked_token_at_a_time(tiny_run, monkeypatch, within_word):
    monkeypatch.setattr(scoring, "BATCH_TOKENS", 20)  # several texts in a batch, and several batches for a text
    model = library.load(tiny_run)
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tiny_run).eval()
    done = []
    for text, found in zip(SENTENCES, model.score(SENTENCES, within_word, done.append), strict=True):
        encoded = model.tokenizer.encode(text)
        positions = [i for i, word in enumerate(encoded.word_ids) if word is not None]
        assert found.text == text and len(found.tokens) == len(positions)
        for i, log_probability in zip(positions, found.log_probabilities, strict=True):
            ids = torch.tensor([encoded.ids])
            for j in positions:
                same_word = encoded.word_ids[j] == encoded.word_ids[i]
                if j == i or (within_word and j > i and same_word):
                    ids[0, j] = model.tokenizer.mask_id
            with torch.no_grad():
                expected = theirs(ids).logits[0, i].log_softmax(-1)[encoded.ids[i]]
            assert log_probability == pytest.approx(float(expected), abs=1e-5)
    assert done == sorted(done) and done[-1] == len(SENTENCES)
    words = [word for text in SENTENCES for word in model.tokenizer.encode(text).word_ids if word is not None]
    assert len(words) > len(set(words))  # some words have several tokens


def test_a_gpt_is_scored_by_its_likelihood(tmp_path):
    saved_gpt(folder := tmp_path / "gpt")
    data = write_pairs(tmp_path / "pairs.jsonl", [("the river", "river the"), ("a b", "b a")])
    found = minimal_pairs(folder, data, out=tmp_path / "scores.jsonl")
    model = library.load(folder)
    for line in map(json.loads, (tmp_path / "scores.jsonl").read_text().splitlines()):
        good, bad = (each.total for each in model.score([line["sentence_good"], line["sentence_bad"]]))
        assert line["log_probability_good"] == pytest.approx(good)
        assert line["is_right"] == (good > bad) and line["paradigm"] == "pairs"
    assert found.mean.num_pairs == 2 and "given those before it" in found.definition
    with pytest.raises(ValueError, match="within_word= is for encoders"):
        minimal_pairs(folder, data, within_word=True)


def test_ties_are_wrong_and_paradigms_count_alike(tiny_run, tmp_path, monkeypatch):
    totals = {"good": 0.0, "bad": -1.0}
    monkeypatch.setattr(
        "hornbook.inference.encoder.EncoderModel.score",
        lambda self, texts, **more: [scoring.Score(text, ["x"], [totals[text.split()[0]]]) for text in texts],
    )
    folder = tmp_path / "pairs"
    folder.mkdir()
    write_pairs(
        folder / "one.jsonl", [("good 1", "bad 1"), ("good 2", "good 3"), ("bad 2", "good 4"), ("good 5", "bad 3")]
    )
    write_pairs(folder / "two.jsonl", [("good", "bad")], UID="named")
    found = minimal_pairs(tiny_run, folder)
    assert {name: each.value for name, each in found.paradigms.items()} == {"one": 0.5, "named": 1.0}
    assert found.mean.value == 0.75 and found.mean.num_pairs == 5


@pytest.mark.parametrize(("num", "truth"), [(200, [0.5, 0.7, 0.9]), (20, [0.6]), (5, [0.6] * 4), (10, [0.95] * 40)])
def test_confidence_intervals_cover_the_truth(num, truth):
    random, truth, inside = np.random.default_rng(0), np.array(truth), 0
    for _ in range(1000):
        shares = random.binomial(num, truth) / num
        found = mean_of([Accuracy(num, share, math.nan, math.nan) for share in shares.tolist()])
        inside += found.low <= truth.mean() <= found.high
    assert 0.92 < inside / 1000 < 0.98


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no minimal pairs"),
        ('{"sentence_good": "a"}\n', "line 1 has no sentence_good and sentence_bad"),
        ('{"good": "a", "bad": "b"}\nnot json\n', "line 2 is not JSON"),
        ('{"good": "a", "bad": 3}\n', "line 1"),
        ("[]\n", "line 1"),
    ],
)
def test_refused_files(tmp_path, text, words):
    (tmp_path / "pairs.jsonl").write_text(text)
    with pytest.raises(ValueError, match=words):
        read_pairs(tmp_path / "pairs.jsonl")


def test_lines_end_at_line_feeds_only(tmp_path):
    pairs = read_pairs(write_pairs(tmp_path / "a.jsonl", [("one\u2028two", "b")]))
    (tmp_path / "a.jsonl").write_text("\ufeff" + (tmp_path / "a.jsonl").read_text())
    assert read_pairs(tmp_path / "a.jsonl") == pairs
    assert [pair.good for pair in pairs] == ["one\u2028two"]
    with pytest.raises(ValueError, match="does not exist"):
        read_pairs(tmp_path / "missing")
    (tmp_path / "b.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="is not UTF-8"):
        read_pairs(tmp_path / "b.jsonl")


def test_the_command(hornbook, tiny_run, tmp_path):
    data = write_pairs(tmp_path / "grammar.jsonl", [("the river of", "of river the"), ("a b", "a b")])
    found = hornbook("minimal-pairs", tiny_run, "--data", data, "--within-word", "--json")
    assert found.answer["paradigms"]["grammar"]["num_pairs"] == 2 and found.answer["mean"]["value"] <= 0.5
    assert "mean of the paradigms" not in hornbook("minimal-pairs", tiny_run, "--data", data).out
    write_pairs(tmp_path / "words.jsonl", [("a b", "b a")])
    assert "mean of the paradigms" in hornbook("minimal-pairs", tiny_run, "--data", tmp_path).out
    assert hornbook("minimal-pairs", tiny_run, "--data", tmp_path / "missing").status == 2
