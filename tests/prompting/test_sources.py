"""Examples of tasks as text out of every layout."""

import json

import pytest
from small_prompting import QUESTION, WRITING, write_colours, write_rows, write_task

from hornbook.tasks.text.definition import read_task
from hornbook.tasks.text.prompts import drawable, question
from hornbook.tasks.text.sources import detokenized, read_items

TURNS = ["Who?", "Where?", "When?"]
COQA = {
    "data": [
        {
            "id": "s1",
            "story": "Ann ran home.",
            "questions": [{"turn_id": i, "input_text": text} for i, text in enumerate(TURNS, 1)],
            "answers": [
                {"turn_id": i, "input_text": text, "span_start": 0, "span_end": 3, "span_text": "Ann"}
                for i, text in enumerate(["Ann", "home", "unknown"], 1)
            ],
            "additional_answers": {
                "0": [
                    {"turn_id": i, "input_text": text, "span_start": 0, "span_end": 3, "span_text": "Ann"}
                    for i, text in enumerate(["it was Ann", "her home", "unknown"], 1)
                ]
            },
        }
    ]
}


def quiet(words: str) -> None:
    pass


def test_columns_with_words_for_labels(tmp_path):
    task = read_task(write_task(tmp_path / "colour.toml", QUESTION))
    splits = read_items(task, write_colours(tmp_path / "data"), quiet)
    assert [len(splits.train), len(splits.test)] == [12, 9]
    assert splits.test[1].answers == ("dark green",) and splits.test[1].choices == ("red", "dark green")
    assert splits.train[0].fields == {"text": "train 0", "label": "r"}


def test_columns_of_any_name_and_any_delimiter(tmp_path):
    text = QUESTION.replace("{text}", "{Ticket text} ({№ of-the ticket.})").replace(
        'gold = "label"', 'gold = "The team"'
    )
    for split, first in (("train", 0), ("test", 8)):
        rows = "".join(f"{n};broken, {split} {n};{'rg'[n % 2]}\n" for n in range(first, first + 4))
        (tmp_path / f"{split}.csv").write_text("№ of-the ticket.;Ticket text;The team\n" + rows, encoding="utf-16")
    task = read_task(write_task(tmp_path / "team.toml", text))
    splits = read_items(task, tmp_path, quiet)
    assert question(task, splits.test[1], task.example) == "broken, test 9 (9) is"
    assert len(drawable(task, splits.train, splits.test)) == 4
    wrong = read_task(write_task(tmp_path / "wrong.toml", text.replace("Ticket text", "ticket text")))
    with pytest.raises(
        ValueError, match=r"names the field \{ticket text\}, and the data has № of-the ticket., Ticket text"
    ):
        question(wrong, splits.test[0], wrong.example)


def test_a_row_that_lacks_a_column_has_it_empty(tmp_path):
    task = read_task(write_task(tmp_path / "colour.toml", QUESTION.replace("{text}", "{text} {hint}")))
    file = write_rows(
        tmp_path / "a.jsonl", [{"text": "sky", "hint": "up", "label": "r"}, {"text": "sea", "label": "g"}]
    )
    assert [question(task, item, task.example) for item in read_items(task, file, quiet).test] == [
        "sky up is",
        "sea  is",
    ]


def test_a_single_file_is_the_test_split(tmp_path):
    task = read_task(write_task(tmp_path / "colour.toml", WRITING))
    file = write_rows(
        tmp_path / "things.jsonl", [{"text": "sky", "label": ["blue", "grey"]}, {"text": "x", "label": ""}]
    )
    said = []
    splits = read_items(task, file, said.append)
    assert not splits.train and [item.answers for item in splits.test] == [("blue", "grey")]
    assert any("label" in words for words in said)


def test_refusals_of_tables(tmp_path):
    data = write_colours(tmp_path / "data")
    with pytest.raises(ValueError, match=r"has the label 'g', and choices\.labels has r"):
        read_items(read_task(write_task(tmp_path / "a.toml", QUESTION.replace(', g = "dark green"', ""))), data, quiet)
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(ValueError, match=r"empty.csv is empty: check the file"):
        read_items(read_task(write_task(tmp_path / "c.toml", QUESTION)), tmp_path / "empty.csv", quiet)
    with pytest.raises(ValueError, match="no column 'colour'"):
        read_items(read_task(write_task(tmp_path / "b.toml", QUESTION.replace('"label"', '"colour"'))), data, quiet)
    with pytest.raises(ValueError, match="does not exist"):
        read_items(read_task("summary"), tmp_path / "nowhere", quiet)
    with pytest.raises(ValueError, match="contains none of the expected files"):
        read_items(read_task("translation-pairs"), data, quiet)


def test_known_data_sets(tmp_path):
    folder = tmp_path / "SST-2"
    folder.mkdir()
    for split in ("train", "dev"):
        (folder / f"{split}.tsv").write_text("sentence\tlabel\na good film \t1\na bad film\t0\n", encoding="utf-8")
    splits = read_items(read_task("sst-2-question"), folder, quiet)
    assert [item.answers for item in splits.test] == [("positive",), ("negative",)]
    assert "Review: a good film\n" in question(
        read_task("sst-2-question"), splits.test[0], read_task("sst-2-question").example
    )


def test_choices_of_the_example(tmp_path):
    choices = [{"label": letter, "text": text} for letter, text in zip("ABC", ["bank", "sea", "new york"], strict=True)]
    row = {"id": "q", "answerKey": "C", "question": {"stem": "Where?", "choices": choices}}
    for split in ("train", "dev"):
        write_rows(tmp_path / f"{split}_rand_split.jsonl", [row])
    (item,) = read_items(read_task("commonsenseqa"), tmp_path, quiet).test
    assert item.choices == ("bank", "sea", "new york") and item.answers == ("new york",)
    assert item.fields["context"] == "Where?"


def test_lambada_is_split_before_the_last_word(tmp_path):
    write_rows(tmp_path / "lambada_test.jsonl", [{"text": 'He said: "go'}, {"text": "alone"}, {"text": "a\n\nb c "}])
    said = []
    found = read_items(read_task("lambada-paper"), tmp_path, said.append).test
    assert [(item.fields["context"], item.answers) for item in found] == [("He said:", ('"go',)), ("a\n\nb", ("c",))]
    assert said  # of the text without a last word
    (tmp_path / "plain_test.txt").write_text("`` i ca n't , '' she said , `` go away\n", encoding="utf-8")
    (item,) = read_items(read_task("lambada-harness"), tmp_path / "plain_test.txt", quiet).test
    assert item.fields["context"] == '"i can\'t," she said, "go' and item.answers == ("away",)
    assert detokenized("so it 's done !") == "so it's done!"


def test_coqa_keeps_the_dialogue_order(tmp_path):
    (tmp_path / "coqa-dev-v1.0.json").write_text(json.dumps(COQA), encoding="utf-8")
    task = read_task("coqa")
    items = read_items(task, tmp_path, quiet).test
    assert [item.key for item in items] == ["s1-1", "s1-2", "s1-3"]
    assert question(task, items[1], task.example) == "Ann ran home.\n\nQ: Who?\nA: Ann\nQ: Where?\nA:"
    assert items[2].fields["history"] == "Q: Who?\nA: Ann\nQ: Where?\nA: home\n"
    assert items[1].answers == ("home", "her home")


def test_parallel_lines(tmp_path):
    for name, side, text in (
        ("newstest2013", "en", "a cat\n\na dog\n"),
        ("newstest2013", "fr", "un chat\n\nun chien\n"),
        ("newstest2014", "en", "a tree\n"),
        ("newstest2014", "fr", "un arbre\n"),
    ):
        (tmp_path / f"{name}.{side}").write_text(text, encoding="utf-8")
    task = read_task("translation-pairs")
    splits = read_items(task, tmp_path, quiet)
    assert [item.answers[0] for item in splits.train] == ["un chat", "un chien"]
    assert question(task, splits.test[0], task.example) == "a tree ="
    (tmp_path / "newstest2014.fr").write_text("un arbre\nde trop\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"has 1 lines and newstest2014\.fr 2"):
        read_items(task, tmp_path, quiet)
    (tmp_path / "newstest2014.fr").unlink()
    with pytest.raises(ValueError, match="with its translations in the same folder in newstest2014"):
        read_items(task, tmp_path, quiet)
