"""Finds the columns of a table, and converts its rows to examples and its cells to texts and labels."""

import math
import re
from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeVar

from hornbook.tasks.reading.notes import Defect, Notes
from hornbook.tasks.reading.rows import Row, RowTable, is_missing, is_number
from hornbook.tasks.records import Example

KEYS = ("id", "key", "guid", "qid", "annot_id", "idx", "index", "uid", "uuid")  # names of columns of keys
SEPARATORS = "|;,"
COMMA_NUMBER = re.compile(r"[-+]?\d+(,\d+)?")
E = TypeVar("E", bound=Example)


def key_column(table: RowTable, used: Collection[str | None] = ()) -> str | None:
    """The column of the examples' keys, known by its name; `used` columns have another role."""
    return next((name for name in table.columns_named(KEYS) if name not in used), None)


def convert_rows(
    table: RowTable,
    key: str | None,
    split: str,
    notes: Notes,
    convert: Callable[[Row, str], tuple[E, Defect | None]],
) -> list[E]:
    """The examples of a table with the column `key`. `convert` returns the example of a row with this key, and its
    defect; a row that could not be read has no fields."""
    examples = []
    for index, row in enumerate(table.rows):
        example, defect = convert(row, key_of(row, key, index))
        notes.places[split, example.key] = row.place
        if notes.keeps(row.defect or defect, split, table.file, row.place):
            examples.append(example)
    return examples


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


def are_withheld(cells: list[Any]) -> bool:
    """Whether the labels of a test split are not published: they are empty or -1 in all rows."""
    return all(is_missing(cell) or str(cell) in ("-1", "-1.0") for cell in cells)


def key_of(row: Row, column: str | None, index: int) -> str:
    value = row.fields.get(column) if column else None
    return str(index) if is_missing(value) else as_label(value)


def as_text(value: Any) -> str:
    return "" if is_missing(value) else value if isinstance(value, str) else as_label(value)


def as_label(value: Any) -> str:
    """A class as text; whole floats lose their ".0", as data frames turn 1 into 1.0 in columns with missing values."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def parse_label(cell: Any) -> str | None:
    return None if is_missing(cell) else as_label(cell)


def parse_number(cell: Any) -> float | None:
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        return None
    try:
        value = float(cell)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{str(cell)[:60]!r} is not a number") from None
    if not math.isfinite(value):
        raise ValueError(f"{cell!r} is not a finite number")
    return value


def is_decimal_comma(cells: Iterable[Any]) -> bool:
    """Whether commas in a column of numbers are decimal commas, as in 3,5. Commas before three digits, as in 1,250, may
    separate thousands, so they do not count."""
    texts = [str(cell).strip() for cell in cells if not is_missing(cell)]
    decimals = [text.partition(",")[2] for text in texts]
    return all(map(COMMA_NUMBER.fullmatch, texts)) and any(len(each) not in (0, 3) for each in decimals)


def parse_decimal_comma(cell: Any) -> float | None:
    return parse_number(cell.replace(",", ".") if isinstance(cell, str) else cell)


def label_list_parser(separator: str) -> Callable[[Any], tuple[str, ...] | None]:
    def parse(cell: Any) -> tuple[str, ...] | None:
        if isinstance(cell, dict):  # columns of 0 and 1
            return tuple(name for name, value in cell.items() if _is_set(value))
        if cell is None or (isinstance(cell, float) and is_missing(cell)):
            return None
        names = cell.split(separator) if isinstance(cell, str) else cell if isinstance(cell, list | tuple) else [cell]
        return tuple(dict.fromkeys(as_label(name) for name in names if not is_missing(name)))

    return parse


def _is_set(value: Any) -> bool:
    return not is_missing(value) and str(value).strip().lower() in ("1", "1.0", "true", "yes")


def detect_separator(cells: list[Any]) -> str:
    texts = [cell for cell in cells if isinstance(cell, str)]
    return next((mark for mark in SEPARATORS if any(mark in text for text in texts)), ",")


def parse_int(value: Any) -> int | None:
    try:
        return None if is_missing(value) else int(float(value))
    except (TypeError, ValueError, OverflowError):
        return None


def sorted_labels(labels: set[str]) -> tuple[str, ...]:
    """Sorted labels: numbers first, in numeric order, then strings."""

    def order(label: str) -> tuple[int, float, str]:
        try:
            return (0, float(label), label)
        except ValueError:
            return (1, 0.0, label)

    return tuple(sorted(labels, key=order))
