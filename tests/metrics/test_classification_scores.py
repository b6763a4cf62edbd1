import warnings

import numpy as np
import pytest
from one_call_scores import accuracy, f1, macro_f1, matthews, multi_label_f1

GOLD = ["yes", "yes", "yes", "no", "no", "no", "no", "no"]
OURS = ["yes", "yes", "no", "yes", "no", "no", "no", "no"]  # tp 2, fn 1, fp 1, tn 4


def test_hand_computed_values():
    assert accuracy(GOLD, OURS) == 6 / 8
    assert f1(GOLD, OURS, "yes") == pytest.approx(2 / 3)
    assert f1(GOLD, OURS, "no") == pytest.approx(4 / 5)
    assert macro_f1(GOLD, OURS) == pytest.approx((2 / 3 + 4 / 5) / 2)
    assert matthews(GOLD, OURS) == pytest.approx((2 * 4 - 1 * 1) / np.sqrt(3 * 3 * 5 * 5))


def test_perfect_and_opposite():
    assert matthews(["a", "b"], ["a", "b"]) == pytest.approx(1.0)
    assert matthews(["a", "b"], ["b", "a"]) == pytest.approx(-1.0)
    assert f1(["a", "b"], ["b", "a"], "a") == 0.0


def test_undefined_is_0_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert f1(["no", "no"], ["no", "no"], "yes") == 0.0
        assert matthews(["a", "b"], ["a", "a"]) == 0.0
        assert matthews(["a", "a"], ["a", "a"]) == 0.0


def test_macro_f1_is_over_the_classes_present():
    assert macro_f1(["a", "b"], ["a", "c"]) == pytest.approx(1 / 3)


def test_multi_label():
    gold = [{"joy", "anger"}, {"joy"}, set(), ("fear",)]
    ours = [{"joy"}, {"joy", "fear"}, set(), ("fear",)]
    scores = multi_label_f1(gold, ours, ["joy", "anger", "fear", "love"])
    assert scores["micro_f1"] == pytest.approx(2 * 3 / (4 + 4))
    assert scores["macro_f1"] == pytest.approx((1 + 0 + 2 / 3) / 3)  # nothing is labelled love
    assert scores["exact_match"] == 2 / 4
    assert multi_label_f1([()], [()], ["joy"]) == {"micro_f1": 0.0, "macro_f1": 0.0, "exact_match": 1.0}


def test_the_same_as_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    generator = np.random.default_rng(0)
    for num_labels in (2, 3, 7):
        labels = [f"label {number}" for number in range(num_labels)]
        gold = [labels[i] for i in generator.integers(0, num_labels, 200)]
        ours = [g if generator.random() < 0.5 else labels[generator.integers(num_labels)] for g in gold]
        assert accuracy(gold, ours) == pytest.approx(metrics.accuracy_score(gold, ours))
        assert macro_f1(gold, ours) == pytest.approx(metrics.f1_score(gold, ours, average="macro"))
        assert matthews(gold, ours) == pytest.approx(metrics.matthews_corrcoef(gold, ours))
        for label, expected in zip(labels, metrics.f1_score(gold, ours, labels=labels, average=None), strict=True):
            assert f1(gold, ours, label) == pytest.approx(expected)

        table = generator.random((2, 50, num_labels)) < 0.4
        sets = [[{labels[i] for i in np.flatnonzero(row)} for row in side] for side in table]
        scores = multi_label_f1(*sets, labels)
        assert scores["micro_f1"] == pytest.approx(metrics.f1_score(*table, average="micro"))
        assert scores["macro_f1"] == pytest.approx(metrics.f1_score(*table, average="macro"))
        with_absent = np.pad(table, ((0, 0), (0, 0), (0, 1)))
        expected = metrics.f1_score(*with_absent, average="macro", zero_division=np.nan)
        assert multi_label_f1(*sets, [*labels, "absent"])["macro_f1"] == pytest.approx(expected)
        assert scores["exact_match"] == pytest.approx(metrics.accuracy_score(*table))


def test_matthews_of_many_examples_does_not_overflow():
    gold, ours = ["a", "b"] * 100_000, ["a", "b"] * 90_000 + ["b", "a"] * 10_000
    assert matthews(gold, ours) == pytest.approx(0.8)


@pytest.mark.parametrize("score", [accuracy, macro_f1, matthews, lambda gold, ours: f1(gold, ours, "a")])
def test_wrong_lengths_are_refused(score):
    with pytest.raises(ValueError, match="2 gold labels but 1 predicted"):
        score(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="nothing to score"):
        score([], [])


def test_unknown_labels_are_refused():
    with pytest.raises(ValueError, match="'maybe' is not one of the labels yes, no"):
        multi_label_f1([{"yes"}], [{"maybe"}], ["yes", "no"])
