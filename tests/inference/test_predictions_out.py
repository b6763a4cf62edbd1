"""`predict --file`: every input column is returned next to the prediction, with ids and character offsets."""

import csv
import io
import json
import shutil
import sys

import pytest
from finetuned import asked_questions, completed, encoder, finetuned, labelled_texts, tagged_words

from hornbook.cli.options import split_model_and_texts
from hornbook.cli.showing import split_models
from hornbook.files import write_json

TEXTS = [row["text"] for row in labelled_texts(3)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def plain_encoder(folder, tiny_tokenizer):
    return encoder(folder / "encoder", tiny_tokenizer)


@pytest.fixture(scope="module")
def reviews(folder, plain_encoder):
    return finetuned(folder / "reviews", plain_encoder, "classification", labelled_texts())


@pytest.fixture(scope="module")
def tags(folder, plain_encoder):
    """A tagger that finds something in most sentences."""
    return finetuned(folder / "tags", plain_encoder, "tagging", tagged_words(200))


@pytest.fixture(scope="module")
def questions(folder, plain_encoder):
    return finetuned(
        folder / "questions", plain_encoder, "spans", [each for each in asked_questions() if each["answer"]]
    )


def rows_of(path) -> list[dict]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_csv(path, rows) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def test_a_csv_keeps_its_columns_and_order(hornbook, reviews, tmp_path):
    given = [{"ID": f"r{number}", "text": text, "label": "gold", "price": "1,50"} for number, text in enumerate(TEXTS)]
    write_csv(tmp_path / "in.csv", given)
    said = hornbook("predict", reviews, "--file", tmp_path / "in.csv", "--out", tmp_path / "out.csv", "--json")
    assert "predictions are in the columns predicted_label, as the input" in said.out + said.error
    found = rows_of(tmp_path / "out.csv")
    assert [{name: row[name] for name in given[0]} for row in found] == given
    names = ["ID", "text", "label", "price", "predicted_label", "probability", "p_dark", "p_light"]
    assert list(found[0]) == names
    assert [row["ID"] for row in said.answer["predictions"]] == ["r0", "r1", "r2"]
    assert [row["predicted_label"] for row in said.answer["predictions"]] == [row["predicted_label"] for row in found]


def test_json_lines_keep_nested_values_and_a_broken_row_its_place(hornbook, reviews, tmp_path):
    given = [{"text": TEXTS[0], "id": 7, "labels": ["a", "b"], "more": {"x": 1}}, {"text": TEXTS[1], "id": 8}]
    lines = [json.dumps(given[0]), "{broken", json.dumps(given[1])]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    for name in ("out.jsonl", "out.csv"):
        assert hornbook("predict", reviews, "--file", tmp_path / "in.jsonl", "--out", tmp_path / name).status == 0
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert found[0] == given[0] | {name: found[0][name] for name in ("label", "probability", "probabilities")}
    assert [row["id"] for row in found] == [7, None, 8]
    table = rows_of(tmp_path / "out.csv")
    assert (table[0]["labels"], table[0]["more"]) == ('["a", "b"]', '{"x": 1}')
    assert list(table[0])[:4] == ["text", "id", "labels", "more"] and table[2]["more"] == ""


def test_a_format_that_cannot_be_written_is_refused_before_predicting(hornbook, reviews, tmp_path, monkeypatch):
    monkeypatch.setattr("hornbook.inference.predictor.Predictor.predict", None)
    said = hornbook("predict", reviews, "a text", "--out", tmp_path / "out.xlsx")
    assert said.status == 2 and ".jsonl, .json, .csv, .tsv" in said.error


def test_ids_of_squad_are_kept(hornbook, questions, tmp_path):
    asked = [{"id": "5733be28", "question": "who", "answers": []}, {"id": "other", "question": "where", "answers": []}]
    passage = "  The river,\nthe bridge and the bread."
    article = {"title": "A river", "paragraphs": [{"context": passage, "qas": asked}]}
    (tmp_path / "dev.json").write_text(json.dumps({"data": [article]}))
    hornbook("predict", questions, "--file", tmp_path / "dev.json", "--out", tmp_path / "out.csv")
    found = rows_of(tmp_path / "out.csv")
    assert [row["id"] for row in found] == ["5733be28", "other"] and [row["question"] for row in found][1] == "where"
    for row in found:
        assert row["answer"] and passage[int(row["start"]) : int(row["end"])] == row["answer"]


def test_entities_have_offsets_in_the_original_text(hornbook, tags, tmp_path):
    text = "  the  (river), the silver\tbridge harbour; silver bridge!"
    write_csv(tmp_path / "in.csv", [{"id": "a", "text": text}, {"id": "b", "text": ""}])
    said = hornbook("predict", tags, "--file", tmp_path / "in.csv", "--out", tmp_path / "out.csv")
    assert said.status == 0, said
    found = rows_of(tmp_path / "out.csv")
    assert [(row["id"], row["text"]) for row in found] == [("a", text), ("b", "")]
    entities = json.loads(found[0]["entities"])
    assert len(entities) > 1
    assert found[1]["entities"] == "" and found[1]["problem"] == "there are no words"
    words = found[0]["words"].split()
    for each in entities:
        assert each["text"] == text[each["start"] : each["end"]]
        assert "".join(each["text"].split()) == "".join(words[each["first_word"] : each["last_word"] + 1])
    starts = [each["start"] for each in entities]
    assert starts == sorted(set(starts))


def test_entities_of_words_have_offsets_in_the_words_joined_by_spaces(tags):
    from hornbook.inference.predictor import load_predictor

    predictor = load_predictor(tags)
    words = ["the", "silver", "bridge", "and", "river"]
    (row,) = predictor.describe([words], predictor.predict([words]))
    for each in row["entities"]:
        assert " ".join(words)[each["start"] : each["end"]] == each["text"]
    assert row["entities"]


def test_a_choice_keeps_its_columns(hornbook, folder, plain_encoder, tmp_path):
    run = finetuned(folder / "choices", plain_encoder, "choice", completed())
    given = [{"qid": "x", "context": "the river", "ending0": "a", "ending1": "b", "note": "n"}]
    write_csv(tmp_path / "in.csv", given)
    hornbook("predict", run, "--file", tmp_path / "in.csv", "--out", tmp_path / "out.csv")
    (found,) = rows_of(tmp_path / "out.csv")
    assert {name: found[name] for name in given[0]} == given[0]
    assert found["choice_text"] in ("a", "b") and list(found)[-2:] == ["p_0", "p_1"]


# ---- standard input and output


@pytest.fixture
def piped(hornbook, monkeypatch):
    def run(text: str, *words):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8"))
        return hornbook("predict", *words)

    return run


def test_a_csv_from_standard_input_to_standard_output(piped, reviews):
    said = piped('id,text\n7,"the, river"\n8,a lantern\n', reviews, "--file", "-", "--out", "-")
    assert said.status == 0, said
    found = list(csv.DictReader(io.StringIO(said.stdout)))
    assert [(row["id"], row["text"]) for row in found] == [("7", "the, river"), ("8", "a lantern")]
    assert "standard input" in said.error and float(found[0]["p_dark"]) < 1


def test_lines_and_json_lines_from_standard_input(piped, reviews):
    said = piped("the river, and more\na lantern\n", reviews, "--file", "-", "--out", "-")
    assert [json.loads(line)["text"] for line in said.stdout.splitlines()] == ["the river, and more", "a lantern"]
    said = piped('{"id": 3, "text": "the river"}\n', reviews, "--file", "-", "--out", "-")
    (row,) = map(json.loads, said.stdout.splitlines())
    assert row["id"] == 3 and set(row["probabilities"]) == {"dark", "light"}
    said = piped("body\tkey\nthe river\tk\n", reviews, "--file", "-", "--out", "-", "--text", "body")
    assert said.stdout.splitlines()[0].split("\t")[:3] == ["body", "key", "label"]


def test_a_table_from_standard_input_is_known_by_the_column_that_the_run_was_trained_on(piped, reviews, tmp_path):
    run = shutil.copytree(reviews, tmp_path / "run")
    task = json.loads((run / "task.json").read_text())
    write_json(run / "task.json", task | {"roles": {"text": "inquiry", "label": "label"}})
    said = piped("key,inquiry\nk,the river\n", run, "--file", "-", "--out", "-")
    assert said.stdout.splitlines()[0].split(",")[:3] == ["key", "inquiry", "label"]


def test_nothing_on_standard_input_is_refused(piped, reviews):
    said = piped("", reviews, "--file", "-")
    assert said.status == 2 and "no inputs" in said.error


# ---- evaluate


def test_evaluate_prints_each_class_and_the_confusion_matrix(hornbook, reviews, tmp_path):
    rows = [*labelled_texts(20), {"text": "bread", "label": "unheard"}]
    write_csv(tmp_path / "dev.csv", rows)
    said = hornbook("evaluate", reviews, "--data", tmp_path / "dev.csv", "--json")
    tables = said.answer["tables"]["dev"]
    gold = [row["label"] for row in rows]
    assert tables["confusion"]["labels"] == ["dark", "light", "unheard"]
    assert [sum(row) for row in tables["confusion"]["counts"]] == [
        gold.count(name) for name in ("dark", "light", "unheard")
    ]
    right = sum(tables["confusion"]["counts"][place][place] for place in range(3))
    assert said.answer["splits"]["dev"]["accuracy"]["value"] == pytest.approx(right / len(rows))
    assert tables["classes"]["unheard"] == {"precision": 0, "recall": 0, "f1": 0, "gold": 1, "predicted": 0}
    said = hornbook("evaluate", reviews, "--data", (tmp_path / "dev.csv").rename(tmp_path / "more.csv"))
    assert "intervals over the examples: of accuracy by Wilson's formula, of other scores by bootstrap" in said.error
    lines = [line.split() for line in said.out.splitlines()]
    assert ["confusion", "matrix", "of", "more.csv,", "in", "examples"] in lines
    assert ["more.csv", "precision", "recall", "f1", "gold", "predicted"] in lines
    assert ["unheard", "0.000", "0.000", "0.000", "1", "0"] in lines
    assert ["unheard", *map(str, tables["confusion"]["counts"][2])] in lines


def test_evaluate_counts_entities_by_type(hornbook, tags, tmp_path):
    (tmp_path / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in tagged_words(10)))
    found = hornbook("evaluate", tags, "--data", tmp_path / "dev.jsonl", "--json").answer
    assert list(found["tables"]["dev"]["classes"]) == ["PLACE"]
    assert found["tables"]["dev"]["classes"]["PLACE"]["f1"] == pytest.approx(
        found["splits"]["dev"]["entity_f1"]["value"]
    )
    assert found["tables"]["dev"]["confusion"]["of"] == "words"


def test_a_text_may_be_longer_than_the_name_of_a_file(hornbook, reviews):
    text = "the river and the garden " * 20
    assert hornbook("predict", reviews, text, "--json").answer["predictions"][0]["text"] == text
    assert "could be downloaded" in hornbook("predict", text, "a text").error
    assert split_model_and_texts([text]) == (None, [text])
    assert split_models([text]) == ([], text, None) and split_models([text, text]) == ([], text, text)
