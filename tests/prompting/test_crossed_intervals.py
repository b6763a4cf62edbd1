"""Intervals over examples and seeds at once."""

import numpy as np
import pytest

from hornbook.metrics.confidence_intervals import crossed_intervals, intervals


def of(rows):
    return lambda seed, chosen: {"mean": float(rows[seed][chosen].mean())}


def test_one_seed_is_the_bootstrap_over_examples(random):
    rows = random.random((1, 200))
    found = crossed_intervals(of(rows), 1, 200)["mean"]
    plain = intervals(lambda chosen: {"mean": float(rows[0][chosen].mean())}, 200, seed=1)["mean"]
    assert found == pytest.approx(plain)


def test_seeds_that_differ_widen_it():
    same = np.tile(np.arange(100) % 2, (4, 1))
    low, high = crossed_intervals(of(same), 4, 100)["mean"]
    apart = np.stack([np.full(100, value) for value in (0.0, 0.2, 0.8, 1.0)])  # no spread between examples
    wide_low, wide_high = crossed_intervals(of(apart), 4, 100)["mean"]
    assert 0.38 < low < 0.44 and 0.56 < high < 0.62
    assert wide_low < 0.15 and wide_high > 0.85
    assert crossed_intervals(of(np.ones((3, 10))), 3, 10)["mean"] == (1.0, 1.0)
