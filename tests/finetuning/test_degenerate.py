"""What shows that a run learned nothing, and what does not."""

import re

import pytest

from hornbook.models.head_config import HeadConfig
from hornbook.runs.finetuning.single_run import degenerate, learned_nothing
from hornbook.tasks.evaluation import with_intervals
from hornbook.tasks.kinds.choice import Choice, ChoicePrediction
from hornbook.tasks.kinds.classification import Classification, ClassPrediction
from hornbook.tasks.kinds.regression import Regression
from hornbook.tasks.kinds.tagging import Tagging, TagPrediction
from hornbook.tasks.records import ChoiceExample, TaggedExample, TextExample


def tagged(said: list[str], right: list[str]) -> str | None:
    task = Tagging(HeadConfig("tokens", 3, ("O", "B-A", "I-A")), ("entity_f1",))
    examples = [TaggedExample(str(i), ("word", "word"), ("O", tag)) for i, tag in enumerate(right)]
    return learned_nothing(task, examples, [TagPrediction(("O", tag), ()) for tag in said], [])


def test_one_tag_for_every_word():
    assert tagged(["O", "O"], ["B-A", "O"]) == "the model tags every word 'O'"
    assert tagged(["B-A", "O"], ["O", "B-A"]) is None
    assert tagged(["O", "O"], ["O", "O"]) is None


@pytest.mark.parametrize(
    ("said", "right", "words"),
    [
        ([2] * 20, [0, 1] * 10, "the model takes choice 3 of every question"),
        ([2] * 19, [0, 1] * 9 + [0], None),  # too few to tell
        ([2] * 20, [2] * 20, None),  # as it should
        ([2] * 19 + [1], [0, 1] * 10, None),
    ],
)
def test_one_place_for_every_question(said, right, words):
    examples = [ChoiceExample(str(i), "context", ("a", "b", "c"), label=label) for i, label in enumerate(right)]
    predictions = [ChoicePrediction(choice, ()) for choice in said]
    assert learned_nothing(Choice(HeadConfig("choice"), 3), examples, predictions, []) == words


# ---- no better than chance

CLASSES = ("billing", "delivery", "refund")


def classified(pairs: list[tuple[str, str]], train: list[str], metric: str = "accuracy") -> str | None:
    """`pairs` are what is right and what was predicted."""
    task = Classification(HeadConfig("sequence", 3, CLASSES), (metric,))
    dev = [TextExample(str(i), "text", label=right) for i, (right, _) in enumerate(pairs)]
    predictions = [ClassPrediction(said, {}) for _, said in pairs]
    examples = [TextExample(str(i), "text", label=label) for i, label in enumerate(train)]
    return degenerate(task, examples, dev, predictions, with_intervals(task, dev, predictions), [])


def test_classes_no_better_than_the_commonest():
    random_pairs = [(CLASSES[i % 3], CLASSES[(i // 3) % 3]) for i in range(90)]
    wrong = classified(random_pairs, ["billing"] * 3 + ["refund"])
    assert wrong == "dev accuracy 0.333 is not above the majority class 'billing' (0.333)"
    better = [
        *random_pairs,
        *[("billing", "delivery")] * 12,
        *[("refund", "refund")] * 14,
        *[("delivery", "refund")] * 6,
    ]
    wrong = classified(better, ["billing"])
    assert re.fullmatch(
        r"dev accuracy 0\.361 \(0\.\d+ to 0\.\d+\) is not significantly above the majority class .* \(0\.344\)", wrong
    )
    assert classified([(name, name) for name in CLASSES] * 20, ["billing"]) is None


def test_unbalanced_classes_that_are_distinguished_are_not_degenerate():
    pairs = [("billing", "billing")] * 178 + [("billing", "refund")] * 7 + [("refund", "refund")] * 10
    pairs += [("refund", "billing")] * 5
    assert classified(pairs, ["billing"]) is None  # 0.94 beside 0.925, yet most refunds are found
    assert "not above the majority class 'billing'" in classified(pairs + [("billing", "refund")] * 9, ["billing"])


def test_numbers_no_better_than_their_mean(random):
    task = Regression(HeadConfig("sequence", 1, ("score",), "regression"), ("pearson", "spearman"))
    dev = [TextExample(str(i), "text", label=float(i % 7)) for i in range(70)]
    guesses = random.permutation([each.label for each in dev]).tolist()
    wrong = degenerate(task, dev, dev, guesses, with_intervals(task, dev, guesses), [])
    assert wrong.startswith("dev pearson") and "always predicting the mean, 3 (0)" in wrong
    right = [each.label + 0.1 for each in dev]
    assert degenerate(task, dev, dev, right, with_intervals(task, dev, right), []) is None


def test_choices_no_better_than_one_place():
    task = Choice(HeadConfig("choice"), 2)
    dev = [ChoiceExample(str(i), "context", ("a", "b"), label=i % 2) for i in range(40)]
    guesses = [ChoicePrediction((i // 2) % 2, ()) for i in range(40)]
    wrong = degenerate(task, dev, dev, guesses, with_intervals(task, dev, guesses), [])
    assert wrong == "dev accuracy 0.5 is not above always taking choice 1 (0.5)"


def test_tags_no_better_than_one_tag():
    task = Tagging(HeadConfig("tokens", 3, ("DET", "NOUN", "VERB")), ("tag_accuracy",))
    dev = [TaggedExample(str(i), ("a", "b"), ("NOUN", "VERB")) for i in range(30)]
    guesses = [TagPrediction(("VERB", "NOUN"), ()) for _ in dev]
    wrong = degenerate(task, dev, dev, guesses, with_intervals(task, dev, guesses), [])
    assert wrong == "dev tag_accuracy 0 is not above tagging every word 'NOUN' (0.5)"
