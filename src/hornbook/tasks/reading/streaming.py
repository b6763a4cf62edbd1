"""Large files in pieces of rows, so that memory is bounded; each piece is read as a small file is."""

import codecs
from collections.abc import Generator, Iterator
from pathlib import Path

from hornbook.data.csv_dialect import Record, csv_records, plain_records
from hornbook.data.text_encoding import SAMPLE_BYTES, UTF_8, encoding_of
from hornbook.tasks.reading.content import cleaned_text, decoded
from hornbook.tasks.reading.notes import Notes
from hornbook.tasks.reading.rows import (
    FORMATS,
    RowTable,
    arrow_rows,
    bad_quotes_noted,
    dialect_of,
    json_lines,
    refusing_bad_parquet,
    table_of,
)

PIECE_BYTES = 1 << 24
PIECE_ROWS = 8_192  # of a Parquet file
WHOLE = (".json", ".xlsx")  # one value or archive: read at once
Piece = tuple[str, int, bool]  # text, number of its first line, whether more follows


def is_streamed(path: Path, notes: Notes) -> bool:
    """Whether the file is large, and can be cut at line ends."""
    if path.suffix.lower() in WHOLE or path.stat().st_size <= PIECE_BYTES:
        return False
    with open(path, "rb") as opened:
        encoding = notes.format.encoding or encoding_of(opened.read(SAMPLE_BYTES))
    return not codecs.lookup(encoding).name.startswith(("utf-16", "utf-32"))


def line_pieces(path: Path, notes: Notes) -> Iterator[list[str]]:
    """The lines of a text file, including empty ones."""
    for text, _, _ in _text_pieces(path, notes, [0]):
        yield text.removesuffix("\n").split("\n")


def table_pieces(path: Path, notes: Notes) -> Iterator[RowTable]:
    """A CSV, TSV, JSON lines or Parquet file as tables of some of its rows."""
    suffix = path.suffix.lower()
    assert suffix in FORMATS and suffix not in WHOLE
    if suffix == ".parquet":
        yield from _parquet_pieces(path, notes)
    elif suffix == ".jsonl":
        for text, first_line, _ in _text_pieces(path, notes, [0]):
            yield json_lines(text, str(path), notes, first_line)
    else:
        yield from _delimited_pieces(path, suffix, notes)


def _delimited_pieces(path: Path, suffix: str, notes: Notes) -> Iterator[RowTable]:
    header: Record | None = None
    note_bad_quotes = bad_quotes_noted(str(path), notes)
    unread = [0]  # lines of a record that is open at the end of a piece
    for text, first_line, is_truncated in _text_pieces(path, notes, unread):
        if header is None:
            dialect, has_no_quotes = dialect_of(text, suffix, str(path), notes, is_truncated)
        if has_no_quotes:
            records = list(plain_records(text, first_line))
        else:
            # An open quote may be a slip, so only half of a piece is left to the next one.
            may_wait = is_truncated and unread[0] * 2 < text.count("\n")
            records, num_read = _collected(csv_records(text, dialect, note_bad_quotes, first_line, may_wait))
            unread[0] = text.count("\n") - num_read if may_wait else 0
        header = header or records.pop(0)
        table = table_of([header, *records], str(path))
        table.delimiter = dialect.delimiter
        if table.rows:
            yield table


def _collected(records: Generator[Record, None, int]) -> tuple[list[Record], int]:
    collected: list[Record] = []
    while True:
        try:
            collected.append(next(records))
        except StopIteration as end:
            return collected, end.value


def _parquet_pieces(path: Path, notes: Notes) -> Iterator[RowTable]:
    import pyarrow
    from pyarrow import parquet

    notes.files.append(str(path))
    first_row = 1
    with refusing_bad_parquet(path), parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(PIECE_ROWS):
            yield arrow_rows(pyarrow.Table.from_batches([batch]), str(path), notes, first_row)
            first_row += batch.num_rows


def _text_pieces(path: Path, notes: Notes, unread: list[int]) -> Iterator[Piece]:
    """The text of a file in pieces of whole lines, of which the last is not blank. `unread` is set by the caller: how
    many lines of the last piece begin the next one."""
    file, encoding = str(path), notes.format.encoding or _encoding_of(path)
    notes.files.append(file)
    is_utf_8 = codecs.lookup(encoding).name == UTF_8
    if not is_utf_8 and notes.format.encoding is None:
        notes.log(f"{file}: encoding {encoding} (detected; encoding= overrides it)")
    rest, first_line = "", 1
    with open(path, "rb") as opened:
        while data := opened.read(PIECE_BYTES):
            data += opened.readline()
            while data.endswith((b"\n\n", b"\r\n\r\n")) and (more := opened.readline()):
                data += more  # blank lines are dropped only at the end of the file
            is_truncated = bool(opened.peek(1))
            at_line = first_line + rest.count("\n")
            if at_line == 1:
                data = data.removeprefix(codecs.BOM_UTF8)
            text = decoded(data, file, "", notes, at_line) if is_utf_8 else data.decode(encoding, "replace")
            text = rest + cleaned_text(text, file, notes, at_line)
            yield text, first_line, is_truncated
            lines = text.split("\n")
            rest = "\n".join(lines[-unread[0] - 1 :]) if unread[0] else ""
            first_line += len(lines) - 1 - unread[0]


def _encoding_of(path: Path) -> str:
    """As `encoding_of`, of a file that is read in pieces: the encoding of the first one that is not UTF-8."""
    with open(path, "rb") as opened:
        while data := opened.read(PIECE_BYTES):
            if (found := encoding_of(data + opened.readline())) != UTF_8:
                return found
    return UTF_8
