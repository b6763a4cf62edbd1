"""Entity typing and relations: published layouts, marks, and scores."""

import json

import numpy as np
import pytest

from hornbook.metrics import classification as measured
from hornbook.models.head_config import HeadConfig
from hornbook.tasks.kinds.classification import ClassPrediction
from hornbook.tasks.kinds.marked import EntityTyping, Relation
from hornbook.tasks.reading.inputs import as_examples
from hornbook.tasks.reading.marked import split_marks
from hornbook.tasks.reading.read import read
from hornbook.tasks.records import MarkedExample
from hornbook.text.task_tokens import with_mention_marks
from hornbook.text.tokenizer import Tokenizer

TYPING = EntityTyping(
    HeadConfig("sequence", 2, ("person", "place"), "multi_label_classification"), EntityTyping.default_metrics
)
RELATION = Relation(HeadConfig("sequence", 2, ("In(e1,e2)", "Other")), Relation.default_metrics)
SEMEVAL = '1\t"The <e1>child</e1> lay in the <e2>cradle</e2>."\nEntity-Destination(e1,e2)\nComment: so\n\n'
SEMEVAL += '2\t"A <e2>river</e2> by the <e1>bridge</e1>."\nOther\nComment:\n\n'
UFET = {
    "annot_id": "a:1",
    "mention_span": "the old teacher",
    "left_context_token": ["They", "saw"],
    "right_context_token": ["."],
    "y_str": ["person", "teacher"],
}


def test_ufet(tmp_path):
    for split, row in (("train", UFET), ("dev", UFET | {"left_context_token": [], "y_str": []})):
        (tmp_path / f"{split}.json").write_text(json.dumps(row) + "\n" + json.dumps(UFET | {"annot_id": "b"}))
    data = read("ufet", tmp_path)
    first = data.splits["train"][0]
    assert (first.text, first.mentions, first.label) == (
        "They saw the old teacher .",
        ("the old teacher",),
        ("person", "teacher"),
    )
    assert first.marked(["[ENT]"])[0] == "They saw [ENT] the old teacher [ENT] ."
    assert data.splits["dev"][0].mentions == ("the old teacher",) and data.splits["dev"][0].label == ()
    assert data.labels == ("person", "teacher") and data.kind == "entity-typing"


def test_open_entity_as_ernies_authors_publish_it():
    row = {"sent": "Paris is old.", "start": 0, "end": 5, "labels": ["place"], "ents": [["Q90", 0, 5, 0.5]]}
    unsure = row | {"ents": [["Q90", 0, 5, 0.1]]}
    found = read("entity-typing", {"train": [row, unsure], "dev": [row]}).splits["train"]
    as_table = row | {"start": "0", "end": 5.0}  # as CSV files and data frames have them
    assert read("entity-typing", {"train": [as_table], "dev": [row]}).splits["train"][0].mentions == ("Paris",)
    assert [each.given for each in found] == [((0, 5, "Q90"),), ()] and found[0].mentions == ("Paris",)


def test_semeval(tmp_path):
    (tmp_path / "TRAIN_FILE.TXT").write_text(SEMEVAL * 3)
    (tmp_path / "TEST_FILE_FULL.TXT").write_text(SEMEVAL)
    data = read("semeval2010-task8", tmp_path)
    first, second = data.splits["test"]
    assert (first.text, first.mentions) == ("The child lay in the cradle.", ("child", "cradle"))
    assert (second.mentions, second.label) == (("bridge", "river"), "Other")  # e1 is the head, wherever it is
    assert second.marked(["[HD]", "[TL]"])[0] == "A [TL] river [TL] by the [HD] bridge [HD]."
    assert sum(map(len, (data.splits["train"], data.splits["dev"]))) == 6
    alone = read("semeval", tmp_path / "TEST_FILE_FULL.TXT")
    assert alone.splits["test"] == data.splits["test"]


def test_fewrel_and_opennre(tmp_path):
    tokens = ["He", "lives", "in", "New", "York", "."]
    fewrel = {"tokens": tokens, "h": ["he", "Q1", [[0]]], "t": ["new york", "Q60", [[3, 4]]]}
    (tmp_path / "train.json").write_text(json.dumps({"P551": [fewrel], "P1": [fewrel]}))
    data = read("relation", tmp_path, held_out=0)
    first = data.splits["train"][0]
    assert first.mentions == ("He", "New York") and first.label == "P551" and data.labels == ("P1", "P551")
    assert first.given == ((0, 2, "Q1"), (12, 20, "Q60"))
    opennre = {"token": tokens, "h": {"name": "he", "pos": [0, 1]}, "t": {"id": "Q60", "pos": [3, 5]}, "relation": "x"}
    of_text = {"text": first.text, "h": {"pos": [0, 2]}, "t": {"pos": [12, 20]}, "relation": "x"}
    for row in (opennre, of_text):
        (found,) = read("relation", [row], held_out=0).splits["train"]
        assert found.mentions == ("He", "New York")
    theirs = {"text": first.text, "ents": [["Q1", 0, 2, 1], ["Q60", 12, 20, 1]], "label": "x"}
    (found,) = read("relation", [theirs], held_out=0).splits["train"]
    assert found.mentions == ("He", "New York") and len(found.given) == 2


def test_rows_without_a_mention_are_counted():
    rows = [{"text": "no mark", "label": "a"}, {"text": "[HD] one [HD] [TL] two [TL]", "label": "a"}, {"label": "b"}]
    rows.append({"text": "[HD] only one [HD]", "label": "a"})
    data = read("relation", {"train": rows, "dev": rows})
    assert [len(data.splits[split]) for split in ("train", "dev")] == [1, 4]
    assert data.problems.count("no_mention") == data.problems.count("kept_no_mention") == 3
    assert data.splits["dev"][0].reason_unusable == "no mention is marked in the text"
    with pytest.raises(ValueError, match="no column for the label"):
        read("relation", [{"text": "[HD] a [HD] [TL] b [TL]"}])
    with pytest.raises(ValueError, match="the column 'label' has no labels: fill it in, or name another with label="):
        read("relation", [{"text": "[HD] a [HD] [TL] b [TL]", "label": None}])


@pytest.mark.parametrize(
    ("task", "row", "name", "value"),
    [
        ("entity-typing", UFET, "left_context_token", 5),
        ("entity-typing", {"text": "In [ENT] Oslo [ENT].", "label": "place"}, "ents", [["Q1", None, 3]]),
        ("entity-typing", {"text": "In [ENT] Oslo [ENT].", "label": "place"}, "mentions", 3.5),
        ("relation", {"text": "Ada met Bob", "t": {"pos": [8, 11]}, "relation": "met"}, "h", {"pos": "x"}),
        ("relation", {"tokens": ["a", "b"], "t": ["b", "Q2", [[1]]], "relation": "met"}, "h", ["a", "Q1", 5]),
    ],
)
def test_values_of_other_types_are_a_problem_of_their_row(task, row, name, value):
    data = read(task, {"dev": [row | {name: value}]})
    assert data.problems.count("kept_no_mention") == 1 and data.splits["dev"][0].reason_unusable
    with pytest.raises(ValueError, match="is invalid: this model takes"):
        as_examples([row | {name: value}], task)


@pytest.mark.parametrize(
    ("text", "marks", "expected"),
    [
        ("a [ENT] b c [ENT] d", ["[ENT]"], ("a b c d", ((2, 5),))),
        ("[ENT]b[ENT], d", ["[ENT]"], ("b, d", ((0, 1),))),
        ("x <e2>y</e2> <e1>z</e1>", ["[HD]", "[TL]"], ("x y z", ((4, 5), (2, 3)))),
        ("a [ENT] b", ["[ENT]"], ("a b", ())),
        ("plain", ["[HD]", "[TL]"], ("plain", ())),
    ],
)
def test_marks_in_a_text(text, marks, expected):
    assert split_marks(text, marks) == expected
    plain, spans = expected
    if spans:  # and back
        assert split_marks(MarkedExample("", plain, spans).marked(marks)[0], marks) == expected


def test_entities_move_with_the_marks():
    linked = ((4, 9, 1), (0, 9, 2), (17, 22, 3))
    example = MarkedExample("", "old bread of the river", ((4, 9), (17, 22)), entities=linked)
    text, entities = example.marked(["[HD]", "[TL]"])
    assert text == "old [HD] bread [HD] of the [TL] river [TL]"
    assert [text[start:end] for start, end, _ in entities] == ["bread", "old [HD] bread", "river"]


def test_encoding(tiny_tokenizer):
    plain = Tokenizer.load(tiny_tokenizer)
    tokenizer = with_mention_marks(plain, RELATION.marks)
    assert tokenizer.vocab_size == plain.vocab_size + 2 and with_mention_marks(tokenizer, RELATION.marks) is tokenizer
    example = MarkedExample(
        "", "the river and the garden of bread", ((4, 9), (18, 24)), "Other", entities=((4, 9, 7), (28, 33, 5))
    )
    encoded = RELATION.encode([example], tokenizer, 32)
    tokens = [tokenizer.token(number) for number in encoded.ids[0].tolist()]
    expected = ["[CLS]", "the", "[HD]", "river", "[HD]", "and", "the", "[TL]", "garden", "[TL]", "of", "bread", "[SEP]"]
    assert tokens == expected and encoded.labels.tolist() == [1]
    positions, numbers = encoded.entities[0]
    assert [(tokens[p], n) for p, n in zip(positions, numbers, strict=True)] == [("river", 7), ("bread", 5)]
    assert encoded.packed([0]).entities.indices_E.tolist() == positions.tolist()
    assert RELATION.encode([MarkedExample("", "a", ((0, 1),))], tokenizer, 32).entities is None


def test_a_long_text_keeps_its_mention(tiny_tokenizer):
    tokenizer = with_mention_marks(Tokenizer.load(tiny_tokenizer), TYPING.marks)
    text = "the " * 50 + "river" + " bread" * 50
    example = MarkedExample("", text, ((200, 205),), entities=((0, 3, 1), (200, 205, 2), (206, 211, 3)))
    encoded = TYPING.encode([example], tokenizer, 12)
    tokens = [tokenizer.token(number) for number in encoded.ids[0].tolist()]
    assert encoded.num_truncated == 1 and len(tokens) == 12
    assert tokens[4:9] == ["the", "[ENT]", "river", "[ENT]", "bread"]
    positions, numbers = encoded.entities[0]
    assert [(tokens[p], n) for p, n in zip(positions, numbers, strict=True)] == [("river", 2), ("bread", 3)]


def test_loose_scores_by_hand():
    """Ling & Weld 2012: the third mention is missed, the fourth is right."""
    gold = [{"person", "artist"}, {"place", "city", "town"}, {"time"}, {"person"}]
    predicted = [{"person", "group"}, {"place", "city"}, set(), {"person"}]
    found = measured.loose_scores(measured.loose_counts(gold, predicted))
    micro_precision, micro_recall = 4 / 5, 4 / 7
    macro_precision, macro_recall = (1 / 2 + 1 + 0 + 1) / 4, (1 / 2 + 2 / 3 + 0 + 1) / 4
    f1 = [2 * p * r / (p + r) for p, r in ((micro_precision, micro_recall), (macro_precision, macro_recall))]
    assert found == pytest.approx({"loose_micro_f1": f1[0], "loose_macro_f1": f1[1], "exact_match": 1 / 4})
    nothing = measured.loose_scores(measured.loose_counts(gold, [set()] * 4))
    assert nothing == {"loose_micro_f1": 0, "loose_macro_f1": 0, "exact_match": 0}


def test_a_mention_always_has_a_type():
    found = TYPING.decode([np.array([-1.0, -2.0]), np.array([3.0, 2.0])], None, [])
    assert [each.label for each in found] == [("person",), ("person", "place")]
    many = EntityTyping(
        HeadConfig("sequence", 50, tuple(map(str, range(50))), "multi_label_classification"),
        EntityTyping.default_metrics,
    )
    (likely,) = many.decode([np.arange(50) / 10], None, [])
    shown = many.describe(MarkedExample("0", "a", ((0, 1),)), likely)["probabilities"]
    assert list(shown) == [str(number) for number in range(49, 29, -1)] and len(likely.probabilities) == 50
    examples = [MarkedExample("0", "a", ((0, 1),), ("place",)), MarkedExample("1", "a", ((0, 1),), ("person", "place"))]
    score = TYPING.scorer(examples, found)
    assert score()["exact_match"] == 0.5 and score(np.array([1, 1]))["loose_micro_f1"] == 1


def test_the_score_of_semeval_by_hand():
    """A wrong direction is an error for its relation, and Other has no score of its own."""
    gold = ["A(e1,e2)", "A(e1,e2)", "A(e2,e1)", "B(e1,e2)", "Other", "Other"]
    predicted = ["A(e1,e2)", "A(e2,e1)", "Other", "B(e1,e2)", "B(e1,e2)", "Other"]
    a_precision, a_recall = 1 / 2, 1 / 3
    b_precision, b_recall = 1 / 2, 1
    f1 = [2 * p * r / (p + r) for p, r in ((a_precision, a_recall), (b_precision, b_recall))]
    examples = [MarkedExample("", "a", (), label) for label in gold]
    score = RELATION.scorer(examples, [ClassPrediction(label, {}) for label in predicted])
    assert score() == pytest.approx({"macro_f1": sum(f1) / 2, "accuracy": 3 / 6})
    assert score(np.array([0, 3, 5])) == {"macro_f1": 1.0, "accuracy": 1.0}


def test_inputs_to_predict():
    (found,) = as_examples("The [ENT] bridge [ENT] fell.", "entity-typing")
    assert found.mentions == ("bridge",) and not found.reason_unusable
    (found,) = as_examples({"text": "The bridge fell.", "start": 4, "end": 10}, "entity-typing")
    assert found.mentions == ("bridge",)
    assert as_examples("no mark", "relation")[0].reason_unusable
    with pytest.raises(ValueError, match="this model takes a text with"):
        as_examples([("a", "b")], "relation")
