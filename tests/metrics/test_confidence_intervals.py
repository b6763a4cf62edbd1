import numpy as np
import pytest

from hornbook.metrics import confidence_intervals
from hornbook.metrics.confidence_intervals import difference_interval, interval, intervals, mean_interval

VALUES = np.random.default_rng(0).random(400)


def mean(indices):
    return VALUES[indices].mean()


@pytest.fixture(autouse=True)
def rounds(monkeypatch):
    """As many resamples as outside of tests."""
    monkeypatch.setattr(confidence_intervals, "ROUNDS", 1000)


def test_the_interval_of_a_mean_is_near_the_normal_one():
    low, high = interval(mean, len(VALUES))
    reach = 1.96 * VALUES.std() / np.sqrt(len(VALUES))
    assert (low, high) == pytest.approx((VALUES.mean() - reach, VALUES.mean() + reach), abs=0.1 * reach)


def test_several_scores_have_the_draws_of_one():
    def both(indices):
        return {"mean": mean(indices), "largest": VALUES[indices].max()}

    found = intervals(both, len(VALUES))
    assert found == {
        "mean": interval(mean, len(VALUES)),
        "largest": interval(lambda indices: VALUES[indices].max(), len(VALUES)),
    }


def test_a_score_that_some_draws_lack_is_of_those_that_have_it():
    drawn = []

    def of_the_first(indices):
        drawn.append(indices)
        return {"all": 1.0} | ({"first": float((indices == 0).sum())} if 0 in indices else {})

    found = intervals(of_the_first, 3)
    counts = [(indices == 0).sum() for indices in drawn if 0 in indices]
    assert 0 < len(counts) < 1000
    assert found == {"all": (1.0, 1.0), "first": pytest.approx(tuple(np.quantile(counts, [0.025, 0.975])))}


def test_the_seed_decides():
    first, again, other = (intervals(lambda indices: {"": mean(indices)}, len(VALUES), seed) for seed in (1, 1, 2))
    assert first == again != other


def test_examples_are_drawn_with_replacement_from_all():
    drawn = []
    interval(lambda indices: drawn.append(indices) or 0.0, 20)
    assert {len(indices) for indices in drawn} == {20}
    assert set(np.concatenate(drawn)) == set(range(20))
    assert all(len(set(indices)) < 20 for indices in drawn)


def test_percentiles_by_hand():
    scores = iter(range(1000))
    assert interval(lambda _: next(scores), 5) == pytest.approx((24.975, 974.025))


def test_difference_interval_is_welchs():
    stats = pytest.importorskip("scipy.stats")
    a, b = [0.81, 0.84, 0.79, 0.83, 0.82], [0.80, 0.71, 0.86]
    expected = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert difference_interval(a, b) == pytest.approx((expected.low, expected.high))
    low, high = difference_interval(b, a)
    assert (low, high) == pytest.approx((-expected.high, -expected.low))


def test_difference_interval_by_hand():
    # means 2 and 0, squared errors 1/3 each, so 4 degrees of freedom and t = 2.776445
    reach = 2.776445 * np.sqrt(2 / 3)
    assert difference_interval([1, 2, 3], [-1, 0, 1]) == pytest.approx((2 - reach, 2 + reach), abs=1e-5)
    assert difference_interval([1, 1], [0.5, 0.5]) == (0.5, 0.5)


def test_invalid_inputs_are_refused():
    with pytest.raises(ValueError, match="at least 2 seeds"):
        difference_interval([1.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="0 examples"):
        interval(lambda _: 0.0, 0)


def test_the_interval_of_some_seeds_is_student_s():
    assert mean_interval([1.0, 2.0, 3.0]) == pytest.approx((2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5))
    assert mean_interval([2.0, 2.0]) == (2.0, 2.0)
    with pytest.raises(ValueError, match="at least 2 seeds"):
        mean_interval([1.0])
