"""Tables of Excel, with `hornbook[excel]`."""

import datetime
import sys

import pytest
from task_files import counts, write
from test_reading_inputs import spec_of

from hornbook.tasks.reading.inputs import read_input_rows
from hornbook.tasks.reading.read import read
from hornbook.tasks.reading.reader import Reader
from hornbook.tasks.reading.table_files import read_table


def workbook(path, *rows, other=()):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    for name in other:
        book.create_sheet(name)
    book.save(path)
    return path


def tickets(num=30):
    day = datetime.datetime(2024, 3, 1)
    return [
        (1000 + n, f"배송 문제, number {n}", ("IT", "HR")[n % 2], day + datetime.timedelta(days=n % 9))
        for n in range(num)
    ]


def test_the_file_is_closed_after_reading(tmp_path, monkeypatch):
    openpyxl, books = pytest.importorskip("openpyxl"), []
    open_book = openpyxl.load_workbook

    def load_workbook(*arguments, **options):
        books.append(open_book(*arguments, **options))
        return books[-1]

    monkeypatch.setattr(openpyxl, "load_workbook", load_workbook)
    read("classification", workbook(tmp_path / "tickets.xlsx", ("text", "label"), *[("a b", "c"), ("d e", "f")] * 4))
    assert books[0]._archive.fp is None


def test_a_table_of_excel(tmp_path):
    rows = tickets()
    path = workbook(tmp_path / "tickets.xlsx", (), ("ID", "Ticket text", "Team", "Opened"), *rows, other=["notes"])
    data = read("classification", path, held_out=0, strict=True)
    assert data.roles == {"text": "Ticket text", "label": "Team", "key": "ID"}
    assert [(each.key, each.text, each.label) for each in data.splits["train"]] == [
        (str(key), text, team) for key, text, team, _ in rows
    ]
    assert any("sheet 'Sheet', the first of 2" in words for words in data.messages)
    assert read("classification", tmp_path / "tickets.xlsx", label="Opened", held_out=0).labels


def test_rows_of_excel_that_are_not_whole(tmp_path):
    workbook(tmp_path / "train.xlsx", ("text", None, "label"), ("a", "x", 1), (), ("b", None, None), (None, "y", 2), ())
    data = read("classification", tmp_path, held_out=0)
    assert [(each.text, each.label) for each in data.splits["train"]] == [("a", "1")]
    assert counts(data) == {"bad_row": 1, "no_label": 1, "empty_text": 1}
    rows = read_input_rows(tmp_path / "train.xlsx", spec_of("classification"))
    assert [row.problem for row in rows] == ["", "the row is blank", "", "the text is empty"]


def test_what_is_no_excel_file_is_refused(tmp_path):
    pytest.importorskip("openpyxl")
    write(tmp_path, a__xlsx=b"PK no", b__xlsx="text,label\n")
    for name in ("a.xlsx", "b.xlsx"):
        with pytest.raises(ValueError, match=rf"{name} cannot be read as Excel .*save it again as .xlsx, or as .csv"):
            read("classification", tmp_path / name)


def test_without_openpyxl_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    write(tmp_path, a__xlsx=b"PK")
    with pytest.raises(ValueError, match=r"needs the package openpyxl, .*: pip install 'hornbook\[excel\]'"):
        read("classification", tmp_path / "a.xlsx")


def test_a_workbook_without_cells_is_refused(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.create_chartsheet("chart").add_chart(openpyxl.chart.BarChart())
    del book["Sheet"]
    book.save(tmp_path / "a.xlsx")
    with pytest.raises(ValueError, match=r"a\.xlsx cannot be read as Excel \(it has no sheet with cells\)"):
        read_table(tmp_path / "a.xlsx", Reader())
