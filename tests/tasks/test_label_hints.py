"""Notes where the labels of a file are probably not what the user means."""

import pytest

from hornbook.tasks.reading.read import read
from hornbook.tasks.summary import hints, summarize, summary_lines


def rows(num, label):
    return [{"text": f"some words {n}", "label": label(n)} for n in range(num)]


def found(data, task="classification", **columns):
    return " ".join(hints(read(task, data, **columns)))


def notes(data, task="classification"):
    return " ".join(line for line in summary_lines(summarize(read(task, data))) if line.startswith("note"))


@pytest.mark.parametrize(
    "label",
    [
        lambda n: f"{n % 57 - 20}.50",
        lambda n: f"{n % 57},5",
        lambda n: 18 + n % 60,  # an age
        lambda n: n % 57 / 4,
    ],
)
def test_many_numbers_as_classes_suggest_regression(label):
    data = rows(400, label)
    assert "'label' has" in found(data) and "different numbers: use task='regression'" in found(data)


@pytest.mark.parametrize(
    "label",
    [
        lambda n: n % 77,  # ids of classes
        lambda n: 1 + n % 30,
        lambda n: n % 5 / 2,
        lambda n: f"{n % 40} days",
    ],
)
def test_ids_of_classes_and_few_numbers_are_classes(label):
    assert found(rows(400, label)) == ""


def test_names_with_separators_suggest_several_labels():
    for separator in (", ", "|", ";"):
        data = rows(60, lambda n, mark=separator: ("action", "comedy", f"action{mark}comedy")[n % 3])
        assert f"'action{separator}comedy' looks like several labels: use task='multi-label'" in found(data)
    assert "'a|c' looks like several labels" in found(rows(60, lambda n: ("a", "b", "a|c")[n % 3]))
    assert found(rows(60, lambda n: ("good", "good, mostly")[n % 2])) == ""
    assert found(rows(60, lambda n: ("Nice, France", "Paris, France", "Oslo")[n % 3])) == ""
    assert found(rows(60, lambda n: ("3", "3,5", "5")[n % 3])) == ""  # decimal commas


@pytest.mark.parametrize("name", ["n/a", "N/A", "NULL", "none", "-", "?"])
@pytest.mark.parametrize("task", ["classification", "multi-label"])
def test_names_of_missing_values_are_noted_as_classes(name, task):
    data = rows(60, lambda n: ("good", "bad", name)[n % 3])
    assert f"'{name}' (20 rows) may stand for a missing label, but is learned as a class" in found(data, task)
    assert len(read(task, data).labels) == 3


def test_a_missing_row_of_column_names_is_noted(tmp_path):
    lines = "".join(f"some words, number {n}\t{'good' if n % 2 else 'bad'}\n" for n in range(60))
    (tmp_path / "none.tsv").write_text("the first, text\tgood\n" + lines)
    data = read("classification", tmp_path / "none.tsv")
    assert "note: the label column is named 'good', like a label: if the first row is data" in " ".join(hints(data))
    assert summarize(data)["columns"] == {"the first, text": "text", "good": "label"}
    assert found(rows(60, lambda n: ("good", "bad")[n % 2])) == ""


def test_a_class_that_most_examples_have_is_noted():
    data = rows(100, lambda n: "rare" if n % 20 == 0 else "usual")
    assert "95% of the training examples have the label 'usual', so accuracy says little" in notes(data)
    assert "majority" not in notes(rows(100, lambda n: "rare" if n % 5 == 0 else "usual"))
    assert "majority" not in notes(rows(100, lambda n: "usual"))


def test_few_dev_examples_are_noted():
    assert "note: dev has only 3 examples, so scores on it mean little" in notes(rows(30, lambda n: "ab"[n % 2]))
    assert "only" not in notes(rows(300, lambda n: "ab"[n % 2]))


def test_labels_that_differ_only_in_capitals_are_noted():
    data = rows(40, lambda n: ("good", "bad", "Good", "bad")[n % 4])
    assert "'Good' (10 rows) and 'good' (10 rows) differ only in capitals, but are learned as different" in found(data)
    assert "capitals" in found(rows(40, lambda n: ("good;bad", "Good")[n % 2]), "multi-label")
    assert found(rows(40, lambda n: "GB"[n % 2])) == ""


def test_equal_texts_with_different_labels_are_noted():
    data = rows(40, lambda n: ("good", "bad")[n % 2])
    assert found([*data, data[0]]) == ""
    again = {"text": data[0]["text"], "label": "bad"}
    assert "1 text occurs with different labels, such as 'some words 0' (bad, good): correct" in found([*data, again])
    again = [{"text": row["text"], "label": "bad"} for row in data]
    assert "20 texts occur with different labels" in found([*data, *again])


def test_multi_label_data_in_which_no_example_has_several_labels_suggests_classification():
    data = rows(40, lambda n: ("good", "bad", "", "good")[n % 4])
    assert "no example has several labels, and 10 have none: use task='classification'" in found(data, "multi-label")
    assert "several labels" not in found(rows(40, lambda n: ("good", "bad;good")[n % 2]), "multi-label")
    marked = [{"text": f"[ENT] River {n} [ENT] is here.", "labels": ["place"]} for n in range(40)]
    assert "several labels" not in found(marked, "entity-typing")


def test_many_classes_of_one_example_suggest_another_column():
    dates = rows(60, lambda n: f"{1 + n % 28}/{1 + n % 9}/2024")
    assert "classes have a single example" not in found(rows(60, lambda n: f"class {n % 30}"), label="label")
    assert "60 of 60 classes have a single example" in found(dates, label="label")
