"""Each metric on answers whose score can be computed by hand, and its interval."""

import math

import numpy as np
import pytest

from hornbook.evaluation.prompting.scores import scored
from hornbook.tasks.text.metrics import METRICS, TextAnswer


def value(name: str, *found: TextAnswer) -> float:
    rows = METRICS[name].rows(found)
    return METRICS[name].score(rows.sum(0), len(rows))


def test_of_choices_and_words():
    right, wrong = TextAnswer(("red",), "red"), TextAnswer(("red",), "blue")
    assert value("accuracy", right, wrong, wrong, wrong) == 25
    assert value("word", right, TextAnswer(('"Red.',), "Red"), TextAnswer(("red",), "Red")) == pytest.approx(200 / 3)


def test_of_texts():
    near = TextAnswer(("the red house", "a barn"), "Red barns, red house")
    assert value("exact", near, TextAnswer(("The barn!",), "barn")) == 50
    assert value("f1", near) == pytest.approx(100 * 2 * 2 / (4 + 2))
    assert value("coqa_f1", TextAnswer(("barn", "red"), "barn")) == 50  # each person is left out once
    assert value("rouge2", TextAnswer(("red house", "green house"), "a green house")) == pytest.approx(100 * 2 / 3)


def test_of_likelihood():
    found = [
        TextAnswer(("x",), "", (-1.0, -2.0), (True, False)),
        TextAnswer(("y",), "", (-0.5,), (True,)),
        TextAnswer(("z",), "", (-1.5, -1.0), (False, False)),
    ]
    assert value("greedy", *found) == pytest.approx(100 / 3)
    assert value("last_token", *found) == pytest.approx(100 / 3)
    assert value("perplexity", *found) == pytest.approx(math.exp(6 / 3))
    assert value("perplexity", TextAnswer(("x",), "", (-800.0,), (False,))) == math.inf


def test_scores_have_intervals():
    rows = np.array([[1.0], [0.0]] * 50)
    found = scored([{"accuracy": rows}, {"accuracy": np.ones((100, 1))}])["accuracy"]
    assert found["seeds"] == [50, 100] and found["value"] == 75
    assert 35 < found["low"] < 48 and found["high"] == 100
