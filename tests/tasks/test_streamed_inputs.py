"""Large files are read in pieces, with the same result as at once."""

import json
import random

import pyarrow as pa
import pytest
from pyarrow import parquet

from hornbook.tasks.datasets import find_task
from hornbook.tasks.reading import table_files
from hornbook.tasks.reading.inputs import inputs_in, original_columns, stream_inputs
from hornbook.tasks.reading.reader import Reader, RequestedColumns

WORDS = ["river", "bridge", "한국어", "été", "bread, butter", 'a "quoted" word', "two\nlines", ""]


def rows(num: int = 200) -> list[dict[str, str]]:
    draw = random.Random(0)
    return [
        {"id": f"k{number}", "body": " ".join(draw.choices(WORDS, k=draw.randint(0, 6))), "lang": draw.choice("ab")}
        for number in range(num)
    ]


def quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"'


def csv_text(delimiter: str = ",") -> str:
    lines = ["id,body,lang".replace(",", delimiter)]
    lines += [delimiter.join(map(quoted, row.values())) for row in rows()]
    return "\n".join(lines) + "\n"


def broken_csv() -> str:
    lines = [f"k{number},the river {number},a" for number in range(300)]
    lines[40] = 'k40,"an open quote,a'
    lines[90], lines[91] = "", ""
    lines[120] = "k120,too few"
    lines[170] = "k170,too, many,a"
    lines[220] = "k220,a nul \0 and a return \r,a"
    return "id,body,lang\n" + "\n".join(lines) + "\n\n\n"


CONTENTS = {
    "quoted.csv": csv_text(),
    "semicolons.csv": csv_text(";"),
    "quoted.tsv": csv_text("\t"),
    "broken.csv": broken_csv(),
    "plain.tsv": "id\tbody\tlang\n" + "".join(f'{i}\tthe "river {i}\ta\n' for i in range(300)),
    "rows.jsonl": "".join(json.dumps(row) + "\n" for row in rows()) + "{broken\n\n" + '{"body": "last"}\n',
    "lines.txt": "".join(f"the river {i}\n" for i in range(300)) + "\n\nthe end",
    "korean.csv": ("id,body\n" + "".join(f"{i},river\n" for i in range(200)) + "x,한국어 문장입니다\n" * 20).encode(
        "cp949"
    ),
    "damaged.csv": b"\xef\xbb\xbfid,body\n" + b"".join(b"%d,the river\n" % i for i in range(300)) + b"x,\xffriver\n",
}


@pytest.mark.parametrize("name", [*CONTENTS, "rows.parquet"])
@pytest.mark.parametrize("size", [300, 1000])
def test_pieces_are_read_as_the_whole(monkeypatch, tmp_path, name, size):
    path = tmp_path / name
    if name.endswith("parquet"):
        parquet.write_table(pa.Table.from_pylist(rows()), path)
    else:
        content = CONTENTS[name]
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    def reader() -> Reader:
        return Reader(needs_labels=False, requested=RequestedColumns("body" if "lines" not in name else None))

    entry, one, two = find_task("classification"), reader(), reader()
    expected = inputs_in(path, entry, one)
    columns = original_columns(expected, one) or [{} for _ in expected]
    monkeypatch.setattr(table_files, "PIECE_BYTES", size)
    monkeypatch.setattr(table_files, "PIECE_ROWS", 7)
    pieces = list(stream_inputs(path, entry, two))
    assert len(pieces) >= 3
    found = [example for examples, _ in pieces for example in examples]
    assert [each.text for each in found] == [each.text for each in expected]
    assert [row for _, its in pieces for row in its] == columns
    assert described(two) == described(one)
    assert [each for each in two.messages if "columns:" not in each] == [
        each for each in one.messages if "columns:" not in each
    ]


def described(reader: Reader) -> dict:
    """The problems: their number by kind, and the first of each."""
    problems = reader.problems
    return {kind: (entry["count"], problems.most_frequent(kind)) for kind, entry in problems.to_dict().items()}


def test_wide_encodings_are_read_at_once(monkeypatch, tmp_path):
    path = tmp_path / "wide.csv"
    path.write_text(csv_text(), encoding="utf-16")
    monkeypatch.setattr(table_files, "PIECE_BYTES", 300)
    reader = Reader(needs_labels=False, requested=RequestedColumns("body"))
    assert [len(found) for found, _ in stream_inputs(path, find_task("classification"), reader)] == [200]


def test_what_separates_the_texts_is_decided_once(monkeypatch, tmp_path):
    monkeypatch.setattr(table_files, "PIECE_BYTES", 20)
    monkeypatch.setattr(table_files, "PIECE_ROWS", 4)
    for is_pair in (True, False):
        lines = [f"a {i}" + "\tb" * ((i < 4) == is_pair) for i in range(12)]
        (tmp_path / "a.txt").write_text("\n".join(lines) + "\n")
        pieces = list(stream_inputs(tmp_path / "a.txt", find_task("classification"), Reader(needs_labels=False)))
        examples = [example for found, _ in pieces for example in found]
        assert len(pieces) == 3 and {example.pair is not None for example in examples} == {is_pair}


def test_a_later_piece_may_lack_a_column_of_the_first(monkeypatch, tmp_path):
    monkeypatch.setattr(table_files, "PIECE_BYTES", 20)
    monkeypatch.setattr(table_files, "PIECE_ROWS", 4)
    lines = [json.dumps({"text": f"a {i}"} | ({"pair": "b"} if i < 2 else {})) for i in range(12)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    pieces = list(stream_inputs(tmp_path / "a.jsonl", find_task("classification"), Reader(needs_labels=False)))
    assert [example.pair for found, _ in pieces for example in found] == ["b", "b", *[None] * 10]
