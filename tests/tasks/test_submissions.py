import json
import math
import zipfile
from dataclasses import replace

import pytest

from hornbook.metrics.tagging import scheme_of, to_bio
from hornbook.models.head_config import HeadConfig
from hornbook.tasks.datasets import find_task
from hornbook.tasks.kinds.classification import Classification, ClassPrediction
from hornbook.tasks.kinds.spans import Answer, SpanPrediction, Spans
from hornbook.tasks.kinds.tagging import Tagging, TagPrediction
from hornbook.tasks.prediction_files import missing_glue, write_submission
from hornbook.tasks.records import SpanExample, TaggedExample, TextExample
from hornbook.tasks.spec import TaskSpec

ALL_FILES = {
    *("CoLA.tsv", "SST-2.tsv", "MRPC.tsv", "STS-B.tsv", "QQP.tsv", "MNLI-m.tsv", "MNLI-mm.tsv", "QNLI.tsv", "RTE.tsv"),
    *("WNLI.tsv", "AX.tsv"),
}


def classified(*labels: str) -> list[ClassPrediction]:
    return [ClassPrediction(label, {label: 1.0}) for label in labels]


def submit(path, predictions: dict) -> list[str]:
    """Writes the test predictions of several GLUE tasks to one zip, task by task; gives the files still missing."""
    for name, found in predictions.items():
        splits = found if isinstance(found, dict) else {"test": found}
        examples = {split: [TextExample("0", "a")] * len(its) for split, its in splits.items()}
        write_submission(path, _classification(name), examples, splits)
    return missing_glue(path)


def read_zip(path) -> dict[str, list[list[str]]]:
    with zipfile.ZipFile(path) as opened:
        assert opened.testzip() is None
        return {
            name: [line.split("\t") for line in opened.read(name).decode().splitlines()] for name in opened.namelist()
        }


def test_a_glue_zip_has_every_task_in_the_words_of_its_grader(tmp_path):
    predictions = {
        "cola": classified("0", "1"),
        "rte": classified("not_entailment", "entailment"),
        "mnli": {"test": classified("neutral"), "test-mismatched": classified("contradiction", "neutral")},
        "sts-b": [-0.25, 2.34567, 5.9],
    }
    missing = submit(tmp_path / "glue.zip", predictions)
    found = read_zip(tmp_path / "glue.zip")
    assert found["CoLA.tsv"] == [["index", "prediction"], ["0", "0"], ["1", "1"]]
    assert found["RTE.tsv"][1:] == [["0", "not_entailment"], ["1", "entailment"]]
    assert found["MNLI-m.tsv"][1:] == [["0", "neutral"]]
    assert found["MNLI-mm.tsv"][1:] == [["0", "contradiction"], ["1", "neutral"]]
    assert found["STS-B.tsv"][1:] == [["0", "0.000"], ["1", "2.346"], ["2", "5.000"]]
    assert set(missing) == ALL_FILES - set(found) and len(found) == 5


def test_run_after_run_makes_the_zip_whole(tmp_path):
    path = tmp_path / "glue.zip"
    for name in ("cola", "sst-2", "mrpc", "qqp", "wnli"):
        missing = submit(path, {name: classified("1")})
    three = {"mnli": {"test": classified("neutral"), "test-mismatched": classified("neutral")}}
    missing = submit(path, {"sts-b": [1.0], **three, "diagnostic": classified("neutral")})
    assert missing == ["QNLI.tsv", "RTE.tsv"]
    submit(path, {"cola": classified("0"), "qnli": classified("entailment"), "rte": classified("entailment")})
    assert missing_glue(path) == []
    found = read_zip(path)
    assert set(found) == ALL_FILES
    assert found["CoLA.tsv"][1] == ["0", "0"] and found["SST-2.tsv"][1] == ["0", "1"]


def test_glue_refuses_what_its_grader_would(tmp_path):
    with pytest.raises(ValueError, match="accepts entailment, not_entailment, but the model predicts 'LABEL_0'"):
        submit(tmp_path / "glue.zip", {"rte": classified("LABEL_0")})
    spec = _classification("cola")
    with pytest.raises(ValueError, match="needs the split test, but the predictions are of dev"):
        write_submission(tmp_path, spec, {"dev": [TextExample("0", "a")]}, {"dev": classified("1")})
    with pytest.raises(ValueError, match="test has 2 examples but 1 predictions"):
        write_submission(tmp_path, spec, {"test": [TextExample("0", "a")] * 2}, {"test": classified("1")})
    with pytest.raises(ValueError, match="classification has no official submission format"):
        write_submission(
            tmp_path, _classification("classification"), {"test": [TextExample("0", "a")]}, {"test": classified("1")}
        )
    (tmp_path / "other.zip").write_text("not a zip")
    with pytest.raises(ValueError, match="is not a zip file"):
        submit(tmp_path / "other.zip", {"cola": classified("1")})


def test_the_submission_of_a_glue_run_goes_by_its_test_parts(tmp_path):
    examples = {split: [TextExample("7", "a", "b")] for split in ("dev", "test", "test-mismatched")}
    said = {split: classified("neutral") for split in examples}
    names = write_submission(tmp_path / "mine.zip", _classification("mnli"), examples, said)
    assert names == ["MNLI-m.tsv", "MNLI-mm.tsv"]
    assert read_zip(tmp_path / "mine.zip")["MNLI-m.tsv"] == [["index", "prediction"], ["0", "neutral"]]


def _classification(name: str) -> TaskSpec:
    labels = find_task(name).labels or ("0", "1")
    task = Classification(HeadConfig("sequence", len(labels), labels), find_task(name).metrics)
    return TaskSpec(name, task)


def answered(text: str, score: float) -> SpanPrediction:
    best = (Answer(text or "never mind", 0, 4, 1.0),)
    return SpanPrediction(text, 0, len(text), score, best)


def test_squad_answers_by_question(tmp_path):
    examples = [SpanExample(key, "Who?", "Ada wrote ☃.") for key in ("a1", "b2", "c3")]
    said = [answered("Ada", -3.0), answered("", 2.5), answered("☃", 1.0)]
    spec = TaskSpec("squad2", Spans(HeadConfig("spans", 2), allows_no_answer=True, threshold=1.5))
    names = write_submission(tmp_path, spec, {"dev": examples}, {"dev": said})
    assert sorted(names) == ["na_prob.json", "predictions.json"]
    assert json.loads((tmp_path / "predictions.json").read_text()) == {"a1": "Ada", "b2": "", "c3": "☃"}
    chances = json.loads((tmp_path / "na_prob.json").read_text())
    assert chances["a1"] == pytest.approx(1 / (1 + math.exp(4.5)))
    assert [chances[key] > 0.5 for key in ("a1", "b2", "c3")] == [False, True, False]
    one = replace(spec, name="squad", task=Spans(HeadConfig("spans", 2)))
    splits = {"dev": examples, "test": examples[:1]}
    names = write_submission(tmp_path / "1", one, splits, {"dev": said, "test": said[:1]})
    assert names == ["predictions-dev.json", "predictions-test.json"]


def test_coqa_answers_by_turn(tmp_path):
    examples = [SpanExample(f"3-ab-{turn}", "Who?", "Ada.") for turn in (1, 2)]
    spec = TaskSpec("coqa", Spans(HeadConfig("spans", 2), allows_no_answer=True, rules="coqa"))
    write_submission(tmp_path / "coqa.zip", spec, {"dev": examples}, {"dev": [answered("Ada", -1), answered("", 5)]})
    with zipfile.ZipFile(tmp_path / "coqa.zip") as opened:
        assert json.loads(opened.read("predictions.json")) == [
            {"id": "3-ab", "turn_id": 1, "answer": "Ada"},
            {"id": "3-ab", "turn_id": 2, "answer": "unknown"},
        ]


@pytest.mark.parametrize(
    ("scheme", "predicted"),
    [
        ("IOB1", ["I-LOC", "B-LOC", "O", "I-PER", "I-PER"]),
        ("BIOES", ["S-LOC", "S-LOC", "O", "B-PER", "E-PER"]),
        ("BIO", ["B-LOC", "B-LOC", "O", "B-PER", "I-PER"]),
    ],
)
def test_tags_go_back_into_their_columns(tmp_path, scheme, predicted):
    labels = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    spec = TaskSpec("conll2003", Tagging(HeadConfig("tokens", 5, labels), ("entity_f1",)), scheme)
    bio = ("B-LOC", "B-LOC", "O", "B-PER", "I-PER")
    words = ("Rome", "Paris", "and", "Ada", "King")
    examples = [TaggedExample("0", words, ("O", "O", "O", "B-PER", "I-PER")), TaggedExample("1", words[:1])]
    said = [TagPrediction(bio, (1.0,) * 5), TagPrediction(("O",), (1.0,))]
    write_submission(tmp_path, spec, {"test": examples}, {"test": said})
    first, second = (tmp_path / "predictions.txt").read_text().rstrip("\n").split("\n\n")
    rows = [line.split(" ") for line in first.split("\n")]
    assert [row[0] for row in rows] == list(words)
    assert [row[2] for row in rows] == predicted
    assert to_bio([row[1] for row in rows], scheme) == list(examples[0].tags)
    assert scheme == "BIO" or scheme_of([predicted]) == scheme
    assert second == "Rome O"
