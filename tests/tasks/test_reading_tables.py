"""A person's own tables, their columns guessed."""

import gzip
import json
import time

import pyarrow
import pytest
from pyarrow import parquet
from task_files import counts, first, lines, write

from hornbook.tasks.reading.read import read

REVIEWS = [{"id": f"r{n}", "review": f"It was film {n}.", "stars": n % 5 + 1} for n in range(20)]


class Frame:
    """What a data frame is to us."""

    def __init__(self, records):
        self.records = records

    def to_dict(self, how):
        assert how == "records"
        return self.records


def as_csv(rows, delimiter=","):
    return "".join(delimiter.join(map(str, row)) + "\n" for row in [rows[0].keys(), *(row.values() for row in rows)])


def stored(folder, kind):
    path = folder / f"reviews{kind}"
    if kind == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(REVIEWS), path)
    elif kind == ".json":
        path.write_text(json.dumps(REVIEWS))
    elif kind == ".jsonl":
        path.write_text(lines(*REVIEWS))
    else:
        path.write_text(as_csv(REVIEWS, "," if kind == ".csv" else "\t"))
    return path


def test_a_half_is_not_called_a_tenth():
    rows = [{"text": f"text {number}", "label": "ab"[number % 2]} for number in range(4)]
    assert read("classification", rows).messages[1].startswith("2 of 4 examples (by label, seed 0) are held out")


@pytest.mark.parametrize("kind", [".csv", ".tsv", ".jsonl", ".json", ".parquet", "frame", "list"])
def test_the_same_table_in_every_form(tmp_path, kind):
    data = {"frame": Frame(REVIEWS), "list": REVIEWS}.get(kind) or stored(tmp_path, kind)
    found = read("classification", data)
    assert found.messages == (
        "columns: text = 'review', label = 'stars' (5 classes)",
        "2 of 20 examples (a tenth, by label, seed 0) are held out for validation",
    )
    assert found.labels == ("1", "2", "3", "4", "5")
    examples = sorted(found.splits["train"] + found.splits["dev"], key=lambda each: int(each.key[1:]))
    assert [(each.key, each.text, each.label) for each in examples] == [
        (row["id"], row["review"], str(row["stars"])) for row in REVIEWS
    ]
    assert not counts(found)


def test_labels_are_sorted_by_size():
    rows = [{"text": "t", "label": label} for label in (10, 9, 2.0, "x", True, -1)]
    assert read("classification", rows, held_out=0).labels == ("-1", "2", "9", "10", "true", "x")


def test_folder_of_parts(tmp_path):
    write(
        tmp_path,
        train__csv="text,label\na,yes\nb,no\n",
        validation__jsonl=lines({"text": "c", "label": "yes"}),
        test__tsv="text\nd\n\ne\n",
    )
    data = read("classification", tmp_path)
    assert {split: [each.text for each in examples] for split, examples in data.splits.items()} == {
        "train": ["a", "b"],
        "dev": ["c"],
        "test": ["d", "", "e"],
    }
    assert [each.label for each in data.splits["test"]] == [None] * 3
    assert counts(data) == {"kept_empty_text": 1}


def test_parts_in_memory():
    rows = [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}]
    assert list(read("classification", {"train": rows, "validation": rows}).splits) == ["train", "dev"]
    with pytest.raises(ValueError, match="'text' is not a split"):
        read("classification", {"text": ["a"], "label": ["x"]})


def test_files_of_one_part_are_joined(tmp_path):
    for number in range(2):
        rows = [{"text": f"t{number}{n}", "label": n} for n in range(2)]
        parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / f"train-0000{number}-of-00002.parquet")
    found = read("classification", tmp_path, held_out=0).splits["train"]
    assert [(each.key, each.text) for each in found] == [("0", "t00"), ("1", "t01"), ("2", "t10"), ("3", "t11")]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("premise,hypothesis,gold_label", "text = 'premise', pair = 'hypothesis', label = 'gold_label'"),
        ("Sentence2,Sentence1,Label", "text = 'Sentence1', pair = 'Sentence2', label = 'Label'"),
        ("question,passage,answer", "text = 'question', pair = 'passage', label = 'answer'"),
        ("verdict,remarks,number", "text = 'remarks', label = 'verdict'"),
        ("Category,Title,z", "text = 'Title', label = 'Category'"),
    ],
)
def test_guesses(columns, said):
    names = columns.split(",")
    rows = []
    for n in range(10):
        values = [f"some words {n}", f"and others {n}", str(n % 2)]
        if columns.startswith("verdict"):
            values = [str(n % 2), f"some words {n}", str(n)]
        rows.append(dict(zip(names, values, strict=True)))
    assert read("classification", rows).messages[0].startswith(f"columns: {said}")


def test_columns_that_are_named(tmp_path):
    rows = [{"text": "wrong", "a": f"a{n}", "b": f"b{n}", "label": "wrong", "c": n % 2} for n in range(4)]
    data = read("classification", rows, text="a", pair="b", label="c", held_out=0)
    assert next((each.text, each.pair, each.label) for each in data.splits["train"]) == ("a0", "b0", "0")
    for what in ("text", "pair", "label"):
        with pytest.raises(
            ValueError,
            match=rf"no column 'zzz' for the {what}; name the right one with {what}= \(columns: text, a, b, label, c",
        ):
            read("classification", rows, **{what: "zzz"})


def test_columns_that_cannot_be_guessed():
    with pytest.raises(ValueError, match=r"has one column only \(text\): add a column of labels"):
        read("classification", [{"text": "a b"}, {"text": "c d"}])
    distinct = [{"text": f"a b {n}", "label": f"class {n}"} for n in range(20)]
    with pytest.raises(ValueError, match=r"column 'label' has 20 different values in 20 rows, .* with label='label'"):
        read("classification", distinct)
    assert len(read("classification", distinct, label="label").labels) == 18
    with pytest.raises(ValueError, match="the train table row 1 is a tuple: give a data frame, or a list of dict"):
        read("classification", [("a b", "c"), ("d e", "f")])
    with pytest.raises(ValueError, match=r"no column is clearly the text; name it with text= \(columns: label"):
        read("classification", [{"label": 1}, {"label": 2}])


def test_nested_rows_are_refused_with_what_to_do():
    rows = [{"doc": {"text": f"a b {n}", "lang": "en"}, "note": {"label": n % 2}, "topic": n % 3} for n in range(20)]
    for columns in ({}, {"text": "doc", "label": "topic"}):
        with pytest.raises(ValueError, match="'doc' holds objects with text, lang"):
            read("classification", rows, **columns)
    rows = [{"text": row["doc"]["text"], "note": row["note"]} for row in rows]
    with pytest.raises(ValueError, match="'note' holds objects with label"):
        read("classification", rows, label="note")
    assert read("multi-label", rows, label="note").labels == ("label",)  # classes with 0 and 1


def test_a_file_without_column_names(tmp_path):
    write(tmp_path, pairs__csv="a b,c d,1.0\ne f,g h,2.5\n")
    with pytest.raises(ValueError, match=r"the first row looks like data \(a b, c d, 1.0\); put a row of column names"):
        read("similarity", tmp_path / "pairs.csv")


def test_too_few_rows_are_left(tmp_path):
    write(tmp_path, rows__csv="text,label\n" + "a b,\n" * 20 + "c d,1\ne f,2\n")
    with pytest.raises(ValueError, match=r"only 2 examples can be used, .* were skipped \(.*rows.csv line 2"):
        read("classification", tmp_path / "rows.csv")


def test_a_dev_part_without_the_label_column(tmp_path):
    write(tmp_path, train__csv="text,label\na,1\nb,2\n", dev__csv="text,lable\na,1\n")
    with pytest.raises(ValueError, match=r"dev.csv has no column 'label' .*text, lable"):
        read("classification", tmp_path)


def test_regression():
    rows = [{"sentence": f"s{n}", "label": n % 2, "score": n / 10} for n in range(10)]
    data = read("regression", rows, held_out=0)
    assert [each.label for each in data.splits["train"]][:3] == [0.0, 0.1, 0.2]
    assert data.messages == ("columns: text = 'sentence', label = 'score' (numbers from 0 to 0.9)",)


@pytest.mark.parametrize(
    "cell",
    [
        *("red|green", "red; green", "red,green", ["red", "green"], "red|green|red"),
        *("['red', 'green']", '["red", "green"]', "['red' 'green']", "[ 'green','red' ]"),
    ],
)
def test_several_classes(cell):
    other = [] if isinstance(cell, list) else ""
    data = read("multi-label", [{"text": "a", "labels": cell}, {"text": "b", "labels": other}], held_out=0)
    assert [each.label for each in data.splits["train"]] == [("green", "red"), ()]
    assert data.kind == "multi-label" and data.labels == ("green", "red") and not counts(data)


def test_labels_that_data_frames_use_for_missing_values():
    for missing in (None, float("nan"), type("NAType", (), {})(), type("NaTType", (), {})()):  # as pandas has them
        for task, label in (("multi-label", ["a"]), ("regression", 1.5), ("classification", "a")):
            rows = [{"text": "one", "label": label}, {"text": "two", "label": missing}]
            data = read(task, {"dev": rows}, label="label")
            assert counts(data) == {"kept_no_label": 1} and data.splits["dev"][1].label is None


def test_several_classes_as_columns():
    rows = [{"text": "a", "red": 1, "green": 0, "blue": 1}, {"text": "b", "red": 0, "green": 0, "blue": 0}]
    data = read("multi-label", rows, label="red,green", held_out=0)
    assert [each.label for each in data.splits["train"]] == [("red",), ()]
    assert read("multi-label", rows, held_out=0).splits["train"][0].label == ("red", "blue")
    with pytest.raises(ValueError, match="no column 'grey' for the label"):
        read("multi-label", rows, label="red,grey")
    marked = [
        *rows,
        {"text": "c", "red": "O", "green": 1, "blue": 0},
        {"text": "d", "red": "No", "green": "", "blue": 1},
    ]
    data = read("multi-label", marked, held_out=0, label="red,green,blue")
    assert [each.label for each in data.splits["train"]] == [("red", "blue"), (), ("blue",)]
    assert first(data, "bad_flag")["detail"] == "'O' for 'red' is neither 0 nor 1"


def test_bad_rows_are_counted_and_left_out(tmp_path):
    write(
        tmp_path,
        train__csv="text,label\ngood,1\nno label,\n ,1\ntoo,many,fields\nfew\nalso good,2\n",
        dev__csv="text,label\ngood,1\nno label,\n ,1\ntoo,many,fields\nfew\n",
    )
    data = read("classification", tmp_path)
    assert [each.text for each in data.splits["train"]] == ["good", "also good"]
    assert [(each.text, each.label) for each in data.splits["dev"]] == [
        ("good", "1"),
        ("no label", None),
        ("", "1"),
        ("", None),
        ("", None),
    ]
    dropped = {"no_label": 1, "empty_text": 1, "bad_row": 2}
    assert counts(data) == {**dropped, **{f"kept_{kind}": num for kind, num in dropped.items()}}
    assert first(data, "no_label")["place"] == "line 3" and first(data, "bad_row")["place"] == "line 5"
    with pytest.raises(ValueError, match=r"train.csv line 3: the label is empty"):
        read("classification", tmp_path, strict=True)


def test_an_empty_half_of_a_pair():
    rows = [{"text1": "a", "text2": second, "label": 1} for second in ("b", " ")]
    data = read("classification", {"train": rows, "dev": rows})
    assert [each.pair for each in data.splits["train"]] == ["b"] and [each.pair for each in data.splits["dev"]] == [
        "b",
        "",
    ]
    assert first(data, "empty_text")["detail"] == "the pair is empty"


def test_bad_cells_in_memory():
    rows = [{"text": "a", "label": 1.0}, {"text": "b", "label": float("nan")}, {"text": None, "label": 1.0}, "row"]
    data = read("classification", rows, held_out=0)
    assert [(each.text, each.label) for each in data.splits["train"]] == [("a", "1")]
    assert counts(data) == {"no_label": 1, "empty_text": 1, "bad_json": 1}
    assert first(data, "no_label") == {"file": "the train table", "place": "row 2", "detail": "the label is empty"}


def test_a_number_that_is_too_large_is_counted():
    rows = [{"text": f"text {n}", "score": n} for n in range(4)]
    data = read("regression", [*rows, {"text": "huge", "score": 10**400}], held_out=0)
    assert len(data.splits["train"]) == 4 and counts(data) == {"bad_number": 1}


@pytest.mark.parametrize("data", [None, 3, {"train": "text"}])
def test_what_is_no_table_is_refused(data):
    with pytest.raises(ValueError, match=r"the train table is a .*: give a data frame, a list of dictionaries, or"):
        read("classification", data)


def test_json_lines_that_are_not_whole(tmp_path):
    good = '{"text": "a", "label": "x"}\n'
    rows = good + '{"text": "b", "lab\n[1]\n' + '{"text": "d", "label": "x"}\n'
    write(tmp_path, train__jsonl=rows, dev__jsonl=rows)
    data = read("classification", tmp_path)
    assert [each.text for each in data.splits["train"]] == ["a", "d"]
    assert [each.text for each in data.splits["dev"]] == ["a", "", "", "d"]
    assert counts(data) == {"bad_json": 2, "kept_bad_json": 2}
    assert first(data, "bad_json")["place"] == "line 2"
    with pytest.raises(ValueError, match="line 2"):
        read("classification", tmp_path, strict=True)


def test_bytes_that_are_not_utf_8(tmp_path):
    write(tmp_path, train__csv=b"text,label\na,1\nb\xff\xfe,2\nn\0ul,1\n")
    data = read("classification", tmp_path, held_out=0)
    assert [each.text for each in data.splits["train"]] == ["a", "b\ufffd\ufffd", "nul"]
    assert counts(data) == {"invalid_utf8": 2, "nul_character": 1}
    assert first(data, "invalid_utf8")["place"] == "line 3" and first(data, "nul_character")["place"] == "line 4"


def test_bytes_that_are_not_utf_8_in_parquet(tmp_path):
    text = pyarrow.array([b"good", b"b\xffd"]).view(pyarrow.string())
    parquet.write_table(pyarrow.table({"text": text, "label": ["x", "y"]}), tmp_path / "train.parquet")
    data = read("classification", tmp_path, held_out=0)
    assert [each.text for each in data.splits["train"]] == ["good", "b\ufffdd"]
    assert first(data, "invalid_utf8")["place"] == "row 2"


def test_broken_parquet_and_unknown_kinds_are_errors(tmp_path):
    write(tmp_path, b__parquet=b"PAR1 no", c__ods=b"PK")
    with pytest.raises(ValueError, match=r"b.parquet cannot be read as Parquet"):
        read("classification", tmp_path / "b.parquet")
    with pytest.raises(ValueError, match=r"c.ods has an unknown format: .*\.csv"):
        read("classification", tmp_path / "c.ods")


def test_a_column_file_names_its_task(tmp_path):
    (tmp_path / "ner.conll").write_text("Ada B-PER\nran O\n")
    with pytest.raises(ValueError, match=r"ner.conll looks like a column file .* task='tagging'"):
        read("classification", tmp_path / "ner.conll")


def test_a_file_whose_format_is_not_in_its_name_says_what_to_do(tmp_path):
    (tmp_path / "a.txt").write_text("id\tdocument\tlabel\n1\tgood\t1\n")
    several = r"a.txt could be of several formats: rename .* to .tsv, .* task='tagging' .* plain text, build a corpus"
    with pytest.raises(ValueError, match=several):
        read("classification", tmp_path / "a.txt")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"text,label\na,b\n"))
    with pytest.raises(ValueError, match=r"a\.csv\.gz is compressed: decompress it first"):
        read("classification", tmp_path / "a.csv.gz")
    articles = {"data": [{"title": name, "paragraphs": []} for name in "abcd"]}
    (tmp_path / "b.json").write_text(json.dumps(articles))
    with pytest.raises(ValueError, match=r"b.json looks like questions in SQuAD's format: .* task='spans'"):
        read("classification", tmp_path / "b.json")


def test_two_columns_of_one_name(tmp_path):
    write(tmp_path, train__csv="text,text,label\na,b,1\n")
    with pytest.raises(ValueError, match="two columns named 'text'"):
        read("classification", tmp_path)


@pytest.mark.parametrize(("line", "delimiter"), [("sep=;", ";"), ('"sep=,"', ","), ("sep=^", "^")])
def test_the_line_by_which_a_file_tells_excel_its_delimiter(tmp_path, line, delimiter):
    table = "\ntext,label\na,0\nb,\nc,1\n".replace(",", delimiter)
    write(tmp_path, train__csv=line + table, dev__csv=line + table)
    data = read("classification", tmp_path)
    assert [(each.text, each.label) for each in data.splits["train"]] == [("a", "0"), ("c", "1")]
    assert first(data, "no_label")["place"] == "line 4"


def test_an_empty_dev_split_is_reported_and_replaced(tmp_path):
    write(tmp_path, train__csv=as_csv(REVIEWS), dev__csv="id,review,stars\n")
    data = read("classification", tmp_path)
    assert "the dev split has no examples and is ignored" in data.messages and len(data.splits["dev"]) == 2


def test_hidden_labels_of_a_test_part(tmp_path):
    write(tmp_path, train__csv="text,label\na,0\nb,1\n", dev__csv="text,label\na,0\n", test__csv="text,label\na,-1\n")
    data = read("classification", tmp_path)
    assert data.splits["test"][0].label is None and not counts(data)


def test_nothing_to_read(tmp_path):
    with pytest.raises(ValueError, match="no rows"):
        read("classification", [])
    write(tmp_path, train__csv="")
    with pytest.raises(ValueError, match="no rows"):
        read("classification", tmp_path)


def test_the_seed_and_the_share_decide_what_is_held_out():
    draws = [read("classification", REVIEWS, seed=seed, held_out=0.25).splits["dev"] for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2] and len(draws[0]) == 5
    assert "dev" not in read("classification", REVIEWS, held_out=0).splits


def test_repeated_keys_are_made_distinct():
    rows = [{"id": "a", "text": "t", "label": "x"} for _ in range(3)]
    data = read("classification", rows, held_out=0)
    assert [each.key for each in data.splits["train"]] == ["a", "a#2", "a#3"] and counts(data) == {"repeated_key": 2}
    rows = [{"id": key, "text": "t", "label": "x"} for key in ("a", "a#2", "a", "a#2", "a")]
    keys = [each.key for each in read("classification", rows, held_out=0).splits["train"]]
    assert keys == ["a", "a#2", "a#3", "a#2#2", "a#4"]


def test_one_key_for_all_rows_takes_moments():
    """Half a second; when each row tried all numbers again, half a minute."""
    rows = [{"id": "a", "text": "t", "label": "x"}] * 16_000
    start = time.perf_counter()
    assert read("classification", rows, held_out=0).splits["train"][-1].key == "a#16000"
    assert time.perf_counter() - start < 8


@pytest.mark.parametrize(("name", "mark"), [("csv", ","), ("tsv", "\t")])
def test_a_blank_line_is_counted_in_train_and_kept_elsewhere(tmp_path, name, mark):
    rows = [f"text{mark}label", f"a{mark}1", "", f"b{mark}2"]
    for split in ("train", "dev", "test"):
        (tmp_path / f"{split}.{name}").write_text("\n".join(rows) + "\n\n")
    data = read("classification", tmp_path)
    assert [each.text for each in data.splits["train"]] == ["a", "b"]
    for split in ("dev", "test"):
        assert [(each.text, each.label) for each in data.splits[split]] == [("a", "1"), ("", None), ("b", "2")]
    assert counts(data) == {"bad_row": 1, "kept_bad_row": 2}
    assert first(data, "bad_row")["place"] == "line 3"


@pytest.mark.parametrize(
    ("task", "name", "text", "said"),
    [
        (
            "regression",
            "r.csv",
            "text,label\nnice film,good\n",
            r"r.csv line 2: column 'label': 'good' is not a number",
        ),
        (
            "classification",
            "r.jsonl",
            '{"text": "nice film", "lab',
            "r.jsonl line 1: no row can be read \\(Unterminated",
        ),
    ],
)
def test_where_nothing_can_be_read_the_first_reason_is_reported(tmp_path, task, name, text, said):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=said):
        read(task, tmp_path / name)


def test_columns_without_a_name_must_be_empty(tmp_path):
    write(tmp_path, a__csv="text,label,,\none,x,,\ntwo,y\n\nthree,x,,\n")
    data = read("classification", tmp_path / "a.csv", held_out=0)
    assert [(each.text, each.label) for each in data.splits["train"]] == [("one", "x"), ("two", "y"), ("three", "x")]
    write(tmp_path, a__csv="text,label,,\none,x,,note\n")
    with pytest.raises(ValueError, match=r"a.csv has 2 columns without a name: name them in its first line"):
        read("classification", tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("name", "split"),
    [("constraints", "dev"), ("my_train", "train"), ("training-v2", "train"), ("a_test", "test"), ("valid", "dev")],
)
def test_a_word_of_its_name_tells_the_split_of_a_single_file(tmp_path, name, split):
    write(tmp_path, **{f"{name}__csv": "text,label\none,x\ntwo,y\n"})
    data = read("classification", tmp_path / f"{name}.csv", held_out=0, default_split="dev")
    assert list(data.splits) == [split]


def test_two_names_of_one_split():
    rows = [{"text": "one", "label": "x"}]
    with pytest.raises(ValueError, match="'dev' and 'validation' both name the dev split: give only one of them"):
        read("classification", {"train": rows, "dev": rows, "validation": rows})
    with pytest.raises(ValueError, match="for columns, give a data frame or a list of dictionaries"):
        read("classification", {"text": ["one"], "label": ["x"]})


def test_a_label_of_single_texts_is_refused_for_similarity():
    rows = [{"text": "one two", "score": 1.0}, {"text": "three four", "score": 2.0}]
    with pytest.raises(ValueError, match="label= needs a pair of texts: name the second text with pair="):
        read("similarity", rows, label="score", text="text")
