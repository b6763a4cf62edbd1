"""Tables as lists of rows, and their conversion to examples."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hornbook.metrics.formatting import cut
from hornbook.tasks.reading.cells import as_label, is_missing, is_number
from hornbook.tasks.reading.reader import Defect, Reader
from hornbook.tasks.reading.text_files import without_surrogates
from hornbook.tasks.records import Example

E = TypeVar("E", bound=Example)


@dataclass(slots=True)
class Row:
    """`fields`: cell by column. A row that could not be read has no fields, and `defect` is (kind of problem, detail).
    `cells`: the raw cells of a row with the wrong number of fields; `repaired`: the detail of a defect that
    `RowTable.repair` repaired."""

    place: str
    fields: dict[str, Any] = field(default_factory=dict)
    defect: Defect | None = None
    cells: list[str] = field(default_factory=list)
    repaired: str = ""


@dataclass(slots=True)
class RowTable:
    file: str
    columns: list[str]
    rows: list[Row]
    delimiter: str = ","

    @property
    def column_list(self) -> str:
        """The columns for a message: at most 30, each cut after 60 characters."""
        return ", ".join(cut(name, 60) for name in self.columns[:30]) or "none"

    def columns_named(self, names: Iterable[str]) -> list[str]:
        """The columns that have one of these lower-case names in any case, in the order of `names`."""
        by_name = {column.lower(): column for column in self.columns}
        return [by_name[name] for name in names if name in by_name]

    def values(self, column: str) -> list[Any]:
        return [row.fields.get(column) for row in self.rows if row.defect is None]

    def repair(self, text: str | None) -> list[Row]:
        """Repairs rows with the wrong number of fields where possible and returns them: missing fields at the end are
        empty, and surplus delimiters are taken as part of the column `text`, if given."""
        repaired = []
        for row in self.rows:
            num_extra = len(row.cells) - len(self.columns)
            if not row.defect or not row.cells or (num_extra > 0 and text is None):
                continue
            cells = [*row.cells, *[""] * -num_extra]
            if num_extra > 0:
                first = self.columns.index(text)
                last = first + num_extra + 1
                cells = [*cells[:first], self.delimiter.join(cells[first:last]), *cells[last:]]
            row.fields, row.repaired, row.defect = dict(zip(self.columns, cells, strict=True)), row.defect[1], None
            repaired.append(row)
        return repaired

    def require(self, column: str, role: str) -> None:
        if not self.columns:
            raise ValueError(f"{self.file} is empty: check the file, or give another")
        if column not in self.columns:
            raise ValueError(
                f"{self.file} has no column '{column}' for the {role}; name the right one with {role}= "
                f"(columns: {self.column_list})"
            )

    def refuse_objects(self, columns: Iterable[str]) -> None:
        """Raises `ValueError` for the first of the columns whose cells are objects with values of their own."""
        for column in columns:
            names = columns_of([Row("", cell) for cell in self.values(column) if isinstance(cell, dict)])
            if names:
                raise ValueError(
                    f"{self.file}: '{column}' holds objects with {', '.join(names[:10])}, which are not read: move the "
                    'text and the label to the top level of each row, such as {"text": ..., "label": ...}'
                )


def object_row(place: str, value: Any) -> Row:
    if isinstance(value, dict):
        return Row(place, value)
    return Row(place, defect=("bad_json", f"a {type(value).__name__}, not an object"))


def columns_of(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row.fields))


def in_memory(data: Any, name: str, reader: Reader, first_row: int = 1) -> RowTable:
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
        row = object_row(f"row {number}", without_surrogates(value, name, reader))
        row.fields = {
            str(column): cell.tolist() if hasattr(cell, "tolist") else cell  # numbers and arrays of numpy
            for column, cell in row.fields.items()
        }
        rows.append(row)
    if rows and all(row.defect is not None for row in rows):
        raise ValueError(
            f"{name} {rows[0].place} is {rows[0].defect[1].partition(',')[0]}: give a data frame, or a list of "
            "dictionaries such as {'text': 'A charming journey.', 'label': 'good'}"
        )
    return RowTable(name, columns_of(rows), rows)


def is_table(data: Any) -> bool:
    """Whether data in memory is a table, not a list or a single column."""
    return hasattr(data, "columns") or hasattr(data, "column_names")


def convert_rows(
    table: RowTable,
    key: str | None,
    split: str,
    reader: Reader,
    convert: Callable[[Row, str], tuple[E, Defect | None]],
) -> list[E]:
    """The examples of a table with the column `key`. `convert` returns the example of a row with this key, and its
    defect; a row that could not be read has no fields."""
    examples = []
    for index, row in enumerate(table.rows):
        example, defect = convert(row, key_of(row, key, index))
        reader.places[split, example.key] = row.place
        if reader.keep_example(row.defect or defect, split, table.file, row.place):
            examples.append(example)
    return examples


def key_of(row: Row, column: str | None, index: int) -> str:
    value = row.fields.get(column) if column else None
    return str(index) if is_missing(value) else as_label(value)


# ---- columns by their names


KEYS = ("id", "key", "guid", "qid", "annot_id", "idx", "index", "uid", "uuid")  # names of columns of keys


def key_column(table: RowTable, used: Collection[str | None] = ()) -> str | None:
    """The column of the examples' keys, known by its name; `used` columns have another role."""
    return next((name for name in table.columns_named(KEYS) if name not in used), None)


def find_column(
    table: RowTable,
    requested: str | None,
    names: tuple[str, ...],
    role: str,
    *,
    what: str = "",
    may_be_missing: bool = False,
    num_sure: int = 1,
) -> str | None:
    """The requested column, or the column with one of `names`. If the table has several of them, one of the first
    `num_sure` names is preferred; otherwise `ValueError` is raised. `what`: the content of the column, for errors, if
    it is not its role."""
    if requested and (requested in table.columns or not may_be_missing):
        table.require(requested, role)
        return requested
    candidates = [] if requested else table.columns_named(names)
    if len(candidates) > 1 and candidates[0].lower() not in names[:num_sure] and not may_be_missing:
        raise ambiguous_columns_error(table, role, candidates)
    if not candidates and not may_be_missing:
        raise ValueError(
            f"{table.file}: no column for the {what or role} (looked for {', '.join(names)}); name it with {role}= "
            f"(columns: {table.column_list})"
        )
    return candidates[0] if candidates else None


def ambiguous_columns_error(table: RowTable, role: str, candidates: list[str]) -> ValueError:
    return headerless_error(table) or ValueError(
        f"{table.file}: several columns could be the {role} ({', '.join(candidates)}); name one, such as "
        f"{role}={candidates[0]!r}"
    )


def headerless_error(table: RowTable) -> ValueError | None:
    """An error if the names of the columns look like values."""
    if not any(is_number(name) for name in table.columns):
        return None
    return ValueError(
        f"{table.file}: the first row looks like data ({table.column_list}); put a row of column names above it, such "
        "as text, pair, label"
    )
