"""Tables in the layouts in which they were published."""

import json

import pytest
from task_files import counts, first, lines, write

from hornbook.tasks.reading.read import read


def shown(examples):
    return [(each.key, each.text, each.pair, each.label) for each in examples]


def test_cola_has_names_in_its_test_part_only(tmp_path):
    write(
        tmp_path / "CoLA",
        train__tsv=lines("gj04\t1\t\tOne is here.", 'gj04\t0\t*\tTwo "is here.'),
        dev__tsv=lines("gj04\t1\t\tA dev one."),
        test__tsv=lines("index\tsentence", "0\tA test one.", "1\tAnother."),
    )
    data = read("cola", tmp_path)  # the folder above is good as well
    assert shown(data.splits["train"]) == [("0", "One is here.", None, "1"), ("1", 'Two "is here.', None, "0")]
    assert shown(data.splits["dev"]) == [("0", "A dev one.", None, "1")]
    assert shown(data.splits["test"]) == [("0", "A test one.", None, None), ("1", "Another.", None, None)]
    assert data.labels == ("0", "1") and not counts(data)
    assert [file.rpartition("/")[2] for file in data.files] == ["train.tsv", "dev.tsv", "test.tsv"]


def test_mrpc_has_a_byte_order_mark_and_open_quotes(tmp_path):
    header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
    write(
        tmp_path,
        train__tsv=lines(header, '1\t7\t8\t" Open at the start .\tAnd "" here', "0\t9\t10\tThree\tFour"),
        dev__tsv=b"\xef\xbb\xbf" + lines(header, "1\t1\t2\tA\tB").encode(),
        test__tsv=lines(header.replace("Quality", "index"), "0\t1\t2\tA\tB"),
    )
    data = read("mrpc", tmp_path, strict=True)
    assert shown(data.splits["train"])[0] == ("0", '" Open at the start .', 'And "" here', "1")
    assert len(data.splits["train"]) == 2 and data.splits["dev"][0].label == "1"
    assert counts(data) == {}


def test_mnli_has_two_dev_and_two_test_parts(tmp_path):
    header = "index\tpromptID\tgenre\tsentence1\tsentence2\tlabel1\tgold_label"
    names = ("train", "dev_matched", "dev_mismatched")
    files = {f"{name}__tsv": lines(header, f"5\t1\tg\t{name}\tb\tneutral\tentailment") for name in names}
    test = lines("index\tpromptID\tgenre\tsentence1\tsentence2", "9\t1\tg\ta\tb")
    write(tmp_path, **files, test_matched__tsv=test, test_mismatched__tsv=test)
    data = read("mnli", tmp_path)
    assert list(data.splits) == ["train", "dev", "dev-mismatched", "test", "test-mismatched"]
    assert shown(data.splits["dev-mismatched"]) == [("5", "dev_mismatched", "b", "entailment")]
    assert data.splits["test"][0].label is None and data.splits["test"][0].key == "9"
    assert data.labels == ("contradiction", "entailment", "neutral")


def test_qqp_drops_short_rows_from_train_only(tmp_path):
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"
    write(
        tmp_path,
        train__tsv=lines(header, "10\t1\t2\tA?\tB?\t1", "11\t3\t4\tbroken", "12\t5\t6\tC?\tD?\t0"),
        dev__tsv=lines(header, "20\t1\t2\tA?\tB?\t1", "21\t3\t4\tbroken"),
        test__tsv=lines("id\tquestion1\tquestion2", "0\tA?\tB?"),
    )
    data = read("qqp", tmp_path)
    assert shown(data.splits["train"]) == [("10", "A?", "B?", "1"), ("12", "C?", "D?", "0")]
    assert shown(data.splits["dev"])[1] == ("1", "", "", None)
    assert counts(data) == {"bad_row": 1, "kept_bad_row": 1}
    assert first(data, "bad_row") == {
        "file": str(tmp_path / "train.tsv"),
        "place": "line 3",
        "detail": "4 fields, expected 6",
    }


@pytest.mark.parametrize(
    ("task", "header", "row", "expected"),
    [
        ("sst-2", "sentence\tlabel", "good \t1", ("0", "good", None, "1")),
        ("qnli", "index\tquestion\tsentence\tlabel", "3\tq\ts\tentailment", ("3", "q", "s", "entailment")),
        ("rte", "index\tsentence1\tsentence2\tlabel", "3\ta\tb\tnot_entailment", ("3", "a", "b", "not_entailment")),
        ("wnli", "index\tsentence1\tsentence2\tlabel", "3\ta\tb\t0", ("3", "a", "b", "0")),
    ],
)
def test_other_glue_tables(tmp_path, task, header, row, expected):
    write(tmp_path, train__tsv=lines(header, row), dev__tsv=lines(header, row))
    assert shown(read(task, tmp_path).splits["train"]) == [expected]


def test_sts_b_has_numbers(tmp_path):
    header = "index\tgenre\tsentence1\tsentence2\tscore"
    write(
        tmp_path,
        train__tsv=lines(header, "0\tg\ta\tb\t3.800", "1\tg\ta\tb\tnan", "2\tg\ta\tb\tmany", "3\tg\ta\tb\t"),
        dev__tsv=lines(header, "0\tg\ta\tb\t0.5", "1\tg\ta\tb\tinf"),
    )
    data = read("sts-b", tmp_path)
    assert data.kind == "regression" and data.labels == ()
    assert [each.label for each in data.splits["train"]] == [3.8]
    assert [each.label for each in data.splits["dev"]] == [0.5, None]
    assert counts(data) == {"bad_number": 2, "no_label": 1, "kept_bad_number": 1}


def test_the_diagnostic_has_a_test_part_and_the_labels_of_mnli(tmp_path):
    write(tmp_path, diagnostic__tsv=lines("index\tsentence1\tsentence2", "0\ta\tb"))
    data = read("diagnostic", tmp_path)
    assert list(data.splits) == ["test"] and data.labels == ("contradiction", "entailment", "neutral")


def test_nsmc_has_empty_documents_and_no_dev(tmp_path):
    train = [f"{number}\t영화 {number}\t{number % 2}" for number in range(20)]
    header = "id\tdocument\tlabel"
    write(
        tmp_path,
        ratings_train__txt=lines(header, *train, "99\t\t1"),
        ratings_test__txt=lines(header, "7\t굳 ㅋ\t1", "8\t\t0"),
    )
    data = read("nsmc", tmp_path)
    assert (len(data.splits["train"]), len(data.splits["dev"]), len(data.splits["test"])) == (18, 2, 2)
    assert shown(data.splits["test"])[1] == ("8", "", None, "0")
    assert counts(data) == {"empty_text": 1, "kept_empty_text": 1}
    assert data.messages == ("2 of 20 examples (a tenth, by label, seed 0) are held out for validation",)


def test_klue_nli(tmp_path):
    row = {"guid": "k-0", "premise": "가", "hypothesis": "나", "gold_label": "neutral", "author": "x"}
    for split in ("train", "dev"):
        (tmp_path / f"klue-nli-v1.1_{split}.json").write_text(json.dumps([row], indent=4), encoding="utf-8")
    data = read("klue-nli", tmp_path)
    assert shown(data.splits["dev"]) == [("k-0", "가", "나", "neutral")]


@pytest.mark.parametrize("label", ["answer", "label"])
def test_boolq_in_both_layouts(tmp_path, label):
    rows = [{"question": "is it", "title": "t", "passage": "It is.", label: value} for value in (True, False)]
    write(
        tmp_path,
        train__jsonl=lines(*rows),
        dev__jsonl=lines(*rows),
        test__jsonl=lines({"question": "q", "passage": "p"}),
    )
    data = read("boolq", tmp_path)
    assert shown(data.splits["train"]) == [("0", "is it", "It is.", "true"), ("1", "is it", "It is.", "false")]
    assert data.labels == ("false", "true") and data.splits["test"][0].label is None


def test_a_label_that_training_does_not_have(tmp_path):
    header = "sentence\tlabel"
    write(tmp_path, train__tsv=lines(header, "a\t0", "b\t1"), dev__tsv=lines(header, "c\t1", "d\t7"))
    data = read("sst-2", tmp_path)
    assert data.labels == ("0", "1") and data.splits["dev"][1].label == "7"
    assert counts(data) == {"unseen_label": 1}
    assert first(data, "unseen_label") == {
        "file": str(tmp_path / "dev.tsv"),
        "place": "line 3",
        "detail": "'7' is not in train",
    }


def test_the_split_of_a_single_file_is_inferred_from_its_name(tmp_path):
    write(tmp_path, dev__tsv=lines("sentence\tlabel", "a\t0"), other__tsv=lines("sentence\tlabel", "a\t0"))
    assert list(read("sst-2", tmp_path / "dev.tsv").splits) == ["dev"]
    assert list(read("sst-2", tmp_path / "other.tsv").splits) == ["train"]


def test_columns_may_be_named_otherwise(tmp_path):
    write(tmp_path, train__tsv=lines("review\tstars", "a\t0", "b\t1"), dev__tsv=lines("review\tstars", "c\t0"))
    data = read("sst-2", tmp_path, text="review", label="stars")
    assert shown(data.splits["train"])[0] == ("0", "a", None, "0")
    with pytest.raises(
        ValueError, match=r"no column 'sentence' for the text; name the right one with text= \(columns: review, stars"
    ):
        read("sst-2", tmp_path)


def test_a_person_s_own_table_for_a_known_task(tmp_path):
    write(tmp_path, train__csv='review,stars\n"a, b",0\nc,1\n', dev__csv="review,stars\nd,1\n")
    data = read("sst-2", tmp_path)
    assert [each.text for each in data.splits["train"]] == ["a, b", "c"]


def test_nothing_there(tmp_path):
    with pytest.raises(ValueError, match="does not exist"):
        read("cola", tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"is empty: put train.tsv \(or .csv, .*\) there, or give a file"):
        read("cola", tmp_path)
    write(tmp_path, notes__html="a note")
    with pytest.raises(
        ValueError, match=r"contains none of the expected files: train.tsv, dev.tsv, test.tsv \(or .*.csv"
    ):
        read("cola", tmp_path)
    write(tmp_path, train__tsv="")
    with pytest.raises(ValueError, match=r"no example could be read \(.*train.tsv: files without any text"):
        read("cola", tmp_path)
