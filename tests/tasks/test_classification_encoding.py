"""Texts and pairs as token sequences: cut as `transformers` cuts them, counted, with their labels."""

import random as chance

import numpy as np
import pytest
import transformers

from hornbook.models.head_config import HeadConfig
from hornbook.tasks.kinds.classification import Classification, ClassPrediction, MultiLabel
from hornbook.tasks.kinds.regression import Regression
from hornbook.tasks.records import TextExample
from hornbook.text.tokenizer import Tokenizer

LABELS = ("no", "maybe", "yes")
SINGLE = Classification(HeadConfig("sequence", 3, LABELS), ("accuracy",))
MULTI = MultiLabel(
    HeadConfig("sequence", 3, LABELS, "multi_label_classification"), ("micro_f1", "macro_f1", "exact_match")
)
NUMBER = Regression(HeadConfig("sequence", 1, ("score",), "regression"), ("pearson", "spearman"))
SEPARATE = Classification(HeadConfig("sequence", 3, LABELS, pair_encoding="separate"), ("accuracy",))
BOTH = Classification(HeadConfig("sequence", 3, LABELS, pair_encoding="both"), ("accuracy",))
WORDS = ("the", "river", "teacher", "lantern", "bridge", "한국어", "silver", "Bread.", "harbour,")


@pytest.fixture(scope="module")
def tokenizer(tiny_tokenizer) -> Tokenizer:
    return Tokenizer.load(tiny_tokenizer)


@pytest.fixture(scope="module")
def theirs(tiny_tokenizer) -> transformers.PreTrainedTokenizerBase:
    return transformers.AutoTokenizer.from_pretrained(tiny_tokenizer)


def texts(seed: int, number: int, longest: int) -> list[str]:
    draw = chance.Random(seed)
    return [" ".join(draw.choice(WORDS) for _ in range(draw.randint(1, longest))) for _ in range(number)]


@pytest.mark.parametrize("longest", [12, 19, 24, 25, 30])
def test_pairs_are_cut_like_longest_first(tokenizer, theirs, longest):
    """Also where both are of one length, and where the room is odd."""
    first, second = texts(0, 200, 20), texts(1, 200, 20)
    second[:20] = [" ".join(["river"] * (i + 1)) for i in range(20)]
    first[:20] = second[:20]
    examples = [TextExample(str(i), *pair, "no") for i, pair in enumerate(zip(first, second, strict=True))]
    encoded = SINGLE.encode(examples, tokenizer, longest)
    expected = theirs(first, second, truncation="longest_first", max_length=longest)
    assert [ids.tolist() for ids in encoded.ids] == expected["input_ids"]
    assert [segments.tolist() for segments in encoded.segments] == expected["token_type_ids"]
    whole = theirs(first, second)["input_ids"]
    assert encoded.num_truncated == sum(len(ids) > longest for ids in whole) > 0


@pytest.mark.parametrize("longest", [12, 25, 30])
def test_single_texts_are_cut_at_their_end(tokenizer, theirs, longest):
    several = texts(2, 100, 40)
    encoded = SINGLE.encode([TextExample(str(i), text) for i, text in enumerate(several)], tokenizer, longest)
    expected = theirs(several, truncation=True, max_length=longest)["input_ids"]
    assert [ids.tolist() for ids in encoded.ids] == expected
    assert not any(segments.any() for segments in encoded.segments)
    assert encoded.num_truncated == sum(len(ids) > longest for ids in theirs(several)["input_ids"]) > 0


def test_texts_with_and_without_a_pair(tokenizer, theirs):
    """In one data set, in their order."""
    first, second = texts(3, 12, 9), texts(4, 12, 9)
    pairs = [second[i] if i % 3 else None for i in range(12)]
    encoded = SINGLE.encode([TextExample(str(i), first[i], pairs[i]) for i in range(12)], tokenizer, 64)
    for text, pair, ids in zip(first, pairs, encoded.ids, strict=True):
        assert ids.tolist() == theirs(text, pair)["input_ids"]


def test_separate_pairs(tokenizer, theirs):
    """Two sequences per example, each with its own maximum length; truncated texts are counted separately."""
    first, second = texts(5, 30, 12), texts(6, 30, 30)
    examples = [TextExample(str(i), *pair, LABELS[i % 3]) for i, pair in enumerate(zip(first, second, strict=True))]
    encoded = SEPARATE.encode(examples, tokenizer, 20)
    both = [text for pair in zip(first, second, strict=True) for text in pair]
    assert [ids.tolist() for ids in encoded.ids] == theirs(both, truncation=True, max_length=20)["input_ids"]
    assert encoded.num_truncated == sum(len(ids) > 20 for ids in theirs(both)["input_ids"]) > 0
    assert encoded.num_groups == len(examples) and encoded.group_size == 2
    assert encoded.example_ids.tolist() == np.repeat(np.arange(30), 2).tolist()
    assert encoded.labels.tolist() == np.repeat(np.arange(30) % 3, 2).tolist()
    with pytest.raises(ValueError, match="only one"):
        SEPARATE.encode([TextExample("0", "the river")], tokenizer, 20)


def test_labels(tokenizer):
    def encoded(task: Classification, *labels) -> np.ndarray | None:
        return task.encode(
            [TextExample(str(i), "river", None, each) for i, each in enumerate(labels)], tokenizer, 16
        ).labels

    assert encoded(SINGLE, "yes", "no", "maybe").tolist() == [2, 0, 1]
    assert encoded(SINGLE, "yes", "never seen").tolist() == [2, -1]
    assert encoded(SINGLE, "yes", None) is None
    assert encoded(NUMBER, 1.5, -2.0).tolist() == [1.5, -2.0]
    assert encoded(MULTI, ("yes", "no"), (), ("maybe", "never seen")).tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]


def test_decoding_one_class():
    found = [np.array(row, np.float32) for row in ([0, 0, 2], [3, 1, 0])]
    predictions = SINGLE.decode(found, None, [])
    assert [each.label for each in predictions] == ["yes", "no"]
    assert tuple(predictions[1].probabilities) == LABELS
    assert predictions[1].probability == predictions[1].probabilities["no"] > 0.8
    assert list(predictions[0].probabilities.values()) == pytest.approx(np.exp([0, 0, 2]) / np.exp([0, 0, 2]).sum())
    row = SINGLE.describe(TextExample("0", "river", "bank"), predictions[0])
    assert (row["text"], row["pair"], row["label"]) == ("river", "bank", "yes")
    assert row["probability"] == max(row["probabilities"].values())
    assert SINGLE.decode([], None, []) == []


def test_decoding_several_classes():
    """Each by itself: none, or all."""
    found = [np.array(row, np.float32) for row in ([-5, -1, -3], [1, -1, 0.5], [9, 9, 9])]
    predictions = MULTI.decode(found, None, [])
    assert [each.label for each in predictions] == [(), ("no", "yes"), LABELS]
    assert list(predictions[1].probabilities.values()) == pytest.approx(1 / (1 + np.exp([-1, 1, -0.5])))
    assert MULTI.decode([], None, []) == []


def test_decoding_numbers():
    assert NUMBER.decode([np.array([2.5], np.float32), np.array([-1.0], np.float32)], None, []) == [2.5, -1.0]
    assert NUMBER.decode([], None, []) == []
    gold = [TextExample(str(i), "river", None, float(i)) for i in range(4)]
    scores = NUMBER.scorer(gold, [0.0, 2.0, 4.0, 6.5])()
    assert scores["spearman"] == pytest.approx(1) and 0.99 < scores["pearson"] < 1


def test_scores_of_chosen_examples():
    gold = [TextExample(str(i), "river", None, label) for i, label in enumerate(("no", "yes", "no", "maybe"))]
    said = [ClassPrediction(label, {label: 1.0}) for label in ("no", "no", "no", "no")]
    score = SINGLE.scorer(gold, said)
    assert score() == {"accuracy": 0.5}
    assert score(np.array([0, 2, 2])) == {"accuracy": 1.0}
    assert score(np.array([1, 3])) == {"accuracy": 0.0}


@pytest.mark.parametrize("longest", [12, 13, 24, 40])
def test_both_orders_stand_side_by_side(tokenizer, longest):
    """The texts in one order and the other, cut alike: swapped texts are the same two sequences, swapped."""
    first, second = texts(0, 100, 20), texts(1, 100, 20)
    second[:20] = [" ".join(["river"] * (i + 1)) for i in range(20)]
    first[:20] = [" ".join(["bridge"] * (i + 1)) for i in range(20)]  # of one length, where the odd token goes to none
    pairs = list(zip(first, second, strict=True))
    one, other = (
        BOTH.encode([TextExample(str(i), *pair, "yes") for i, pair in enumerate(several)], tokenizer, longest)
        for several in (pairs, [pair[::-1] for pair in pairs])
    )
    assert one.group_size == 2 and one.num_groups == 100 and one.labels.tolist() == [2] * 200
    assert one.example_ids.tolist() == [i // 2 for i in range(200)] and max(map(len, one.ids)) <= longest
    for i in range(0, 200, 2):
        assert one.ids[i].tolist() == other.ids[i + 1].tolist() and one.ids[i + 1].tolist() == other.ids[i].tolist()
        assert sorted(one.ids[i]) == sorted(one.ids[i + 1])
    if longest == 40:
        joint = SINGLE.encode([TextExample(str(i), *pair, "yes") for i, pair in enumerate(pairs)], tokenizer, longest)
        assert sum(a.tolist() == b.tolist() for a, b in zip(one.ids[::2], joint.ids, strict=True)) > 90
    with pytest.raises(ValueError, match=r"task.pair_encoding='both' is for pairs"):
        BOTH.encode([TextExample("0", "alone")], tokenizer, longest)
