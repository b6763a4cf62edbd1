import gzip
import json
import lzma
import os
import random

import pyarrow
import pytest
from pyarrow import parquet

from hornbook.data import csv_dialect, readers
from hornbook.data.problems import Problem, Problems
from hornbook.data.readers import FileReader, read_documents


def read(path, **settings):
    """Texts and counts by kind of problem, out of one file or folder."""
    problems = Problems()
    texts = [document.text for document in read_documents(path, problems=problems, **settings)]
    return texts, {kind: entry["count"] for kind, entry in problems.to_dict().items()}


def zstandard(path, data: bytes) -> None:
    with pyarrow.CompressedOutputStream(str(path), "zstd") as stream:
        stream.write(data)


def test_blank_lines_part_documents(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("\n\nOne.\nStill one.\n \t\nTwo.\n\n\n\nThree.")
    assert read(path) == (["One.\nStill one.", "Two.", "Three."], {})
    assert [document.place for document in read_documents(path)] == ["line 3", "line 6", "line 10"]


def test_a_file_can_be_one_document(tmp_path):
    (tmp_path / "a.txt").write_text("One.\n\nStill one.\n")
    (tmp_path / "b.txt").write_text(" \n")
    assert read(tmp_path, documents="file") == (["One.\n\nStill one."], {"empty_file": 1})
    with pytest.raises(ValueError, match="blank-line"):
        FileReader(tmp_path / "a.txt", documents="line")


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz", ".zst"])
@pytest.mark.parametrize("kind", ["txt", "jsonl"])
def test_compressed_files_give_the_same(tmp_path, kind, suffix):
    data = "One é.\n\nTwo.\n" if kind == "txt" else '{"text": "One é."}\n{"text": "Two."}\n'
    path = tmp_path / f"a.{kind}{suffix}"
    if suffix == ".zst":
        zstandard(path, data.encode())
    else:
        with {"": open, ".gz": gzip.open, ".xz": lzma.open}[suffix](path, "wb") as file:
            file.write(data.encode())
    reader = FileReader(path)
    assert [item.text for item in reader] == ["One é.", "Two."]
    assert reader.bytes_read == path.stat().st_size


@pytest.mark.parametrize("block_bytes", [1, 2, 3, 7, 1 << 20])
def test_blocks_may_end_anywhere(tmp_path, monkeypatch, block_bytes):
    monkeypatch.setattr("hornbook.data.sources.BLOCK_BYTES", block_bytes)
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffOne 한국어\r\nmore.\r\n\r\nTw\0o \ufffd.\r\n".encode() + b"\n\xff\xfe bad \xe2\x82\n")
    texts, counts = read(path)
    assert texts == ["One 한국어\nmore.", "Two \ufffd.", "\ufffd\ufffd bad \ufffd"]
    assert counts == {"nul_character": 1, "invalid_utf8": 3}


@pytest.mark.parametrize("name", ["a.txt", "a.csv"])
def test_a_file_that_is_no_text_is_left_out(tmp_path, name):
    (tmp_path / name).write_bytes(bytes(range(256)) * 40)
    (tmp_path / "b.txt").write_text("Silver winter river.")
    assert read(tmp_path) == (["Silver winter river."], {"not_text": 1})


def test_long_documents_come_in_parts(tmp_path):
    text = " ".join(f"word{number}" for number in range(300))
    path = tmp_path / "a.txt"
    path.write_text(f"Short.\n\n{text}\n\nLast.")
    items = list(FileReader(path, part_characters=100))
    assert [item.kind for item in items if isinstance(item, Problem)] == ["long_document"]
    documents = [item for item in items if not isinstance(item, Problem)]
    middle = documents[1:-1]
    assert [document.part for document in middle] == list(range(len(middle)))
    assert " ".join(document.text for document in middle) == text
    assert max(len(document.text) for document in documents) <= 100
    assert documents[-1].text == "Last." and documents[-1].part == 0


def test_a_line_without_end_stays_within_memory(tmp_path):
    import tracemalloc

    path = tmp_path / "a.txt"
    path.write_bytes(b"x" * 30_000_000)
    tracemalloc.start()
    num_characters = sum(len(document.text) for document in read_documents(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert num_characters == 30_000_000 and peak < 12_000_000


def test_json_lines_with_every_fault(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "JSON_LINE_BYTES", 1000)
    monkeypatch.setattr("hornbook.data.sources.BLOCK_BYTES", 64)
    path = tmp_path / "a.jsonl"
    lines = [
        b'\xef\xbb\xbf{"text": "Good."}\r',
        b'{"text": ',
        b"[1, 2]",
        b'{"title": "No text"}',
        b'{"text": null}',
        b'{"text": 7}',
        b'{"text": "  "}',
        b"",
        json.dumps({"text": "long " * 300}).encode(),
        b'{"text": "bad \xff, half \\ud800, nul \\u0000."}',
        b"[" * 900,
        b'{"text": "Last."}',
    ]
    path.write_bytes(b"\n".join(lines))
    texts, counts = read(path)
    assert texts == ["Good.", "bad \ufffd, half \ufffd, nul .", "Last."]
    expected = dict.fromkeys(("no_text_column", "null_text", "text_not_string", "empty_document"), 1)
    expected |= dict.fromkeys(("line_too_long", "invalid_utf8", "lone_surrogate", "nul_character"), 1)
    assert counts == {**expected, "not_json": 3}
    problems = Problems()
    list(read_documents(path, problems=problems))
    example = problems.to_dict()["no_text_column"]["examples"][0]
    assert example["place"] == "line 4" and "title" in example["detail"] and "text_column=" in example["detail"]


def test_deep_json_is_a_problem_and_no_crash(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("[" * 200_000 + '\n{"text": "Good."}\n')
    assert read(path) == (["Good."], {"not_json": 1})


def test_text_column_is_guessed_or_named(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"body": "B.", "content": "C.", "other": "O."}\n')
    assert read(path)[0] == ["C."]
    assert read(path, text_column="other")[0] == ["O."]
    assert read(path)[1] == {"inferred_column": 1} and read(path, text_column="content")[1] == {}
    (tmp_path / "b.csv").write_text("id,Content\n1,B.\n")
    problems = Problems()
    assert [each.text for each in read_documents(tmp_path / "b.csv", problems=problems)] == ["B."]
    assert problems.to_dict()["inferred_column"]["examples"][0]["detail"] == "Content"
    with pytest.raises(ValueError, match=r'no column "none" \(there are: body, content, other\)') as error:
        read(path, text_column="none")
    assert "\n" not in str(error.value)


def test_nested_text_is_explained(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"id": 1, "body": {"title": "T.", "text": "A."}}\n')
    with pytest.raises(ValueError, match="an object with title, text: write its text at the top level of the row"):
        read(tmp_path / "a.jsonl")


def test_tables(tmp_path, monkeypatch):
    """Quotes, line ends inside of fields, other delimiters, rows that are too short, bytes that are not UTF-8."""
    (tmp_path / "a.csv").write_bytes(b'id,text\r\n1,"One, ""quoted"".\r\nStill one."\r\n\r\n2\r\n3,Two \xff.\r\n4,\r\n')
    texts, problems = read(tmp_path / "a.csv")
    assert texts == ['One, "quoted".\nStill one.', "Two \ufffd."]
    assert problems["no_text_column"] == problems["empty_document"] == problems["invalid_utf8"] == 1
    (tmp_path / "b.csv").write_text("label;review\n1;Good, really.\n0;Bad.\n")
    assert read(tmp_path / "b.csv", text_column="review")[0] == ["Good, really.", "Bad."]
    (tmp_path / "c.tsv").write_text('text\tid\nA "quote that is never closed\t1\nTwo\u2028lines.\t2\n')
    assert read(tmp_path / "c.tsv")[0] == ['A "quote that is never closed', "Two\u2028lines."]
    assert [each.place for each in read_documents(tmp_path / "c.tsv")] == ["line 2", "line 3"]
    (tmp_path / "e.csv").write_text("text;a,b,c\nOne, really;1\nTwo;2\n")  # more commas in the header than delimiters
    assert read(tmp_path / "e.csv")[0] == ["One, really", "Two"]
    (tmp_path / "f.csv").write_text("sep=;\nid;text\n1;One, really\n2;Two\n")  # for Excel
    assert read(tmp_path / "f.csv")[0] == ["One, really", "Two"]
    with pytest.raises(ValueError, match=r"none of the columns text.*there are: label, review.*text_column="):
        read(tmp_path / "b.csv")
    monkeypatch.setattr("hornbook.data.sources.BLOCK_BYTES", 3)
    assert read(tmp_path / "a.csv") == (texts, problems)
    with gzip.open(tmp_path / "d.csv.gz", "wb") as file:
        file.write((tmp_path / "a.csv").read_bytes())
    assert read(tmp_path / "d.csv.gz")[0] == texts


def test_surplus_delimiters_are_part_of_the_text(tmp_path):
    (tmp_path / "a.csv").write_text("text\nOne, two, three.\nFour.\n")
    assert read(tmp_path / "a.csv") == (["One, two, three.", "Four."], {"kept_bad_row": 1})
    (tmp_path / "b.tsv").write_text("id\ttext\tlabel\n1\tOne\ttwo.\tgood\n2\tThree.\tbad\t\n")
    assert read(tmp_path / "b.tsv") == (["One\ttwo.", "Three."], {"kept_bad_row": 1})


@pytest.mark.parametrize("record_characters", [1 << 20, 1000])
def test_an_unclosed_quote_affects_only_its_own_row(tmp_path, monkeypatch, record_characters):
    monkeypatch.setattr(csv_dialect, "RECORD_CHARACTERS", record_characters)
    monkeypatch.setattr(readers, "PART_CHARACTERS", 100)  # of the beginning in which quotes are detected
    (tmp_path / "a.csv").write_text('text\nOne.\n"Two.\n' + "More text.\n" * 1000)
    texts, problems = read(tmp_path / "a.csv")
    assert texts == ["One.", "Two.", *["More text."] * 1000]
    assert problems == {"bad_quotes": 1}


def test_a_line_that_is_too_long_ends_a_table(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "LINE_CHARACTERS", 1000)
    (tmp_path / "a.csv").write_text("text\nOne.\n" + "long " * 300_000)
    monkeypatch.setattr(readers, "SAMPLE_LINES", 2)
    assert read(tmp_path / "a.csv") == (["One."], {"unreadable": 1})


@pytest.mark.parametrize("encoding", ["cp949", "utf-16"])
@pytest.mark.parametrize("suffix", [".txt", ".csv"])
def test_a_file_in_another_encoding_is_decoded(tmp_path, monkeypatch, suffix, encoding):
    """Also if a character is at the end of a block and if the file begins with ASCII."""
    korean = "한국어 위키백과는 한국어로 운영되는 백과사전이다"
    path = tmp_path / f"a{suffix}"
    path.write_bytes((f"text\n{korean}\n" * 20).encode(encoding))
    problems = Problems()
    text = "\n".join(document.text for document in read_documents(path, problems=problems))
    assert text.count(korean) == 20 and "\ufffd" not in text
    assert problems.to_dict()["other_encoding"]["examples"] == [{"file": str(path), "detail": encoding}]
    monkeypatch.setattr("hornbook.data.sources.BLOCK_BYTES", 61)
    assert "\n".join(document.text for document in read_documents(path)) == text


def test_json_lines_in_another_encoding_are_decoded(tmp_path):
    """As a program on a Korean Windows writes them."""
    korean = "한국어 위키백과는 한국어로 운영되는 백과사전이다"
    (tmp_path / "a.jsonl").write_bytes((f'{{"text": "{korean}"}}\n' * 3).encode("cp949"))
    assert read(tmp_path / "a.jsonl") == ([korean] * 3, {"other_encoding": 1})


def test_damaged_utf8_stays_utf8(tmp_path):
    (tmp_path / "a.txt").write_bytes("한국어 ".encode() * 100 + b"\xc7\xd1\xb1\xb9" * 20)
    texts, problems = read(tmp_path / "a.txt")
    assert texts[0].startswith("한국어") and "\ufffd" in texts[0] and problems.keys() == {"invalid_utf8"}


def test_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    texts = [f"Text {number}." for number in range(600)]
    texts[3], texts[5] = None, " "
    table = pyarrow.table({"id": range(600), "text": texts})
    parquet.write_table(table, path, row_group_size=100)
    found, counts = read(path)
    assert found == [text for text in texts if text and text.strip()]
    assert counts == {"null_text": 1, "empty_document": 1}
    reader = FileReader(path, text_column="id")
    assert {item.kind for item in reader} == {"text_not_string"}
    assert reader.bytes_read == path.stat().st_size
    (problem,) = FileReader(path, text_column="body")
    assert problem.kind == "no_text_column" and problem.count == 600 and "id, text" in problem.detail


@pytest.mark.parametrize("kind", ["string", "large_string", "binary", "dictionary", "string_view"])
def test_parquet_kinds_of_text(tmp_path, kind):
    values = pyarrow.array(["One é.", None, "Two."])
    if kind == "dictionary":
        values = values.dictionary_encode()
    else:
        values = values.cast(getattr(pyarrow, kind)())
    parquet.write_table(pyarrow.table({"text": values}), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == (["One é.", "Two."], {"null_text": 1})


def test_parquet_text_that_is_not_utf8(tmp_path):
    values = pyarrow.array([b"bad \xff", b"good"]).view(pyarrow.string())
    parquet.write_table(pyarrow.table({"text": values}), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == (["bad \ufffd", "good"], {"invalid_utf8": 1})


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_a_truncated_file_gives_what_it_holds(tmp_path, suffix):
    generator = random.Random(1)
    data = "".join(f"Document {generator.random()}.\n\n" for _ in range(100_000)).encode()
    path = tmp_path / f"a.txt{suffix}"
    if suffix == ".zst":
        zstandard(path, data)
    else:
        path.write_bytes(gzip.compress(data, 1) if suffix == ".gz" else lzma.compress(data, preset=0))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    problems = Problems()
    texts = [document.text for document in read_documents(path, problems=problems)]
    assert len(texts) > 30_000
    assert texts[:-1] == data.decode().split("\n\n")[: len(texts) - 1]
    entry = problems.to_dict()["unreadable"]
    assert entry["count"] == 1 and entry["examples"][0]["file"] == str(path) and entry["examples"][0]["detail"]


@pytest.mark.parametrize("name", ["a.txt.gz", "a.jsonl.xz", "a.txt.zst", "a.parquet"])
def test_a_file_whose_content_does_not_match_its_name(tmp_path, name):
    (tmp_path / name).write_bytes(b"plain bytes and nothing else" * 10)
    (tmp_path / "b.txt").write_text("Good.")
    assert read(tmp_path) == (["Good."], {"unreadable": 1})


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le"])
def test_utf16_is_named_in_the_error(tmp_path, encoding):
    (tmp_path / "a.jsonl").write_bytes('{"text": "Text."}'.encode(encoding))
    with pytest.raises(ValueError, match="UTF-16"):
        read(tmp_path / "a.jsonl")


def test_folders(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "z.txt").write_text("B.")
    (tmp_path / "a.jsonl").write_text('{"text": "A."}')
    (tmp_path / "c.TXT").write_text("C.")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "notes.docx").write_text("no")
    (tmp_path / "b" / "loop").symlink_to(tmp_path, target_is_directory=True)
    assert read(tmp_path) == (["A.", "B.", "C."], {"unknown_extension": 1, "empty_file": 1})


def test_what_cannot_be_read_at_all_is_one_sentence(tmp_path):
    (tmp_path / "a.docx").write_text("no")
    (tmp_path / "a.txt").write_text(" ")
    with pytest.raises(ValueError, match=r"\.txt, \.jsonl, .* and \.parquet"):
        read(tmp_path / "a.docx")
    with pytest.raises(ValueError, match="does not exist"):
        read(tmp_path / "nothing.txt")
    with pytest.raises(ValueError, match="no document could be read"):
        read(tmp_path / "a.txt")
    odd = tmp_path / os.fsdecode(b"odd \xff.txt")
    odd.write_text("Text.")
    with pytest.raises(ValueError, match="with a UTF-8 name"):
        read(odd)
    with pytest.raises(ValueError, match="at least one"):
        read([])
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match="no text files"):
        read(tmp_path / "folder")


def test_several_zstandard_frames_in_a_file(tmp_path):
    for name, text in (("a", "One.\n\n"), ("b", "Two.\n")):
        zstandard(tmp_path / f"{name}.zst", text.encode())
    path = tmp_path / "both.txt.zst"
    path.write_bytes((tmp_path / "a.zst").read_bytes() + (tmp_path / "b.zst").read_bytes())
    assert read(path) == (["One.", "Two."], {})
