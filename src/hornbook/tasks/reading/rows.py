"""Reads tables as lists of rows from CSV, TSV, JSON lines, JSON, Parquet, Excel or data in memory."""

import contextlib
import json
import math
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hornbook.data.detection import DELIMITERS, Dialect, csv_records, detected, is_plain, plain_records
from hornbook.extras import import_extra
from hornbook.tasks.reading.content import LIST_OF_DATA, JsonReader, decoded, read_text, without_surrogates
from hornbook.tasks.reading.notes import Defect, Notes

FORMATS = (".csv", ".tsv", ".jsonl", ".json", ".parquet", ".xlsx")
BLANK = ("bad_row", "the line is blank")


@dataclass(slots=True)
class Row:
    """`fields`: cell by column. A row that could not be read has no fields, and `broken` is (kind of problem, detail).
    `cells`: the raw cells of a row with the wrong number of fields; after `RowTable.repair`, `note` is the defect."""

    place: str
    fields: dict[str, Any] = field(default_factory=dict)
    broken: Defect | None = None
    cells: list[str] = field(default_factory=list)
    note: str = ""


@dataclass(slots=True)
class RowTable:
    file: str
    columns: list[str]
    rows: list[Row]
    delimiter: str = ","

    @property
    def names(self) -> str:
        """The columns for a message: at most 30, each cut after 60 characters."""
        return ", ".join(name if len(name) <= 60 else f"{name[:60]}..." for name in self.columns[:30]) or "none"

    def named(self, names: Iterable[str]) -> list[str]:
        """The columns that have one of these lower-case names in any case, in the order of `names`."""
        by_name = {column.lower(): column for column in self.columns}
        return [by_name[name] for name in names if name in by_name]

    def values(self, column: str) -> list[Any]:
        return [row.fields.get(column) for row in self.rows if row.broken is None]

    def repair(self, text: str | None) -> list[Row]:
        """Repairs rows with the wrong number of fields where possible and returns them: missing fields at the end are
        empty, and surplus delimiters are taken as part of the column `text`, if given."""
        repaired = []
        for row in self.rows:
            num_extra = len(row.cells) - len(self.columns)
            if not row.broken or not row.cells or (num_extra > 0 and text is None):
                continue
            cells = [*row.cells, *[""] * -num_extra]
            if num_extra > 0:
                first = self.columns.index(text)
                last = first + num_extra + 1
                cells = [*cells[:first], self.delimiter.join(cells[first:last]), *cells[last:]]
            row.fields, row.note, row.broken = dict(zip(self.columns, cells, strict=True)), row.broken[1], None
            repaired.append(row)
        return repaired

    def require(self, column: str, role: str) -> None:
        if not self.columns:
            raise ValueError(f"{self.file} is empty: check the file, or give another")
        if column not in self.columns:
            raise ValueError(
                f"{self.file} has no column '{column}' for the {role}; name the right one with {role}= "
                f"(columns: {self.names})"
            )


def read_table(path: Path, notes: Notes) -> RowTable:
    """The table in a file of one of `FORMATS`."""
    notes.tables.append(_table_in(path, notes))
    return notes.tables[-1]


def read_plain_table(path: Path, notes: Notes, unnamed: Sequence[str], header_has: str) -> RowTable:
    """A tab-separated table whose quotes are ordinary characters; see `table_of`."""
    notes.tables.append(table_of(plain_records(read_text(path, notes)), str(path), unnamed, header_has))
    return notes.tables[-1]


def _table_in(path: Path, notes: Notes) -> RowTable:
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        if suffix.startswith((".conll", ".bio", ".iob")):
            raise ValueError(f"{path} looks like a column file of words and tags: read it with task='tagging'")
        raise ValueError(f"{path} has an unknown format: convert it to one of {', '.join(FORMATS)}")
    if suffix == ".parquet":
        return _parquet_table(path, notes)
    if suffix == ".xlsx":
        return _excel_table(path, notes)
    text = read_text(path, notes)
    if suffix == ".json" and (text.lstrip().startswith("[") or LIST_OF_DATA.search(text[:2000])):
        elements = JsonReader(str(path), notes).elements(text)
        rows = [object_row(f"element {number}", value) for number, value in enumerate(elements, 1)]
        return RowTable(str(path), columns_of(rows), rows)
    if suffix in (".jsonl", ".json"):
        return json_lines(text, str(path), notes)
    dialect, has_no_quotes = dialect_of(text, suffix, str(path), notes)
    records = plain_records(text) if has_no_quotes else csv_records(text, dialect, bad_quotes_noted(str(path), notes))
    table = table_of(records, str(path))
    table.delimiter = dialect.delimiter
    return table


def dialect_of(text: str, suffix: str, file: str, notes: Notes, is_truncated: bool = False) -> tuple[Dialect, bool]:
    """The dialect of a .csv or .tsv file, which is logged if it is not the default of the suffix, and whether quotes
    are ordinary characters. With `is_truncated`, the text is the beginning of the file."""
    requested = notes.format.delimiter
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
    dialect = detected(text, requested or default.delimiter, is_given=requested is not None)
    if dialect != default and requested is None:
        notes.log(f"{file}: {dialect.described()} (detected; delimiter= overrides it)")
    has_no_quotes = is_plain(text, suffix, dialect, is_truncated)
    if suffix == ".tsv" and dialect == default and not has_no_quotes:
        notes.log(f"{file}: fields are quoted; the quotes were removed")
    return dialect, has_no_quotes


def bad_quotes_noted(file: str, notes: Notes) -> Callable[[str, str], None]:
    return lambda place, error: notes.problem("bad_quotes", file, place, error)


def table_of(
    records: Iterable[tuple[str, list[str]]], file: str, names: Sequence[str] = (), header_has: str = ""
) -> RowTable:
    """A table from records. The first record is the header; with `names`, it is a header only if it contains
    `header_has`, otherwise the columns are `names`."""
    records = iter(records)
    first = next(records, ("line 1", []))
    columns = [name.strip() for name in first[1]]
    rows = []
    if names and header_has not in columns:
        columns = list(names)
        rows.append(_row(columns, *first))
    if len(set(columns)) < len(columns):
        repeated = next(name for name in columns if columns.count(name) > 1)
        raise ValueError(f"{file} has two columns named '{repeated}': rename one in its first line")
    rows += [_row(columns, place, fields) for place, fields in records]
    while rows and rows[-1].broken == BLANK:  # blank lines at the end of the file are not rows
        rows.pop()
    return RowTable(file, columns, rows)


def _row(columns: list[str], place: str, fields: list[str]) -> Row:
    if not fields and len(columns) == 1:
        fields = [""]
    if not fields:
        return Row(place, broken=BLANK)
    if len(fields) != len(columns):
        detail = f"{len(fields)} fields, expected {len(columns)}"
        return Row(place, broken=("bad_row", detail), cells=fields)
    return Row(place, dict(zip(columns, fields, strict=True)))


def json_lines(text: str, file: str, notes: Notes, first_line: int = 1) -> RowTable:
    reader, rows = JsonReader(file, notes), []
    for number, line in enumerate(text.split("\n"), first_line):
        if not line.strip():
            continue
        place = f"line {number}"
        try:
            rows.append(object_row(place, reader.value(line, place)))
        except (json.JSONDecodeError, RecursionError) as error:
            if notes.strict:  # raise now, before the problems of later lines
                notes.problem("bad_json", file, place, str(error)[:200])
            rows.append(Row(place, broken=("bad_json", str(error)[:200])))
    return RowTable(file, columns_of(rows), rows)


def object_row(place: str, value: Any) -> Row:
    if isinstance(value, dict):
        return Row(place, value)
    return Row(place, broken=("bad_json", f"a {type(value).__name__}, not an object"))


def columns_of(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row.fields))


def _parquet_table(path: Path, notes: Notes) -> RowTable:
    from pyarrow import parquet

    notes.files.append(str(path))
    with refusing_bad_parquet(path):
        return arrow_rows(parquet.read_table(path), str(path), notes)


@contextlib.contextmanager
def refusing_bad_parquet(path: Path) -> Iterator[None]:
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0][:200]
        raise ValueError(f"{path} cannot be read as Parquet ({reason}): write the file again") from None


def arrow_rows(table: Any, file: str, notes: Notes, first_row: int = 1) -> RowTable:
    """The rows of an Arrow table, which starts at `first_row` of a file."""
    columns = {name: _values(table.column(name), file, notes, first_row) for name in table.column_names}
    records = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return in_memory(records, file, notes, first_row)


def _excel_table(path: Path, notes: Notes) -> RowTable:
    """The table in the first sheet; its first non-empty row is the header."""
    openpyxl = import_extra("openpyxl", "excel", f"{path} needs")
    notes.files.append(str(path))
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        sheet = book.worksheets[0]
        cells = list(sheet.iter_rows(values_only=True))
    except (zipfile.BadZipFile, openpyxl.utils.exceptions.InvalidFileException, OSError, KeyError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as Excel ({error}): save it again as .xlsx, or as .csv") from None
    if len(book.worksheets) > 1:
        notes.log(f"{path}: read sheet '{sheet.title}', the first of {len(book.worksheets)}")
    records = [(f"row {number}", list(row)) for number, row in enumerate(cells, 1)]
    while records and all(map(is_missing, records[-1][1])):
        records.pop()
    header = next((index for index, (_, row) in enumerate(records) if not all(map(is_missing, row))), 0)
    return _sheet_table(records[header:], str(path), notes)


def _sheet_table(records: list[tuple[str, list[Any]]], file: str, notes: Notes) -> RowTable:
    names = ["" if is_missing(cell) else str(cell) for cell in records[0][1]] if records else []
    used = [index for index, name in enumerate(names) if name]
    table = table_of([("", [names[index] for index in used])], file)
    for place, cells in records[1:]:
        fields = {name: cells[i] if i < len(cells) else None for name, i in zip(table.columns, used, strict=True)}
        if all(map(is_missing, fields.values())):
            table.rows.append(Row(place, broken=("bad_row", "the row is blank")))
        else:
            table.rows.append(Row(place, without_surrogates(fields, file, notes)))
    return table


def _values(column: Any, file: str, notes: Notes, first_row: int) -> list[Any]:
    """A Parquet column as Python values. Strings are decoded here, as they may contain invalid UTF-8."""
    import pyarrow

    if pyarrow.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.type not in (pyarrow.string(), pyarrow.large_string()):
        return column.to_pylist()
    return [
        data if data is None else decoded(data, file, f"row {number}", notes)
        for number, data in enumerate(column.cast(pyarrow.large_binary()).to_pylist(), first_row)
    ]


def in_memory(data: Any, name: str, notes: Notes, first_row: int = 1) -> RowTable:
    """A table from a list of dictionaries or a table of pandas, polars, pyarrow, datasets or any other that gives its
    columns as an Arrow stream, recognised by its methods."""
    if hasattr(data, "collect") and not hasattr(data, "to_dicts"):  # a lazy frame
        data = data.collect()
    for method in ("to_pylist", "to_dicts", "to_list"):
        if hasattr(data, method):
            data = getattr(data, method)()
            break
    else:
        if hasattr(data, "to_dict"):
            data = data.to_dict("records")
        elif hasattr(data, "__arrow_c_stream__"):
            import pyarrow

            data = pyarrow.table(data).to_pylist()
    if not isinstance(data, Iterable) or isinstance(data, str | bytes):
        kind = type(data).__name__
        raise ValueError(f"{name} is a {kind}: give a data frame, a list of dictionaries, or a single path as data")
    rows = []
    for number, value in enumerate(data, first_row):
        row = object_row(f"row {number}", without_surrogates(value, name, notes))
        row.fields = {str(column): _native(cell) for column, cell in row.fields.items()}
        rows.append(row)
    return RowTable(name, columns_of(rows), rows)


def is_table(data: Any) -> bool:
    """Whether data in memory is a table, not a list or a single column."""
    return hasattr(data, "columns") or hasattr(data, "column_names")


def _native(cell: Any) -> Any:
    """numpy numbers and arrays as Python values."""
    return cell.tolist() if hasattr(cell, "tolist") else cell


def is_missing(value: Any) -> bool:
    """Whether a cell is empty: None, white space only, or the NaN, NA or NaT that data frames use for None."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return True
    return (isinstance(value, float) and math.isnan(value)) or type(value).__name__ in ("NAType", "NaTType")


def is_number(value: Any) -> bool:
    """Whether a cell or label is a finite number, or the text of one."""
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError, OverflowError):
        return False
