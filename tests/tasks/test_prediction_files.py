import csv
import json

import pytest

from hornbook.tasks.prediction_files import readable, write_rows

CLASSES = [
    {"text": 'a "fine"\nday', "label": "yes", "probability": 0.75, "probabilities": {"no": 0.25, "yes": 0.75}},
    {"text": "x" * 100, "pair": "b", "label": "no", "probability": 0.5, "probabilities": {"no": 0.5, "yes": 0.5}},
]
TAGS = [{"words": ["Ada", "ran"], "tags": ["B-PER", "O"], "entities": [{"text": "Ada"}], "probabilities": [0.5, 1.0]}]


def test_json_lines_read_back(tmp_path):
    write_rows(tmp_path / "a.jsonl", CLASSES + TAGS)
    assert [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()] == CLASSES + TAGS
    write_rows(tmp_path / "a.json", CLASSES)
    assert json.loads((tmp_path / "a.json").read_text()) == CLASSES


def test_csv_has_a_column_for_each_probability(tmp_path):
    write_rows(tmp_path / "a.csv", CLASSES)
    with open(tmp_path / "a.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0] == {
        "text": 'a "fine"\nday',
        "label": "yes",
        "probability": "0.75",
        "p_no": "0.25",
        "p_yes": "0.75",
        "pair": "",
    }
    assert rows[1]["pair"] == "b" and len(rows) == 2
    write_rows(tmp_path / "b.tsv", [*TAGS, {"labels": ["a", "b"]}, {"choice": 1, "probabilities": [0.1, 0.9]}])
    with open(tmp_path / "b.tsv", newline="") as file:
        tags, several, choice = csv.DictReader(file, delimiter="\t")
    assert (tags["words"], tags["tags"], tags["probabilities"]) == ("Ada ran", "B-PER O", "0.5 1.0")
    assert json.loads(tags["entities"]) == [{"text": "Ada"}]
    assert several["labels"] == "a|b" and choice["p_1"] == "0.9"


def test_a_table_for_a_person_is_short():
    headings, rows = readable(CLASSES)
    assert headings == ("text", "label", "probability", "pair")
    assert rows[0] == ('a "fine" day', "yes", "0.750", "")
    assert len(rows[1][0]) == 60 and rows[1][0].endswith("…")
    assert readable(TAGS) == (("tagged",), [("Ada/B-PER ran",)])


def test_an_unknown_ending_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"\.jsonl, \.json, \.csv, \.tsv"):
        write_rows(tmp_path / "a.xlsx", CLASSES)
