"""The dialects of CSV and TSV: delimiters, quotes and line ends, and quotes that are broken."""

import csv
import time

import pytest
from task_files import counts, first, write

from hornbook.data.csv_dialect import Dialect, csv_records
from hornbook.tasks.reading.read import read


def test_spaces_between_delimiters_and_quotes(tmp_path):
    rows = "".join(f'{n}, "well, a ""b"" {n}", {"xy"[n % 2]}\n' for n in range(20))
    (tmp_path / "a.csv").write_text("id, text, label\n" + rows)
    data = read("classification", tmp_path / "a.csv")
    assert data.labels == ("x", "y") and data.splits["train"][0].text.startswith('well, a "b" ')
    assert "comma, spaces before quotes (detected" in data.messages[0] and not data.problems.to_dict()


def test_another_delimiter_has_to_be_given(tmp_path):
    (tmp_path / "a.csv").write_text("text^label\n" + "".join(f"a b {n}^{'xy'[n % 2]}\n" for n in range(20)))
    with pytest.raises(ValueError, match=r"one column only \(text\^label\).* delimiter= if the columns are separated"):
        read("classification", tmp_path / "a.csv")
    assert read("classification", tmp_path / "a.csv", delimiter="^").labels == ("x", "y")


def test_quotes_in_csv(tmp_path):
    rows = 'text,label\n"two\nlines, ""so""",1\na 5" disk,2\n"open,1\nlast,2\n'
    write(tmp_path, train__csv=rows)
    data = read("classification", tmp_path, held_out=0)
    assert [each.text for each in data.splits["train"]] == ['two\nlines, "so"', 'a 5" disk', "last"]
    assert counts(data) == {"bad_quotes": 1, "bad_row": 1}
    assert first(data, "bad_quotes")["place"] == "line 5"


def test_quotes_in_tsv_are_marks_only_where_all_are(tmp_path):
    write(tmp_path, train__tsv='text\tlabel\n"with ""marks"""\t1\nplain\t2\n')
    data = read("classification", tmp_path, held_out=0)
    assert data.splits["train"][0].text == 'with "marks"' and "quotes" in data.messages[0]
    write(tmp_path, train__tsv='text\tlabel\n" open\t1\nplain\t2\n"so" he said\t1\n')
    data = read("classification", tmp_path, held_out=0)
    assert [each.text for each in data.splits["train"]] == ['" open', "plain", '"so" he said']


def test_other_line_ends_do_not_part_rows(tmp_path):
    write(tmp_path, train__csv="text,label\r\na\u2028b\x0cc,1\r\nd,2\r\n")
    data = read("classification", tmp_path, held_out=0)
    assert [each.text for each in data.splits["train"]] == ["a\u2028b\x0cc", "d"]
    assert counts(data) == {}  # as such files are written


def test_lone_carriage_returns(tmp_path):
    write(tmp_path, train__csv="text,label\na\rb,1\nc,2\n", dev__csv="text,label\rd,1\r")
    data = read("classification", tmp_path)
    assert [each.text for split in data.splits.values() for each in split] == ["a b", "c", "d"]
    assert counts(data) == {}


def csv_rows_one_by_one(text):
    """The definition: a broken row is read alone, and reading restarts after it."""
    rows, left = [], text.splitlines(keepends=True)
    while left:
        reader = csv.reader(left, strict=True)
        try:
            rows.append(next(reader))
            left = left[reader.line_num :]
        except csv.Error:
            rows.append(next(csv.reader([left[0].rstrip("\n")])))
            left = left[1:]
    return rows


def test_bad_quotes_break_their_own_row_only(random):
    """Over all short arrangements of what means something to a CSV reader."""
    num_broken = 0
    for _ in range(400):
        text = "".join(random.choice(['"', '"', ",", "a", "\n", '""', 'x","'], 24)) + "\n"
        bad = []
        rows = csv_records(
            text.removesuffix("\n").split("\n"), Dialect(), lambda place, error, bad=bad: bad.append(place)
        )
        assert [row for _, row in rows] == csv_rows_one_by_one(text)
        num_broken += len(bad) > 2
    assert num_broken > 50


def test_bad_quotes_on_every_row_are_read_in_one_go():
    """Each row opens a quote that extends to the end of the file: following it every time would take minutes."""
    start = time.perf_counter()
    bad = []
    rows = list(csv_records(['5","a'] * 20_000, Dialect(), lambda place, error: bad.append(place)))
    assert rows[7] == ("line 8", ['5"', "a"])
    assert len(rows) == len(bad) == 20_000
    assert time.perf_counter() - start < 5
