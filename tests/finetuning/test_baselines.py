"""Baselines: counting words learns what words decide and no more, and every kind of task has one."""

import json

import numpy as np
import pytest
import word_rules
from word_rules import FAST, KEYWORD, tiny_encoder

from hornbook.evaluation.baselines.baseline import baseline
from hornbook.evaluation.baselines.tfidf import window_answers
from hornbook.report.info import describe
from hornbook.tasks.records import SpanExample
from hornbook.text.word_vectors import read_vectors

PASSAGE = (
    "The garden was silver in the morning. The old teacher went to Bristol with letters. "
    "Nobody saw the bridge. The children ate bread near the river in summer."
)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory, tiny_tokenizer):
    return str(tiny_encoder(tmp_path_factory.mktemp("baselines") / "model", tiny_tokenizer))


def run_of(folder) -> dict:
    return json.loads((folder / "run.json").read_text())


def test_counted_words_learn_a_keyword(tmp_path):
    found = baseline("tfidf", word_rules.keyword_rule(), "classification", tmp_path)
    assert found.score == 1.0
    run, scores = run_of(tmp_path), json.loads((tmp_path / "scores.json").read_text())
    assert (run["command"], run["request"]["baseline"], run["model"]) == ("baseline", "tfidf", None)
    assert scores.keys() == {"metric_for_best", "degenerate", "splits"}
    assert scores["splits"]["dev"]["accuracy"]["high"] == 1.0


def test_neighbours_are_counted_and_no_order_beyond(tmp_path):
    def rows(between: str) -> dict[str, list[dict]]:
        texts = [(f"a {between * i}b" if i % 2 else f"b {between * i}a", i % 2) for i in range(1, 61)]
        labelled = [{"text": text, "label": label} for text, label in texts]
        return {"train": labelled[:40], "dev": labelled[40:]}

    assert baseline("tfidf", rows(""), "classification", tmp_path / "beside").score == 1.0
    apart = {
        split: [
            {**row, "text": " ".join((row["text"][0], f"word{number}{split}", row["text"][-1]))} for number, row in each
        ]
        for split, each in ((split, list(enumerate(each))) for split, each in rows("").items())
    }
    assert baseline("tfidf", apart, "classification", tmp_path / "apart").score == 0.5


def test_the_majority(tmp_path):
    found = baseline("majority", word_rules.keyword_rule(80, 40), "classification", tmp_path)
    assert found.score == 25 / 40
    assert found.degenerate == "the model predicts 'no' for every input"


def test_pairs(tmp_path, encoder):
    rows = word_rules.same_words(150)
    assert baseline("tfidf", rows, "classification", tmp_path / "tfidf").score >= 0.95
    assert baseline("vectors", rows, "classification", tmp_path / "vectors", model=encoder).score >= 0.75


def test_numbers(tmp_path, encoder):
    rows = word_rules.how_many()
    assert baseline("tfidf", rows, "regression", tmp_path / "tfidf").score >= 0.8
    assert baseline("vectors", rows, "regression", tmp_path / "vectors", model=encoder).score >= 0.7
    assert baseline("majority", rows, "regression", tmp_path / "majority").score == 0.0


def test_several_classes(tmp_path):
    rows = word_rules.several_words()
    assert baseline("tfidf", rows, "multi-label", tmp_path / "tfidf", label="labels").score >= 0.9
    assert baseline("majority", rows, "multi-label", tmp_path / "majority", label="labels").score < 0.7


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_class_without_an_example_is_never_predicted(tmp_path):
    rows = word_rules.several_words()
    rows["train"].insert(1, {"text": "rare", "labels": "rare"})  # which is not among the 20 examples
    baseline("tfidf", rows, "multi-label", tmp_path, label="labels", overrides={"examples": 20})
    predictions = (tmp_path / "predictions-dev.jsonl").read_text().splitlines()
    assert {json.loads(line)["probabilities"]["rare"] for line in predictions} == {0.0}


def test_tags(tmp_path, encoder):
    folder = str(word_rules.write_tags(tmp_path / "tags"))
    assert baseline("tfidf", folder, "tagging", tmp_path / "tfidf").score == 1.0
    assert baseline("majority", folder, "tagging", tmp_path / "majority").score == 0.0
    assert baseline("vectors", folder, "tagging", tmp_path / "vectors", model=encoder, overrides=FAST).score >= 0.95


def test_of_many_words_only_the_chosen_have_features(tmp_path, monkeypatch):
    """Those of the 1.2 million words of OntoNotes, with their neighbours, would take 4 GB for vectors of 300."""
    seen = []
    vectors = {"river": [1.0, 0.0], "bread": [0.0, 1.0]}

    def average(words):
        seen.append(len(words))
        return np.array([vectors[word] for word in words])

    monkeypatch.setattr("hornbook.evaluation.baselines.linear.MAX_WORDS", 20)
    monkeypatch.setattr("hornbook.evaluation.baselines.tfidf.averages", lambda *_: average)
    rows = [{"words": ["river", "bread"], "tags": ["A", "B"]}] * 300
    data, options = {"train": rows, "dev": rows[:2]}, {"word_vectors": tmp_path / "vectors.txt"}
    assert baseline("vectors", data, "tagging", tmp_path / "out", **options).score == 1.0
    assert len(seen) <= 20 + 2


def test_choices(tmp_path, encoder):
    rows = word_rules.choices()
    assert baseline("tfidf", rows, "choice", tmp_path / "tfidf").score >= 0.7
    assert baseline("vectors", rows, "choice", tmp_path / "vectors", model=encoder).score >= 0.5
    assert baseline("majority", rows, "choice", tmp_path / "majority").score == pytest.approx(1 / 3, abs=0.05)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Where did the old teacher go with letters?", "Bristol"),
        ("When did the children eat near the river?", "summer"),
    ],
)
def test_the_window_with_the_words_of_the_question(question, answer):
    others = [f"The {word} was in the house." for word in ["moon", "sun", "star", "wind", "rain", "snow"]]
    train = [SpanExample("1", "who", passage, ("teacher",), (0,)) for passage in (PASSAGE, *others)]
    (found,) = window_answers(train)([SpanExample("2", question, PASSAGE)])
    start = PASSAGE.index(answer)
    assert abs(found.start - start) < 30
    assert PASSAGE[found.start : found.end] == found.answer == found.n_best[0].text
    assert not {found.answer.lower()} & set(question.lower().split())


def test_spans(tmp_path):
    def row(question: str, answer: str) -> dict:
        return {"question": question, "context": PASSAGE, "answers": [answer] if answer else []}

    asked = [row("Who went to Bristol with letters?", "teacher"), row("Which planet is large?", "")]
    rows = {"train": asked * 15, "dev": asked}
    found = baseline("tfidf", rows, "spans-or-none", tmp_path / "tfidf")
    assert found.scores["dev"]["NoAns_exact"]["value"] == 1.0  # no word of the question is in the passage
    assert "dev, threshold chosen on a split of train" in found.scores
    none = baseline("majority", rows, "spans-or-none", tmp_path / "majority")
    assert none.scores["dev"]["exact"]["value"] == 0.5
    with pytest.raises(ValueError, match="tfidf"):
        baseline("majority", {"train": asked[:1] * 9, "dev": asked[:1]}, "spans", tmp_path / "no")
    with pytest.raises(ValueError, match="word_vectors=, or model="):
        baseline("vectors", {"train": asked[:1] * 9, "dev": asked[:1]}, "spans", tmp_path / "none")


def test_vectors_of_a_file(tmp_path, random):
    lines = ["4 6"]
    for word in (KEYWORD, "harbour", "river", "the"):
        lines.append(" ".join([word, *(f"{number:.3f}" for number in random.normal(size=6))]))
    file = tmp_path / "vectors.txt"
    file.write_text("\n".join(lines) + "\n")
    said = []
    found = baseline(
        "vectors", word_rules.keyword_rule(), "classification", tmp_path / "out", word_vectors=file, log=said.append
    )
    assert found.score >= 0.95
    assert any("for 4 of the words" in words for words in said)
    vectors, width = read_vectors(file, {"river"})
    assert (list(vectors), width) == (["river"], 6)


@pytest.mark.parametrize(
    ("text", "words"), [("", "empty"), ("a 1 2\nriver 1\n", "line 2"), ("a 1 2\nriver 1 x\n", "not all numbers")]
)
def test_vector_files_that_are_none(tmp_path, text, words):
    file = tmp_path / "vectors.txt"
    file.write_text(text)
    with pytest.raises(ValueError, match=words):
        read_vectors(file, {"river"})


def test_what_came_to_nothing_does_not_block_its_folder(tmp_path, encoder):
    rows, out = word_rules.keyword_rule(), tmp_path / "out"
    with pytest.raises(ValueError, match=r"none\.txt does not exist: give a file of word vectors"):
        baseline("vectors", rows, "classification", out, word_vectors=tmp_path / "none.txt")
    found = baseline("vectors", rows, "classification", out, model=encoder)
    assert run_of(out)["request"]["model"] == str(encoder)
    with pytest.raises(ValueError, match="was started with"):
        baseline("majority", rows, "classification", out)
    assert baseline("vectors", rows, "classification", out, model=encoder).score == found.score
    told = dict(describe(out)["lines"])
    assert describe(out)["title"] == f"classification: vectors baseline of {encoder}"
    assert told["method"] == "vectors" and told["state"] == "finished" and told["dev scores"].startswith("accuracy ")


def test_the_same_network_from_random_weights(tmp_path, encoder):
    overrides = FAST | {"epochs": 1}
    found = baseline(
        "from-scratch", word_rules.keyword_rule(), "classification", tmp_path, model=encoder, overrides=overrides
    )
    assert run_of(tmp_path)["request"]["from_scratch"]
    assert 0 <= found.score <= 1
    assert (tmp_path / "model.safetensors").exists()


def test_the_same_examples_as_fine_tuning(tmp_path, encoder):
    """Of the 80 examples, the 16 that fine-tuning takes: a rule that holds for these alone shows it."""
    from hornbook.runs.finetuning.inputs import open_inputs, open_labelled
    from hornbook.runs.finetuning.record import FinetuneRequest

    request = FinetuneRequest(encoder, "classification", None, seed=3, overrides={"examples": 16})
    rows = word_rules.keyword_rule()
    opened = open_inputs(request, rows, print)
    assert open_labelled(request, rows, print).train == opened.train
    assert len(opened.train) == 16


@pytest.mark.parametrize(
    ("name", "words"), [("guess", "majority, tfidf"), ("from-scratch", "give model="), ("vectors", "file")]
)
def test_bad_requests_say_what_to_do(tmp_path, name, words):
    with pytest.raises(ValueError, match=words):
        baseline(name, word_rules.keyword_rule(), "classification", tmp_path / "out")
    assert not (tmp_path / "out").exists()  # so that the right command may follow


def test_predictions_are_one_for_each_example(tmp_path):
    baseline("tfidf", word_rules.keyword_rule(80, 40), "classification", tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "predictions-dev.jsonl").read_text().splitlines()]
    assert [row["text"] for row in rows] == [row["text"] for row in word_rules.keyword_rule(80, 40)["dev"]]
    assert np.allclose([sum(row["probabilities"].values()) for row in rows], 1)


def test_what_has_no_right_answer_is_not_scored_but_counted(tmp_path):
    """In dev and beyond: a question without an answer where there must be one, and one whose answer is not known."""
    asked = {"question": "Who ate bread?", "context": PASSAGE}
    rows = [asked | {"answer": "children"} for _ in range(4)]
    data = {"train": rows, "dev": [*rows[:3], asked | {"answer": ""}], "test": [*rows[:2], asked | {"answer": ""}]}
    found = baseline("tfidf", data, "spans", tmp_path / "spans")
    assert found.scores.keys() == {"dev", "test"}
    assert run_of(tmp_path / "spans")["not_scored"] == {"dev": 1, "test": 1}
    texts = word_rules.keyword_rule(40, 20)
    texts["test"] = [*texts["dev"][:9], {"text": "the river", "label": ""}]
    found = baseline("tfidf", texts, "classification", tmp_path / "texts")
    assert found.scores["test"]["accuracy"]["value"] == 1.0
    assert run_of(tmp_path / "texts")["not_scored"] == {"test": 1}
