"""Experiments that are limited by words and scored without training, such as the shipped `babylm`."""

import json

import numpy as np
import pytest
from tiny import tiny_text

from hornbook.data.build import build_corpus
from hornbook.data.corpus import Corpus
from hornbook.evaluation.experiments.definition import read_experiment
from hornbook.evaluation.experiments.runner import reproduce
from hornbook.evaluation.minimal_pairs import minimal_pairs
from hornbook.files import read_json
from hornbook.report.info import describe
from hornbook.runs.pretraining.batches import BatchMaker
from hornbook.text.training import train_tokenizer

WORDS = 3000
TEXT = """
name = "words"
title = "A few words"
[equal]
words = 3000
corpus_words = 20000
seeds = [0, 1]
[equal.pretraining]
model.num_layers = 1
model.width = 32
model.num_heads = 2
model.inner_width = 128
model.max_positions = 64
data.length = 32
data.short_fraction = 0.0
batch.tokens = 512
runtime.threads = 1
[[arms]]
name = "gpt2"
preset = "gpt2-small"
[[arms]]
name = "hybrid"
preset = "gpt2-small"
directions.pairs = "fused"
settings.objective.mlm_fraction = 0.5
[[tasks]]
name = "pairs"
task = "minimal-pairs"
paths = ["pairs"]
[[tasks]]
name = "boxes"
task = "minimal-pairs"
paths = ["boxes"]
[[claims]]
name = "bars"
description = "It is good."
[[claims.conditions]]
description = "pairs"
metric = "score"
arm = "hybrid"
task = "pairs"
min = -1.0
[[claims.conditions]]
description = "minutes"
metric = "minutes"
arm = "hybrid"
max = 60.0
"""
QUIET = {"log": lambda words: None}


@pytest.fixture(scope="module")
def place(tmp_path_factory, tiny_text_file):
    folder = tmp_path_factory.mktemp("words")
    train_tokenizer(tiny_text(200).split("\n\n"), kind="bpe", vocab_size=320).save(folder / "tokenizer")
    build_corpus(tiny_text_file, folder / "tokenizer", folder / "corpus", workers=0)
    for name in ("pairs", "boxes"):
        (folder / "data" / name).mkdir(parents=True)
    rows = [
        {"sentence_good": f"the {word} of letters", "sentence_bad": f"{word} the of letters"}
        for word in ("river", "bridge", "garden", "teacher")
    ]
    (folder / "data" / "pairs" / "order.jsonl").write_text("\n".join(map(json.dumps, rows)))
    options = ["the bread.", "the river.", "the silver bridge."]
    rows = [{"numops": n, "input_prefix": "The garden contains ", "options": options} for n in (0, 1)]
    (folder / "data" / "boxes" / "regular.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "words.toml").write_text(TEXT)
    return folder


@pytest.fixture(scope="module")
def done(place):
    """Stopped after the first arm, then resumed."""
    out, seen = place / "out", []
    first = reproduce(
        *(place / "words.toml", place / "corpus", place / "data", out), arms=["gpt2", "hybrid"], seeds=1, **QUIET
    )
    assert first.ended == "finished" and first.num_jobs == 2 * 3
    before = (out / "jobs" / "pretrain-gpt2-0.json").stat().st_mtime_ns
    found = reproduce(
        *(place / "words.toml", place / "corpus", place / "data", out), resume=True, seeds=2, log=seen.append
    )
    assert (out / "jobs" / "pretrain-gpt2-0.json").stat().st_mtime_ns == before
    assert any("3,000 words per pre-training run" in words for words in seen)
    return out, found


def test_no_arm_reads_more_words_than_allowed(place, done):
    out, found = done
    corpus = Corpus(place / "corpus")
    text = (place / "corpus" / "manifest.json").read_text()
    assert corpus.num_words == json.loads(text)["totals"]["text_words"] == len(tiny_text(200).split())
    experiment = read_experiment(place / "words.toml")
    for arm in experiment.arms:
        record = read_json(out / "jobs" / f"pretrain-{arm.name}-0.json")
        assert 0.8 * WORDS < record["words"] <= WORDS
        make = BatchMaker(experiment.settings_of(arm), [(corpus, 1.0)])
        read = 0
        for number in range(record["steps"]):
            batch = make(number)
            rows = np.split(batch.ids_T.numpy(), batch.offsets_host[1:-1])
            # A word cut by the end of a chunk counts twice here.
            read += sum(len(corpus.tokenizer.decode(row.tolist()).split()) for row in rows)
        assert read <= 1.15 * WORDS
        assert found.results["arms"][arm.name]["planned_words"] == pytest.approx(record["words"], rel=0.02)


def test_scores_are_those_of_minimal_pairs(place, done):
    out, found = done
    record = read_json(out / "jobs" / "score-hybrid-1-at-1-pairs-0.json")
    weights = next((out / "pretrained" / "hybrid-1" / "kept").iterdir())
    again = minimal_pairs(weights, place / "data" / "pairs", direction="fused")
    assert record["score"] == pytest.approx(100 * again.mean.value) and record["pairs"] == 4
    assert "masked in turn" in record["definition"] and "given those before it" in record["definition"]
    boxes = read_json(out / "jobs" / "score-hybrid-1-at-1-boxes-0.json")
    assert boxes["scores"].keys() == {"regular_0_ops", "regular_1_ops"}
    assert "masked" not in boxes["definition"]
    rows = {(row["arm"], row["task"]): row for row in found.results["scores"]}
    scores = [read_json(out / "jobs" / f"score-hybrid-{seed}-at-1-pairs-0.json")["score"] for seed in (0, 1)]
    assert rows["hybrid", "pairs"]["score"] == pytest.approx(sum(scores) / 2)


def test_levels_and_minutes_are_judged(done):
    _, found = done
    (claim,) = found.results["claims"]
    level, minutes = claim["conditions"]
    assert minutes["verdict"] == "holds" and 0 < minutes["value"] < 60 and "minutes" in minutes["reason"]
    assert level["value"] is not None and level["low"] <= level["value"] <= level["high"]


def test_the_page_tells_of_words(done):
    out, _ = done
    text = (out / "RESULTS-words.md").read_text()
    assert "reads at most 3,000 words" in text and "Minutes of training and scoring" in text
    assert "accuracies of the pre-trained models as they are" in text
    assert ("words per arm", "3,000") in describe(out)["lines"]


def test_refusals(place, tmp_path):
    options = (place / "corpus", place / "data", tmp_path / "out")

    def refused(old: str, new: str, message: str, **more) -> None:
        assert old in TEXT
        (tmp_path / "own.toml").write_text(TEXT.replace(old, new, 1))
        with pytest.raises(ValueError, match=message):
            reproduce(tmp_path / "own.toml", *options, **QUIET, **more)

    refused("corpus_words = 20000", "corpus_words = 100", "words, more than the 100 of equal.corpus_words")
    refused("words = 3000", "words = 100", "would read .* words in 1 steps, more than the 100")
    refused("words = 3000", "words = 3000\nflops = 1e9", "both set the length")
    refused("seeds = [0, 1]", "seeds = [0, 1]", "leave it out", minutes_each=1.0)
    refused(
        'directions.pairs = "fused"', 'directions.pairs = "right"', "reads 'right': use causal, bidirectional, fused"
    )
    refused('directions.pairs = "fused"', 'directions.other = "causal"', "reads 'other', which is no task")
    refused('task = "minimal-pairs"', 'task = "minimal-pairs"\nmetric = "accuracy"', "is not fine-tuned on")


def test_one_arm_may_be_measured_against_a_bar(place):
    experiment = read_experiment(place / "words.toml").with_arms(["hybrid"])
    assert [arm.name for arm in experiment.arms] == ["hybrid"] and len(experiment.claims) == 1
    changed = experiment.with_settings({"objective.mlm_fraction": 0.7})
    assert changed.settings_of(changed.arms[0]).objective.mlm_fraction == 0.7
    assert "objective.mlm_fraction=0.7" in changed.about


def test_the_shipped_experiment_allows_what_babylm_does():
    experiment = read_experiment("babylm")
    assert (
        experiment.equal.words == 100e6 and experiment.equal.corpus_words == 10e6 and len(experiment.equal.seeds) == 3
    )
    assert [arm.name for arm in experiment.arms] == ["gpt2", "roberta", "hybrid"]
