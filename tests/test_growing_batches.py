"""Batches that grow at the start of a run, as GPT-3's do: in a line over the tokens seen, each a function of its
number, no text left out or read twice."""

import json
from itertools import pairwise

import numpy as np
import pytest
import torch
from tiny import TINY_MODEL
from tiny_runs import run

from hornbook.data.corpus import Corpus
from hornbook.runs.pretraining.batches import BatchMaker
from hornbook.runs.pretraining.plan import plan
from hornbook.runs.pretraining.presets import preset_settings
from hornbook.train.settings import BatchSettings

STEPS = 30
GROWING = {"batch.tokens": 1024, "batch.first_tokens": 128, "batch.growth_fraction": 0.5, "schedule.steps": STEPS}


def maker(corpus, preset: str = "gpt2-small", **overrides) -> BatchMaker:
    settings = preset_settings(preset, TINY_MODEL | GROWING | {k.replace("__", "."): v for k, v in overrides.items()})
    return BatchMaker(settings, [(Corpus(corpus), 1.0)])


def test_a_batch_is_a_line_over_the_tokens_seen():
    batch = BatchSettings(tokens=524_288, first_tokens=32_768, growth_fraction=0.1)
    growing = batch.tokens_before(10_000, 100_000)
    for step in (0, 2_500, 9_000, 9_999):
        before, after = (batch.tokens_before(each, 100_000) for each in (step, step + 1))
        expected = 32_768 + (524_288 - 32_768) * (before + after) / 2 / growing
        assert after - before == pytest.approx(expected, rel=1e-6)
    assert batch.tokens_before(10_001, 100_000) - growing == pytest.approx(524_288)
    assert batch.tokens_before(100_000, 100_000) == pytest.approx(100_000 * batch.mean_tokens)
    plain = BatchSettings(tokens=524_288)
    assert plain.mean_tokens * 7 == plain.tokens_before(7, 100) == 7 * 524_288


@pytest.mark.parametrize("short_fraction", [0.0, 0.3])
def test_batches_follow_each_other_and_need_no_history(tiny_corpus, short_fraction):
    """The sequences of all batches are those of one stream, each once, in any order of access."""
    asked = []
    make = maker(tiny_corpus, data__short_fraction=short_fraction)
    for length, sampler in make.samplers.items():
        whole = sampler.batch

        def batch(number, num, first, part, length=length, whole=whole):
            assert part == (0, num)
            asked.append((length, first, first + num))
            made = whole(number, num, first)
            one_by_one = torch.cat([whole(each, 1).ids_T for each in range(first, first + num)])
            assert torch.equal(made.ids_T.sort()[0], one_by_one.sort()[0])
            return made

        sampler.batch = batch
    made = [make(number) for number in range(STEPS)]
    for length in make.samplers:
        edges = [(first, stop) for size, first, stop in asked if size == length]
        assert edges[0][0] == 0 and all(one[1] == two[0] for one, two in pairwise(edges))
    sizes = [length * (stop - first) for length, first, stop in asked]
    assert sizes[0] <= 192 and sizes[STEPS // 2 :] == [1024] * (STEPS // 2)
    assert all(one <= two + 64 for one, two in pairwise(sizes))
    assert sum(sizes) == pytest.approx(STEPS * make.batch.mean_tokens, abs=128)
    for number in (17, 3, 0, 29):
        assert torch.equal(maker(tiny_corpus, data__short_fraction=short_fraction)(number).ids_T, made[number].ids_T)


def test_an_encoder_may_grow_its_batches_too(tiny_corpus):
    make = maker(tiny_corpus, "bert-tiny")
    sizes = [made.num_sequences * made.max_length for made in map(make, (0, 10, 29))]
    assert sizes[0] < sizes[1] < sizes[2] == 1024


def test_a_run_learns_on_growing_batches(tmp_path, tiny_corpus):
    run(tmp_path / "run", tiny_corpus, family="gpt3", overrides={"runtime.log_every_steps": 1})
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    seen = [line["tokens"] for line in lines if line["kind"] == "train"]
    grown = np.diff([0, *seen])
    assert grown[0] < 200 and grown[-1] > 400 and len(grown) == 12


def test_tokens_and_plans_count_the_mean_batch(tiny_corpus, tmp_path):
    overrides = {"batch.first_tokens": 128, "batch.growth_fraction": 1.0}
    run(tmp_path / "run", tiny_corpus, steps=None, tokens=10_000, family="gpt2", overrides=overrides)
    decided = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]
    assert decided["schedule"]["steps"] == -(-10_000 // BatchSettings(512, 512, 128, 1.0).mean_tokens)
    assert plan("gpt3-125m").tokens == pytest.approx(300e9, rel=1e-4)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"batch.first_tokens": 4}, "first_tokens must be at least 8"),
        ({"batch.first_tokens": 128, "batch.growth_fraction": 0.0}, "growth_fraction must be above 0"),
        ({"batch.first_tokens": 32}, r"batch\.first_tokens=32 is less than one sequence of 64"),
        ({"batch.growth_fraction": 0.5}, r"growth_fraction would have no effect: .* set batch\.first_tokens"),
    ],
)
def test_refusals(overrides, words):
    with pytest.raises(ValueError, match=words):
        preset_settings("gpt2-small", TINY_MODEL | {"batch.tokens": 1024} | overrides)
