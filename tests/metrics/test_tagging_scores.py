import warnings

import numpy as np
import pytest
from one_call_scores import entity_scores, tag_accuracy

from hornbook.metrics.tagging import entities


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("", []),
        ("O O", []),
        ("B-PER I-PER O B-LOC", [("PER", 0, 2), ("LOC", 3, 4)]),
        ("B-PER B-PER", [("PER", 0, 1), ("PER", 1, 2)]),
        ("O I-PER I-PER", [("PER", 1, 3)]),  # IOB1, or a broken BIO
        ("I-PER B-PER I-PER", [("PER", 0, 1), ("PER", 1, 3)]),  # IOB1
        ("B-PER I-LOC", [("PER", 0, 1), ("LOC", 1, 2)]),
        ("I-PER E-PER I-PER E-PER", [("PER", 0, 2), ("PER", 2, 4)]),  # IOE
        ("E-PER E-PER", [("PER", 0, 1), ("PER", 1, 2)]),
        ("B-PER I-PER E-PER S-LOC O", [("PER", 0, 3), ("LOC", 3, 4)]),  # BIOES
        ("S-PER I-PER", [("PER", 0, 1), ("PER", 1, 2)]),
        ("B-PER O E-PER", [("PER", 0, 1), ("PER", 2, 3)]),
        ("B-date-of-birth I-date-of-birth", [("date-of-birth", 0, 2)]),
        ("B I O", [("_", 0, 2)]),
    ],
)
def test_entities(tags, expected):
    assert entities(tags.split()) == expected


def test_hand_computed_scores():
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC", "O"], ["O"]]
    ours = [["B-PER", "I-PER", "O", "O"], ["B-LOC", "I-LOC"], ["B-ORG"]]
    scores = entity_scores(gold, ours)
    assert scores.pop("types") == {
        "PER": {"precision": 1.0, "recall": 1.0, "f1": 1.0, "support": 1},
        "LOC": {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 2},
        "ORG": {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 0},
    }
    assert scores == pytest.approx({"precision": 1 / 3, "recall": 1 / 3, "f1": 1 / 3, "support": 3})
    assert tag_accuracy(gold, ours) == 4 / 7


def test_an_entity_ends_with_its_sentence():
    assert entity_scores([["B-PER"], ["I-PER"]], [["B-PER"], ["I-PER"]])["support"] == 2
    assert entity_scores([["B-PER"], ["O"]], [["O"], ["B-PER"]])["f1"] == 0.0


def test_nothing_found_is_0():
    assert entity_scores([["O"]], [["O"]]) == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 0, "types": {}}


def test_invalid_inputs_are_refused():
    with pytest.raises(ValueError, match="'PER' is not a tag"):
        entities(["PER"])
    with pytest.raises(ValueError, match="'U-PER' is not a tag"):
        entities(["U-PER"])
    with pytest.raises(ValueError, match="'' is not a tag"):
        entities([""])


@pytest.mark.parametrize("prefixes", ["BI", "IE", "BIES"])
def test_the_same_as_seqeval_on_random_tags(prefixes):
    """Drawn at random, most sequences are broken; with one type, most of BI and IE are valid IOB1 and IOE."""
    metrics = pytest.importorskip("seqeval.metrics")
    generator = np.random.default_rng(1)
    for num_types in (1, 2, 4):
        tags = ["O", *(f"{prefix}-type-{number}" for prefix in prefixes for number in range(num_types))]
        for _ in range(30):
            lengths = generator.integers(1, 12, 10)
            gold = [[tags[i] for i in generator.integers(0, len(tags), length)] for length in lengths]
            ours = [
                [tag if generator.random() < 0.8 else tags[generator.integers(len(tags))] for tag in row]
                for row in gold
            ]
            scores = entity_scores(gold, ours)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                assert scores["precision"] == pytest.approx(metrics.precision_score(gold, ours))
                assert scores["recall"] == pytest.approx(metrics.recall_score(gold, ours))
                assert scores["f1"] == pytest.approx(metrics.f1_score(gold, ours))
                report = metrics.classification_report(gold, ours, output_dict=True)
            assert tag_accuracy(gold, ours) == pytest.approx(metrics.accuracy_score(gold, ours))
            for kind, of_kind in scores["types"].items():
                expected = report[kind]
                assert of_kind["f1"] == pytest.approx(expected["f1-score"])
                assert of_kind["precision"] == pytest.approx(expected["precision"])
                assert of_kind["support"] == expected["support"]
            for row in gold + ours:
                inclusive = [(kind, start, end - 1) for kind, start, end in entities(row)]
                assert inclusive == metrics.sequence_labeling.get_entities(row)
