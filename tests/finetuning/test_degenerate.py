"""What shows that a run learned nothing, and what does not."""

import pytest

from hornbook.finetuning.evaluation import degenerate
from hornbook.models.outputs import Output
from hornbook.tasks.choice import Choice, ChoicePrediction
from hornbook.tasks.records import ChoiceExample, TaggedExample
from hornbook.tasks.tagging import Tagging, TagPrediction


def tagged(said: list[str], right: list[str]) -> str | None:
    task = Tagging(Output("tokens", 3, ("O", "B-A", "I-A")), ("entity_f1",))
    examples = [TaggedExample(str(i), ("word", "word"), ("O", tag)) for i, tag in enumerate(right)]
    return degenerate(task, examples, [TagPrediction(("O", tag), ()) for tag in said], [])


def test_one_tag_for_every_word():
    assert tagged(["O", "O"], ["B-A", "O"]) == "it tags every word 'O'"
    assert tagged(["B-A", "O"], ["O", "B-A"]) is None
    assert tagged(["O", "O"], ["O", "O"]) is None


@pytest.mark.parametrize(
    ("said", "right", "words"),
    [
        ([2] * 20, [0, 1] * 10, "it takes ending 3 whatever the endings"),
        ([2] * 19, [0, 1] * 9 + [0], None),  # too few to tell
        ([2] * 20, [2] * 20, None),  # as it should
        ([2] * 19 + [1], [0, 1] * 10, None),
    ],
)
def test_one_place_for_every_question(said, right, words):
    examples = [ChoiceExample(str(i), "context", ("a", "b", "c"), label=label) for i, label in enumerate(right)]
    predictions = [ChoicePrediction(choice, ()) for choice in said]
    assert degenerate(Choice(Output("choice"), 3), examples, predictions, []) == words
