import warnings

import numpy as np
import pytest
from one_call_scores import spearman

from hornbook.metrics.regression import mean_errors, pearson


def test_hand_computed_values():
    gold, ours = [1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 2.0, 10.0]
    # deviations -1.5 -.5 .5 1.5 and -3 -1 -2 6: products 13, squares 5 and 50
    assert pearson(gold, ours) == pytest.approx(13 / np.sqrt(5 * 50))
    # one swap of neighbours among 4 ranks: 1 - 6 * 2 / (4 * 15)
    assert spearman(gold, ours) == pytest.approx(0.8)
    assert mean_errors(gold, ours) == {
        "mean_absolute_error": (0 + 1 + 1 + 6) / 4,
        "mean_squared_error": (0 + 1 + 1 + 36) / 4,
    }


def test_spearman_sees_only_the_order_and_shares_ranks():
    assert spearman([1, 2, 3], [1, 100, 10_000]) == pytest.approx(1.0)
    assert spearman([1, 2, 3], [9, 4, 1]) == pytest.approx(-1.0)
    # ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4
    assert spearman([0, 5, 5, 7], [1, 2, 3, 4]) == pytest.approx(4.5 / np.sqrt(4.5 * 5))


def test_a_constant_side_gives_0_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for score in (pearson, spearman):
            assert score([1.0, 2.0, 3.0], [2.5, 2.5, 2.5]) == 0.0
            assert score([2.5, 2.5, 2.5], [1.0, 2.0, 3.0]) == 0.0


def test_the_same_as_scipy():
    stats = pytest.importorskip("scipy.stats")
    generator = np.random.default_rng(0)
    for scale in (1e-170, 1.0, 1e170):
        gold = scale * generator.normal(size=300)
        ours = np.round(gold / scale + generator.normal(size=300), 1) * scale
        assert pearson(gold, ours) == pytest.approx(stats.pearsonr(gold, ours).statistic, abs=1e-12)
        assert spearman(gold, ours) == pytest.approx(stats.spearmanr(gold, ours).statistic, abs=1e-12)


def test_what_is_no_number_has_no_correlation():
    for score in (pearson, spearman):
        assert np.isnan(score([1.0, 2.0, 3.0], [1.0, np.nan, 2.0]))


@pytest.mark.parametrize("score", [pearson, mean_errors])
def test_wrong_lengths_are_refused(score):
    with pytest.raises(ValueError, match="2 gold numbers but 1 predicted"):
        score([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="0 examples cannot be scored"):
        score([], [])
