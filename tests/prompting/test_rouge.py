"""ROUGE against values of the `rouge-score` package 0.1.2 (without its stemmer) and by hand."""

import pytest

from hornbook.metrics.generation import best_rouge, rouge

# (text, reference, rouge1, rouge2, rougeL) as that package gives them
KNOWN = [
    ("The cat sat on the mat.", "the cat ate on a mat", 2 / 3, 0.2, 2 / 3),
    ("police killed the gunman", "the gunman police killed", 1.0, 2 / 3, 0.5),
    ("U.S.-led forces won't wait, 3.5 days", "US led forces wont wait 3 5 days!", 2 / 3, 0.5, 2 / 3),
    ("the the the the", "the cat the dog", 0.5, 0.0, 0.5),
    ("naïve café", "naive cafe", 0.0, 0.0, 0.0),
    ("one", "one", 1.0, 0.0, 1.0),
]


@pytest.mark.parametrize(("text", "reference", "one", "two", "longest"), KNOWN)
def test_known_values(text, reference, one, two, longest):
    found = rouge(text, reference)
    assert found == pytest.approx({"rouge1": one, "rouge2": two, "rougeL": longest})


def test_nothing_shares_nothing():
    assert rouge("", "a text") == rouge("a text", "") == {"rouge1": 0.0, "rouge2": 0.0, "rougeL": 0.0}


def test_the_best_of_several_references_for_each_score():
    found = best_rouge("b a c d", ["a b", "c d"])
    assert found == pytest.approx({"rouge1": 2 / 3, "rouge2": 0.5, "rougeL": 2 / 3})
