"""A line ends at a line feed, and nowhere else: texts hold other characters that Python counts as line ends."""

import json
import re
from pathlib import Path

import pytest

import hornbook
from hornbook.data.readers import Document, FileReader
from hornbook.files import read_json_lines
from hornbook.tasks.reading.read import read

ENDS = ("\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c", "\x1e")
TEXTS = [f"one{end}two words" for end in ENDS]


def test_rows_with_other_line_ends_are_read_back(tmp_path):
    rows = [{"text": text, "label": str(number % 2)} for number, text in enumerate(TEXTS)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    assert read_json_lines(tmp_path / "a.jsonl") == rows
    found = read("classification", tmp_path / "a.jsonl", held_out=0)
    assert [(each.text, each.label) for each in found.splits["train"]] == [tuple(row.values()) for row in rows]


@pytest.mark.parametrize("suffix", ["jsonl", "txt"])
def test_documents_of_a_corpus_hold_other_line_ends(tmp_path, suffix):
    lines = [json.dumps({"text": text}, ensure_ascii=False) if suffix == "jsonl" else text for text in TEXTS]
    (tmp_path / f"a.{suffix}").write_text(("\n" if suffix == "jsonl" else "\n\n").join(lines))
    found = [each.text for each in FileReader(tmp_path / f"a.{suffix}") if isinstance(each, Document)]
    assert found == TEXTS


def test_a_line_that_was_cut_short_is_skipped(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n\n{"a": 2}\n{"a": ')
    assert read_json_lines(tmp_path / "a.jsonl") == [{"a": 1}, {"a": 2}]
    assert read_json_lines(tmp_path / "none.jsonl") == []


@pytest.mark.parametrize("end", ENDS)
def test_words_of_a_column_file_hold_other_line_ends(tmp_path, end):
    (tmp_path / "train.txt").write_text(f"a{end}b\tO\nc\tO\n\nd\tO\n")
    found = read("tagging", tmp_path, held_out=0).splits["train"]
    assert [each.words for each in found] == [(f"a{end}b", "c"), ("d",)]


def test_nothing_reads_a_file_by_splitlines():
    """What is left are messages of errors and the files of /proc."""
    allowed = re.compile(
        r"str\(error\)( or .*)?\.splitlines|stderr\.strip\(\)\.splitlines|"
        r"(STATUS|status|listed|cpuinfo)\.read_text\(\)\.spl"
    )
    for file in Path(hornbook.__file__).parent.rglob("*.py"):
        for line in file.read_text(encoding="utf-8").split("\n"):
            assert ".splitlines(" not in line or allowed.search(line), f"{file.name}: {line.strip()}"
