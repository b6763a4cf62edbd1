"""Random numbers are keyed by example: a share of a batch is prepared as in the whole batch."""

import numpy as np
import pytest
import torch
from test_batch import same

from hornbook.batch import Batch, concatenate, pack
from hornbook.objectives.clm import ClmObjective
from hornbook.objectives.masking import Masking, MaskingSettings
from hornbook.objectives.mlm import MlmObjective
from hornbook.objectives.rtd import RtdObjective
from hornbook.train.randomness import _mixed, random_bits, token_keys

SPECIAL = [0, 1, 2, 3, 4]


def batch_of(lengths: list[int]) -> Batch:
    random = np.random.default_rng(0)
    sequences = [np.concatenate([[2], random.integers(5, 90, length), [3]]) for length in lengths]
    words = [random.random(len(each)) < 0.6 for each in sequences]
    return pack(sequences, word_starts=words, labels=random.integers(0, 2, len(lengths)))


def masking(unit: str) -> Masking:
    return Masking(MaskingSettings(unit=unit), 90, 4, SPECIAL)


OBJECTIVES = {
    "mlm": MlmObjective(masking("token"), "nsp"),
    "words": MlmObjective(masking("word"), "nsp"),
    "n-grams": MlmObjective(masking("ngram"), "none"),
    "rtd": RtdObjective(masking("token")),
    "clm": ClmObjective(),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_halves_are_prepared_as_the_whole(name):
    objective, batch = OBJECTIVES[name], batch_of([30, 7, 61, 44, 9, 30, 100])
    whole = objective.prepare(batch, 5).batch
    for cut in (1, 4):
        halves = [objective.prepare(batch.slice(*each), 5).batch for each in ((0, cut), (cut, 7))]
        assert same(concatenate(halves), whole)
    assert name == "clm" or not objective.prepare(batch, 6).batch.ids_T.equal(whole.ids_T)


def test_the_numbers_are_those_of_splitmix64():
    """The first outputs of the published generator with seed 1234567."""
    states = 1234567 + torch.arange(1, 4) * (0x9E3779B97F4A7C15 - 2**64)
    found = [number % 2**64 for number in _mixed(states).tolist()]
    assert found == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_numbers_are_uniform_and_differ_by_example_position_and_purpose():
    batch = batch_of([98] * 400)
    keys = token_keys(batch, 0)
    assert len(keys.unique()) == len(keys)
    for bits in (random_bits(keys, "one")[0], random_bits(token_keys(batch, 1), "one")[0]):
        assert bits.min() >= 0 and bits.max() < 2**32
        counts = np.bincount((bits >> 28).numpy(), minlength=16)
        assert ((counts - 2500) ** 2 / 2500).sum() < 50  # chi-squared with 15 degrees of freedom
    pairs = torch.cat([random_bits(keys, "one", "two"), random_bits(token_keys(batch, 1), "one")]).double()
    assert (torch.corrcoef(pairs) - torch.eye(3)).abs().max() < 0.03
