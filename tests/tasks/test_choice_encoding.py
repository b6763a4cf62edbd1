"""Multiple choice: choices paired with their context, groups that are not split, predictions in order."""

import numpy as np
import pytest

from hornbook.models.head_config import HeadConfig
from hornbook.tasks.kinds.choice import Choice
from hornbook.tasks.records import ChoiceExample
from hornbook.text.tokenizer import Tokenizer

TASK = Choice(HeadConfig("choice"), 3)


@pytest.fixture(scope="module")
def tokenizer(tiny_tokenizer) -> Tokenizer:
    return Tokenizer.load(tiny_tokenizer)


def example(number: int, label: int | None = 0, beginning: str = "") -> ChoiceExample:
    choices = tuple(f"silver {word}" for word in ("bread", "bridge " * (number + 1), "garden river"))
    return ChoiceExample(str(number), "the teacher of the harbour", choices, beginning, label)


def test_each_choice_is_paired_with_its_context(tokenizer):
    examples = [example(0, 2), example(1, 0, "a lantern")]
    encoded = TASK.encode(examples, tokenizer, 64)
    assert encoded.num_groups == len(examples) and len(encoded.ids) == 6 and encoded.group_size == 3
    assert encoded.example_ids.tolist() == [0, 0, 0, 1, 1, 1]
    assert encoded.labels.tolist() == [2, 2, 2, 0, 0, 0]
    for number, ids in enumerate(encoded.ids):
        owner = examples[number // 3]
        second = f"{owner.beginning} {owner.choices[number % 3]}".strip()
        expected = tokenizer.backend.encode(owner.context, second)
        assert ids.tolist() == expected.ids
        assert encoded.segments[number].tolist() == expected.type_ids


def test_a_batch_keeps_the_choices_of_a_question_in_order(tokenizer):
    """Sorted by length only as whole groups: the label is a place within the group."""
    examples = [example(number, number % 3) for number in (5, 0, 3, 1)]
    encoded = TASK.encode(examples, tokenizer, 64)
    batch = encoded.batch([0, 2, 3, 1])
    assert batch.group_size == 3 and batch.num_sequences == 12
    sizes = np.diff(batch.offsets_host[::3])
    assert sizes.tolist() == sorted(sizes)
    whole = {tuple(encoded.packed(range(3 * i, 3 * i + 3)).ids_T.tolist()): i for i in range(4)}
    order = []
    for group in range(4):
        part = batch.slice(3 * group, 3 * group + 3)
        order.append(whole[tuple(part.ids_T.tolist())])
        assert part.labels_N.tolist() == [examples[order[-1]].label] * 3
    assert sorted(order) == [0, 1, 2, 3]


def test_decoding(tokenizer):
    examples = [example(0), example(1), example(2)]
    encoded = TASK.encode(examples, tokenizer, 64)
    found = [np.array(row, np.float32) for row in ([0, 2, 1], [5, 0, 0], [0, 0, 3])]
    predictions = TASK.decode(found, encoded, examples)
    assert [each.choice for each in predictions] == [1, 0, 2]
    assert predictions[0].probabilities == pytest.approx(np.exp([0, 2, 1]) / np.exp([0, 2, 1]).sum())
    assert TASK.scorer([example(0, 1), example(1, 0), example(2, 0)], predictions)() == {
        "accuracy": pytest.approx(2 / 3)
    }
    assert TASK.describe(examples[0], predictions[0])["choice_text"] == examples[0].choices[1]
    assert TASK.decode([], TASK.encode([], tokenizer, 64), []) == []


def test_labels_that_are_not_known(tokenizer):
    assert TASK.encode([example(0, None), example(1, 1)], tokenizer, 64).labels is None


def test_another_number_of_choices_is_refused(tokenizer):
    with pytest.raises(ValueError, match=r"question 0 has 3 choices.*4"):
        Choice(HeadConfig("choice"), 4).encode([example(0)], tokenizer, 64)


def test_long_contexts_are_cut_and_counted(tokenizer):
    long = ChoiceExample("0", "river " * 100, ("bread", "silver bridge", "garden"), label=1)
    encoded = TASK.encode([long, example(1)], tokenizer, 32)
    assert encoded.num_truncated == 3
    assert [len(ids) for ids in encoded.ids[:3]] == [32] * 3
    for ids, choice in zip(encoded.ids, long.choices, strict=False):
        wanted = tokenizer.encode_batch([choice])[0].ids
        assert ids[-1 - len(wanted) : -1].tolist() == wanted, "the short choice stays whole"
