"""The scores of tasks, of all examples and of drawn ones, are those of the metrics to the last bit."""

import time

import numpy as np
import one_call_scores
import pytest

from hornbook.metrics.confidence_intervals import interval
from hornbook.metrics.regression import mean_errors, pearson
from hornbook.models.head_config import HeadConfig
from hornbook.tasks.evaluation import with_intervals
from hornbook.tasks.kinds.classification import Classification, ClassPrediction, MultiLabel
from hornbook.tasks.kinds.regression import Regression
from hornbook.tasks.kinds.tagging import Tagging, TagPrediction
from hornbook.tasks.records import TaggedExample, TextExample

LABELS = ("no", "perhaps", "yes")


def classes(generator, num: int, num_labels: int = 3):
    names = [*LABELS, *(f"label {i}" for i in range(num_labels - 3))]
    gold = [names[i] for i in generator.integers(0, num_labels, num)]
    found = [right if generator.random() < 0.5 else names[generator.integers(num_labels)] for right in gold]
    examples = [TextExample(str(i), "t", None, label) for i, label in enumerate(gold)]
    return gold, found, examples, [ClassPrediction(label, {}) for label in found]


def several(generator, num: int):
    sides = [[tuple(label for label in LABELS if generator.random() < 0.4) for _ in range(num)] for _ in range(2)]
    examples = [TextExample(str(i), "t", None, label) for i, label in enumerate(sides[0])]
    return *sides, examples, [ClassPrediction(label, {}) for label in sides[1]]


def numbers(generator, num: int):
    gold = generator.integers(0, 6, num).astype(float)
    found = np.round(gold + generator.normal(size=num), 1)
    return gold, found, [TextExample(str(i), "t", None, value) for i, value in enumerate(gold.tolist())], found.tolist()


def drawn(generator, num: int):
    return [slice(None), *(generator.integers(0, num, num) for _ in range(20))]


def of(side, chosen):
    return [side[i] for i in np.arange(len(side))[chosen]]


@pytest.mark.parametrize(("num", "num_labels"), [(1, 3), (7, 3), (300, 3), (300, 40)])
def test_classes(random, num, num_labels):
    gold, found, examples, predictions = classes(random, num, num_labels)
    names = ("accuracy", "f1", "macro_f1", "matthews")
    score = Classification(HeadConfig("sequence", 3, LABELS), names, "yes").scorer(examples, predictions)
    for chosen in drawn(random, num):
        a, b = of(gold, chosen), of(found, chosen)
        assert score(chosen) == {
            "accuracy": sum(map(str.__eq__, a, b)) / num,
            "f1": one_call_scores.f1(a, b, "yes"),
            "macro_f1": one_call_scores.macro_f1(a, b),
            "matthews": one_call_scores.matthews(a, b),
        }


def test_a_positive_class_that_is_nowhere_has_f1_0():
    examples = [TextExample("0", "t", None, "no")]
    score = Classification(HeadConfig("sequence", 3, LABELS), ("f1",), "yes").scorer(
        examples, [ClassPrediction("no", {})]
    )
    assert score() == {"f1": 0.0}


def test_several_classes(random):
    gold, found, examples, predictions = several(random, 200)
    gold[3] = (*gold[3], "unheard of")
    examples[3] = TextExample("3", "t", None, gold[3])
    score = MultiLabel(HeadConfig("sequence", 3, LABELS, "multi_label_classification"), ()).scorer(
        examples, predictions
    )
    for chosen in drawn(random, 200):
        expected = one_call_scores.multi_label_f1(of(gold, chosen), of(found, chosen), (*LABELS, "unheard of"))
        assert score(chosen) == expected


def test_numbers(random):
    gold, found, examples, predictions = numbers(random, 200)
    score = Regression(HeadConfig("sequence", 1, ("score",), "regression"), ()).scorer(examples, predictions)
    for chosen in drawn(random, 200):
        a, b = of(gold, chosen), of(found, chosen)
        assert score(chosen) == {
            "pearson": pearson(a, b),
            "spearman": one_call_scores.spearman(a, b),
            **mean_errors(a, b),
        }


def test_tags(random):
    sides = [[tuple(random.choice(["O", "B-A", "I-A", "B-B"], 6)) for _ in range(50)] for _ in range(2)]
    examples = [TaggedExample(str(i), ("word",) * 6, tags) for i, tags in enumerate(sides[0])]
    task = Tagging(HeadConfig("tokens", 4, ("O", "B-A", "I-A", "B-B")), ("entity_f1", "tag_accuracy"))
    score = task.scorer(examples, [TagPrediction(tags, ()) for tags in sides[1]])
    for chosen in drawn(random, 50):
        a, b = (of(side, chosen) for side in sides)
        entities = one_call_scores.entity_scores(a, b)
        expected = {"entity_f1": entities["f1"], "tag_accuracy": one_call_scores.tag_accuracy(a, b)}
        expected |= {name: entities[name] for name in ("precision", "recall")}
        assert score(chosen) == pytest.approx(expected, abs=1e-15)


def test_confidence_intervals_are_those_of_each_score_alone(random):
    gold, found, examples, predictions = classes(random, 80)
    metrics = ("matthews", "macro_f1")
    scores = with_intervals(Classification(HeadConfig("sequence", 3, LABELS), metrics), examples, predictions)
    for name in metrics:
        metric = getattr(one_call_scores, name)
        low, high = interval(lambda c, f=metric: f(of(gold, c), of(found, c)), 80)
        assert scores[name] == {"value": metric(gold, found), "low": low, "high": high}


def test_the_interval_of_accuracy_has_a_width_where_all_are_right(random):
    _, _, examples, _ = classes(random, 15)
    predictions = [ClassPrediction(example.label, {}) for example in examples]
    found = with_intervals(Classification(HeadConfig("sequence", 3, LABELS), ("accuracy",)), examples, predictions)
    assert found["accuracy"] == {"value": 1.0, "low": pytest.approx(0.7961, abs=1e-4), "high": 1.0}


def test_confidence_intervals_take_moments(random):
    """Hundredths of a second for each; recomputing from the labels took up to nine seconds."""
    start = time.perf_counter()
    with_intervals(
        MultiLabel(HeadConfig("sequence", 3, LABELS, "multi_label_classification"), ()), *several(random, 2000)[2:]
    )
    with_intervals(Regression(HeadConfig("sequence", 1, ("score",), "regression"), ()), *numbers(random, 5000)[2:])
    assert time.perf_counter() - start < 4
