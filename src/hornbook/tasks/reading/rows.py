"""Tables as lists of rows, out of CSV, TSV, JSON lines, JSON, Parquet or what is already in memory."""

import csv
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hornbook.tasks.reading.content import LIST_OF_DATA, JsonReader, decoded, read_text, without_surrogates
from hornbook.tasks.reading.notes import Notes

FORMATS = (".csv", ".tsv", ".jsonl", ".json", ".parquet")
BLANK = ("bad_row", "the line is blank")


@dataclass(slots=True)
class Row:
    """The fields by column; for a row that could not be read, none, and the kind of problem and its detail."""

    place: str
    fields: dict[str, Any] = field(default_factory=dict)
    broken: tuple[str, str] | None = None


@dataclass(slots=True)
class Table:
    file: str
    columns: list[str]
    rows: list[Row]

    def values(self, column: str) -> list[Any]:
        return [row.fields.get(column) for row in self.rows if row.broken is None]

    def need(self, column: str, what: str) -> None:
        if not self.columns:
            raise ValueError(f"{self.file} is empty: check the file, or give another")
        if column not in self.columns:
            there = ", ".join(self.columns[:30])
            raise ValueError(
                f"{self.file} has no column '{column}' for the {what}; its columns are: {there}. "
                f"Name the right one with {what}="
            )


def read_table(path: Path, notes: Notes) -> Table:
    notes.tables.append(_table_in(path, notes))
    return notes.tables[-1]


def _table_in(path: Path, notes: Notes) -> Table:
    kind = path.suffix.lower()
    if kind not in FORMATS:
        raise ValueError(f"{path} is of no known kind: write it as one of {', '.join(FORMATS)}")
    if kind == ".parquet":
        return read_parquet(path, notes)
    text = read_text(path, notes)
    if kind == ".jsonl":
        return json_lines(text, str(path), notes)
    if kind == ".json":
        is_list = text.lstrip().startswith("[") or LIST_OF_DATA.search(text[:2000])
        return json_list(text, str(path), notes) if is_list else json_lines(text, str(path), notes)
    if kind == ".tsv":
        return read_tsv(text, str(path), notes)
    return table_of(csv_records(text, ",", str(path), notes), str(path))


def read_tsv(text: str, file: str, notes: Notes) -> Table:
    """Quotes are plain characters, as in most TSV files, unless they make sense as marks in the whole of this one."""
    if _quotes_are_marks(text):
        notes.say(f"{file}: fields are in quotes, which were taken off")
        return table_of(csv_records(text, "\t", file, notes), file)
    return table_of(plain_records(text), file)


def plain_records(text: str) -> Iterator[tuple[str, list[str]]]:
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        yield f"line {number}", line.split("\t") if line else []


def _quotes_are_marks(text: str) -> bool:
    if '\t"' not in text and '\n"' not in text and not text.startswith('"'):
        return False
    try:
        lengths = {len(record) for record in csv.reader(_lines(text), delimiter="\t", strict=True) if record}
    except csv.Error:
        return False
    return len(lengths) == 1


def _lines(text: str) -> list[str]:
    """With their ends, and cut at line feeds only: texts hold other characters that Python counts as line ends."""
    lines = [line + "\n" for line in text.split("\n")]
    return lines[:-1] if lines[-1] == "\n" else lines


def csv_records(text: str, delimiter: str, file: str, notes: Notes) -> Iterator[tuple[str, list[str]]]:
    lines, start, bad_line = _lines(text), 0, 0
    limit = csv.field_size_limit(1 << 30)
    try:
        while start < len(lines):
            # Within an open quote all that was read before is forgotten, so that a record which is open at the end of
            # its line, on the way to a line where another one broke, would break there too: it is not followed again.
            last = start + 1 if start < bad_line else len(lines)
            reader = csv.reader((lines[i] for i in range(start, last)), delimiter=delimiter, strict=True)
            done = 0
            try:
                for record in reader:
                    yield f"line {start + done + 1}", record
                    done = reader.line_num
                start += done
            except csv.Error as error:
                # Only this line is doubtful: an open quote must not swallow the rows after it.
                bad_line = max(bad_line, start + reader.line_num - 1)
                start += done
                place = f"line {start + 1}"
                notes.problem("bad_quotes", file, place, str(error))
                yield place, next(csv.reader([lines[start].rstrip("\n")], delimiter=delimiter))
                start += 1
    finally:
        csv.field_size_limit(limit)


def table_of(
    records: Iterable[tuple[str, list[str]]], file: str, names: Sequence[str] = (), header_has: str = ""
) -> Table:
    """A table whose first record names the columns; with `names` it does so only if `header_has` is among them."""
    records = iter(records)
    first = next(records, ("line 1", []))
    columns = [name.strip() for name in first[1]]
    rows = []
    if names and header_has not in columns:
        columns = list(names)
        rows.append(_row(columns, *first))
    if len(set(columns)) < len(columns):
        twice = next(name for name in columns if columns.count(name) > 1)
        raise ValueError(f"{file} has two columns named '{twice}': rename one in its first line")
    rows += [_row(columns, place, fields) for place, fields in records]
    while rows and rows[-1].broken == BLANK:  # the end of the file, and no row
        rows.pop()
    return Table(file, columns, rows)


def _row(columns: list[str], place: str, fields: list[str]) -> Row:
    if not fields and len(columns) == 1:
        fields = [""]
    if not fields:
        return Row(place, broken=BLANK)
    if len(fields) != len(columns):
        return Row(place, broken=("bad_row", f"{len(fields)} fields where there are {len(columns)} columns"))
    return Row(place, dict(zip(columns, fields, strict=True)))


def json_lines(text: str, file: str, notes: Notes) -> Table:
    reader, rows = JsonReader(file, notes), []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        place = f"line {number}"
        try:
            rows.append(object_row(place, reader.value(line, place)))
        except (json.JSONDecodeError, RecursionError) as error:
            if notes.strict:  # later ones must not be raised before it
                notes.problem("bad_json", file, place, str(error)[:200])
            rows.append(Row(place, broken=("bad_json", str(error)[:200])))
    return Table(file, columns_of(rows), rows)


def json_list(text: str, file: str, notes: Notes) -> Table:
    elements = JsonReader(file, notes).elements(text)
    rows = [object_row(f"element {number}", element) for number, element in enumerate(elements, 1)]
    return Table(file, columns_of(rows), rows)


def object_row(place: str, value: Any) -> Row:
    if isinstance(value, dict):
        return Row(place, value)
    return Row(place, broken=("bad_json", f"a {type(value).__name__} and not an object"))


def columns_of(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row.fields))


def read_parquet(path: Path, notes: Notes) -> Table:
    import pyarrow
    from pyarrow import parquet

    notes.files.append(str(path))
    try:
        table = parquet.read_table(path)
        columns = {name: _values(table.column(name), str(path), notes) for name in table.column_names}
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0][:200]
        raise ValueError(f"{path} cannot be read as Parquet ({reason}): write it anew") from None
    records = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return in_memory(records, str(path), notes)


def _values(column: Any, file: str, notes: Notes) -> list[Any]:
    """A Parquet column as Python values. Strings are decoded here, for they may hold what is not UTF-8."""
    import pyarrow

    if pyarrow.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.type not in (pyarrow.string(), pyarrow.large_string()):
        return column.to_pylist()
    found = []
    for number, data in enumerate(column.cast(pyarrow.large_binary()).to_pylist(), 1):
        found.append(data if data is None else decoded(data, file, f"row {number}", notes))
    return found


def in_memory(data: Any, name: str, notes: Notes) -> Table:
    """A list of dictionaries, or a table of pandas, polars, pyarrow or datasets, told by its methods."""
    for method in ("to_pylist", "to_dicts", "to_list"):
        if hasattr(data, method):
            data = getattr(data, method)()
            break
    else:
        data = data.to_dict("records") if hasattr(data, "to_dict") else data
    if not isinstance(data, Iterable) or isinstance(data, str | bytes):
        kind = type(data).__name__
        raise ValueError(f"{name} is a {kind}: give a data frame, a list of dictionaries, or as data a path alone")
    rows = []
    for number, value in enumerate(data, 1):
        row = object_row(f"row {number}", without_surrogates(value, name, notes))
        row.fields = {str(column): _native(cell) for column, cell in row.fields.items()}
        rows.append(row)
    return Table(name, columns_of(rows), rows)


def _native(cell: Any) -> Any:
    """numpy's numbers and arrays as Python's."""
    return cell.tolist() if hasattr(cell, "tolist") else cell


def is_missing(value: Any) -> bool:
    """Nothing there: None, text of white space only, or the not-a-number that data frames have for None."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return True
    return (isinstance(value, float) and math.isnan(value)) or type(value).__name__ in ("NAType", "NaTType")
