"""`hornbook predict --file` on tables that are not as they should be."""

import csv
import json
import sys

import pytest
from finetuned import encoder, finetuned, labelled_texts

from hornbook import cli


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_tokenizer):
    folder = tmp_path_factory.mktemp("predicted")
    return finetuned(folder / "run", encoder(folder / "encoder", tiny_tokenizer), "classification", labelled_texts())


@pytest.fixture
def predict(run, monkeypatch, capsys):
    def predicted(*words) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hornbook", "predict", str(run), *map(str, words)])
        try:
            cli.main()
            status = 0
        except SystemExit as ended:
            status = ended.code or 0
        written = capsys.readouterr()
        return status, written.out, written.err

    return predicted


def test_an_input_without_a_text_has_no_prediction_but_a_problem(predict, tmp_path):
    (tmp_path / "a.csv").write_text("id,text,label\n1,the river,dark\n2,\n3,a, b,light\n\n5,the lantern,\n")
    status, _, _ = predict("--file", tmp_path / "a.csv", "--out", tmp_path / "out.csv")
    assert status == 0
    with open(tmp_path / "out.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["problem"] for row in rows] == [
        "",
        "2 fields, expected 3; the text is empty",
        "4 fields, expected 3",
        "the line is blank",
        "",
    ]
    predicted = next(name for name in ("predicted_label", "label") if name in rows[0])
    assert [bool(row[predicted]) for row in rows] == [True, False, True, False, True]
    assert [bool(row["probability"]) for row in rows] == [True, False, True, False, True]
    status, out, _ = predict("--json", "the river", "  ")
    first, second = json.loads(out.splitlines()[-1])["predictions"]
    assert "label" in first and "problem" not in first
    assert "label" not in second and second["problem"] == "the text is empty"


def test_another_delimiter_than_in_training_is_detected(predict, tmp_path):
    (tmp_path / "semi.csv").write_text("id;text;label\n1;the river, at last;dark\n2;a lantern;light\n")
    status, out, _ = predict("--file", tmp_path / "semi.csv", "--json")
    rows = json.loads(out.splitlines()[-1])["predictions"]
    assert status == 0 and [row["text"] for row in rows] == ["the river, at last", "a lantern"]


def test_a_file_without_the_column_of_the_text_is_refused(predict, tmp_path):
    (tmp_path / "other.csv").write_text("id;review\n1;the river\n")
    status, _, error = predict("--file", tmp_path / "other.csv")
    assert status == 2 and "has no column 'text', which the run was trained on" in error
    assert predict("--file", tmp_path / "other.csv", "--text", "review")[0] == 0


def test_reading_options_are_used_or_refused(predict, tmp_path):
    (tmp_path / "a.csv").write_text("text,label\nthe river,dark\n")
    to = ("--submission", tmp_path / "to", "--data", tmp_path / "a.csv")
    assert "has no column 'review'" in predict(*to, "--text", "review")[2]
    assert "has no delimiter semicolon" in predict(*to, "--delimiter", ";")[2]
    assert "--text has no effect without --file: leave it out" in predict("the river", "--text", "review")[2]
