"""Reads the tables in CSV, TSV, JSON lines, JSON, Parquet and Excel files, whole or in pieces of rows."""

import contextlib
import json
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from hornbook.data.csv_dialect import (
    DELIMITERS,
    Dialect,
    Record,
    csv_records,
    detected,
    excel_delimiter,
    is_plain,
    plain_records,
)
from hornbook.data.sources import COMPRESSIONS
from hornbook.extras import import_extra
from hornbook.tasks.reading.cells import is_missing
from hornbook.tasks.reading.reader import Reader
from hornbook.tasks.reading.rows import Row, RowTable, columns_of, in_memory, object_row
from hornbook.tasks.reading.text_files import (
    LIST_OF_DATA,
    WHOLE,
    decoded,
    json_elements,
    json_value,
    lines_of,
    read_text,
    text_pieces,
    without_surrogates,
)

TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl", ".json", ".parquet", ".xlsx")
NOT_STREAMED = (".json", ".xlsx")  # one value or archive
PIECE_BYTES = 1 << 24  # of a larger file
PIECE_ROWS = 1_024
BLANK = ("bad_row", "the line is blank")
T = TypeVar("T")


class _OpenTable(NamedTuple):
    """A file whose `rows` are still to be read; `columns` is None where they follow from the rows."""

    rows: Iterable[Row]
    columns: list[str] | None = None
    delimiter: str = ","


def read_table(path: Path, reader: Reader) -> RowTable:
    """The table in a file of one of `TABLE_SUFFIXES`."""
    opened = _open_table(path, reader, WHOLE)
    reader.tables.append(_as_table(path, list(opened.rows), opened))
    return reader.tables[-1]


def table_pieces(path: Path, reader: Reader) -> Iterator[RowTable]:
    """The table in a file as tables of some of its rows, so that memory is bounded. What is detected, such as the
    delimiter, is detected at the beginning of the file."""
    opened = _open_table(path, reader, PIECE_BYTES)
    for rows in _in_pieces(opened.rows):
        yield _as_table(path, rows, opened)


def line_pieces(path: Path, reader: Reader) -> Iterator[list[str]]:
    """The lines of a text file, some of them at a time."""
    return _in_pieces(lines_of(path, reader, PIECE_BYTES))


def _in_pieces(items: Iterable[T]) -> Iterator[list[T]]:
    items = iter(items)
    while piece := list(islice(items, PIECE_ROWS)):
        yield piece


def is_streamed(path: Path) -> bool:
    """Whether a file is so large that it is read in pieces, and can be."""
    return path.suffix.lower() not in NOT_STREAMED and path.stat().st_size > PIECE_BYTES


def read_plain_table(path: Path, reader: Reader, column_names: Sequence[str], header_has: str) -> RowTable:
    """A tab-separated table whose quotes are ordinary characters. The first line is the header only if it contains
    `header_has`; otherwise the columns are `column_names`."""
    opened = _with_header(plain_records(lines_of(path, reader)), path, column_names, header_has)
    reader.tables.append(_as_table(path, list(opened.rows), opened))
    return reader.tables[-1]


def _as_table(path: Path, rows: list[Row], opened: _OpenTable) -> RowTable:
    columns = columns_of(rows) if opened.columns is None else opened.columns
    return RowTable(str(path), columns, rows, opened.delimiter)


def _open_table(path: Path, reader: Reader, num_bytes: int) -> _OpenTable:
    suffix = path.suffix.lower()
    if suffix not in TABLE_SUFFIXES:
        if suffix.startswith((".conll", ".bio", ".iob")):
            raise ValueError(f"{path} looks like a column file of words and tags: read it with task='tagging'")
        if suffix == ".txt":
            raise ValueError(
                f"{path} could be of several formats: rename a table separated by tabs to .tsv, or name the task, such "
                "as task='tagging' for a word and its tag on each line (to pre-train on plain text, build a corpus)"
            )
        if suffix in COMPRESSIONS:
            raise ValueError(
                f"{path} is compressed: decompress it first (only the texts of a corpus may be compressed)"
            )
        raise ValueError(f"{path} has an unknown format: convert it to one of {', '.join(TABLE_SUFFIXES)}")
    if suffix == ".parquet":
        return _OpenTable(_parquet_rows(path, reader))
    if suffix == ".xlsx":
        return _open_excel(path, reader)
    if suffix == ".jsonl":
        return _OpenTable(_json_rows(lines_of(path, reader, num_bytes), str(path), reader))
    if suffix == ".json":
        text = read_text(path, reader)
        if not text.lstrip().startswith("[") and not LIST_OF_DATA.search(text[:2000]):
            return _OpenTable(_json_rows(text.split("\n"), str(path), reader))
        elements = enumerate(json_elements(text, str(path), reader), 1)
        return _OpenTable([object_row(f"element {number}", value) for number, value in elements])
    return _open_delimited(path, suffix, reader, num_bytes)


# ---- CSV and TSV


def _open_delimited(path: Path, suffix: str, reader: Reader, num_bytes: int) -> _OpenTable:
    pieces = text_pieces(path, reader, num_bytes)
    first, second = next(pieces, ""), next(pieces, "")
    line, _, rest = first.partition("\n")
    for_excel = excel_delimiter(line)
    sample, is_truncated = rest if for_excel else first, bool(second)
    dialect, has_no_quotes = _dialect_of(sample, suffix, for_excel, str(path), reader, is_truncated)

    def note_bad_quotes(place: str, error: str) -> None:
        reader.add_problem("bad_quotes", str(path), place, error)

    lines = (line for text in chain((first, second), pieces) if text for line in text.removesuffix("\n").split("\n"))
    records = plain_records(lines) if has_no_quotes else csv_records(lines, dialect, note_bad_quotes)
    if for_excel:
        next(records)
    return _with_header(records, path, delimiter=dialect.delimiter)


def _dialect_of(
    text: str, suffix: str, for_excel: str, file: str, reader: Reader, is_truncated: bool
) -> tuple[Dialect, bool]:
    """The dialect of a .csv or .tsv file, which is logged if it is not the default of the suffix, and whether quotes
    are ordinary characters. `text` starts with the header and, with `is_truncated`, is only the beginning of the file.
    `for_excel` is the delimiter that the file names."""
    requested = reader.delimiter
    default = Dialect("\t" if suffix == ".tsv" else ",")
    header = text.partition("\n")[0]
    if (
        requested is not None
        and requested not in header
        and (others := [each for each in DELIMITERS if each in header])
    ):
        raise ValueError(
            f"the first line of {file} has no {Dialect(requested).described()}: leave out delimiter=, or give the one "
            f"that it has ({' or '.join(DELIMITERS[each] for each in others)})"
        )
    dialect = detected(text, requested or for_excel or default.delimiter, is_given=requested is not None)
    if dialect != default and requested is None:
        reader.log(f"{file}: {dialect.described()} (detected; delimiter= overrides it)")
    has_no_quotes = is_plain(text, suffix, dialect, is_truncated)
    if suffix == ".tsv" and dialect == default and not has_no_quotes:
        reader.log(f"{file}: fields are quoted; the quotes were removed")
    return dialect, has_no_quotes


def _with_header(
    records: Iterator[Record], path: Path, names: Sequence[str] = (), header_has: str = "", delimiter: str = "\t"
) -> _OpenTable:
    """A table from records. The first record is the header; with `names`, it is a header only if it contains
    `header_has`, otherwise the columns are `names`."""
    first = next(records, ("line 1", []))
    columns = [name.strip() for name in first[1]]
    if names and header_has not in columns:
        columns, records = list(names), chain([first], records)
    unnamed = [index for index, name in enumerate(columns) if not name]
    if len(unnamed) > 1:
        records = _without_fields(records, unnamed, len(columns), path)
        columns = [name for name in columns if name]
    if len(set(columns)) < len(columns):
        repeated = next(name for name in columns if columns.count(name) > 1)
        raise ValueError(f"{path} has two columns named '{repeated}': rename one in its first line")
    return _OpenTable(_rows(records, columns), columns, delimiter)


def _without_fields(records: Iterator[Record], unnamed: list[int], width: int, path: Path) -> Iterator[Record]:
    """Leaves out the columns without a name, which separators at the end of each line make; they must be empty."""
    for place, fields in records:
        if len(fields) == width:
            if any(fields[index].strip() for index in unnamed):
                raise ValueError(f"{path} has {len(unnamed)} columns without a name: name them in its first line")
            fields = [field for index, field in enumerate(fields) if index not in unnamed]
        yield place, fields


def _rows(records: Iterable[Record], columns: list[str]) -> Iterator[Row]:
    blank_rows: list[Row] = []  # at the end of the file they are no rows
    for place, fields in records:
        row = _row(columns, place, fields)
        if row.defect == BLANK:
            blank_rows.append(row)
            continue
        yield from blank_rows
        blank_rows.clear()
        yield row


def _row(columns: list[str], place: str, fields: list[str]) -> Row:
    if not fields and len(columns) == 1:
        fields = [""]
    if not fields:
        return Row(place, defect=BLANK)
    if len(fields) != len(columns):
        detail = f"{len(fields)} fields, expected {len(columns)}"
        return Row(place, defect=("bad_row", detail), cells=fields)
    return Row(place, dict(zip(columns, fields, strict=True)))


# ---- JSON lines, Parquet and Excel


def _json_rows(lines: Iterable[str], file: str, reader: Reader) -> Iterator[Row]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        place = f"line {number}"
        try:
            yield object_row(place, json_value(line, file, reader))
        except (json.JSONDecodeError, RecursionError) as error:
            if reader.strict:  # raise now, before the problems of later lines
                reader.add_problem("bad_json", file, place, str(error)[:200])
            yield Row(place, defect=("bad_json", str(error)[:200]))


def _parquet_rows(path: Path, reader: Reader) -> Iterator[Row]:
    from pyarrow import parquet

    reader.files.append(str(path))
    first_row = 1
    with _refusing_bad_parquet(path), parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(PIECE_ROWS):
            columns = [_values(column, str(path), reader, first_row) for column in batch.columns]
            cells = zip(*columns, strict=True)
            records = [dict(zip(batch.schema.names, row, strict=True)) for row in cells]
            yield from in_memory(records, str(path), reader, first_row).rows
            first_row += batch.num_rows


def _values(column: Any, file: str, reader: Reader, first_row: int) -> list[Any]:
    """A Parquet column as Python values. Strings are decoded here, as they may contain invalid UTF-8."""
    import pyarrow

    if pyarrow.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.type not in (pyarrow.string(), pyarrow.large_string()):
        return column.to_pylist()
    return [
        data if data is None else decoded(data, file, f"row {number}", reader)
        for number, data in enumerate(column.cast(pyarrow.large_binary()).to_pylist(), first_row)
    ]


@contextlib.contextmanager
def _refusing_bad_parquet(path: Path) -> Iterator[None]:
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0][:200]
        raise ValueError(f"{path} cannot be read as Parquet ({reason}): write the file again") from None


def _open_excel(path: Path, reader: Reader) -> _OpenTable:
    """The table in the first sheet; its first non-empty row is the header."""
    openpyxl = import_extra("openpyxl", "excel", f"{path} needs")
    reader.files.append(str(path))
    try:
        with contextlib.closing(openpyxl.load_workbook(path, read_only=True, data_only=True)) as book:
            if not book.worksheets:
                raise ValueError("it has no sheet with cells")
            sheet = book.worksheets[0]
            cells = list(sheet.iter_rows(values_only=True))
    except (zipfile.BadZipFile, openpyxl.utils.exceptions.InvalidFileException, OSError, KeyError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as Excel ({error}): save it again as .xlsx, or as .csv") from None
    if len(book.worksheets) > 1:
        reader.log(f"{path}: read sheet '{sheet.title}', the first of {len(book.worksheets)}")
    records = [(f"row {number}", list(row)) for number, row in enumerate(cells, 1)]
    while records and all(map(is_missing, records[-1][1])):
        records.pop()
    header = next((index for index, (_, row) in enumerate(records) if not all(map(is_missing, row))), 0)
    return _open_sheet(records[header:], path, reader)


def _open_sheet(records: list[tuple[str, list[Any]]], path: Path, reader: Reader) -> _OpenTable:
    names = ["" if is_missing(cell) else str(cell) for cell in records[0][1]] if records else []
    used = [index for index, name in enumerate(names) if name]
    opened = _with_header(iter([("", [names[index] for index in used])]), path)
    rows = []
    for place, cells in records[1:]:
        fields = {name: cells[i] if i < len(cells) else None for name, i in zip(opened.columns, used, strict=True)}
        if all(map(is_missing, fields.values())):
            rows.append(Row(place, defect=("bad_row", "the row is blank")))
        else:
            rows.append(Row(place, without_surrogates(fields, str(path), reader)))
    return opened._replace(rows=rows)
