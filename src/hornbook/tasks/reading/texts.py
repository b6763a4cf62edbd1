"""Converts rows of a table to examples: in general, and to texts and pairs labelled with a class, several classes or a
number."""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeVar

from hornbook.tasks.reading.notes import Defect, Notes
from hornbook.tasks.reading.rows import Row, RowTable, is_missing
from hornbook.tasks.records import Example, TextExample

KEYS = ("id", "key", "guid", "qid", "annot_id", "idx", "index", "uid", "uuid")  # names of columns of keys
SEPARATORS = "|;,"
E = TypeVar("E", bound=Example)
Label = str | float | tuple[str, ...]


def key_column(table: RowTable, used: Collection[str | None] = ()) -> str | None:
    """The column of the examples' keys, known by its name; `used` columns have another role."""
    return next((name for name in table.named(KEYS) if name not in used), None)


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
        if notes.keeps(row.broken or defect, split, table.file, row.place):
            examples.append(example)
    return examples


@dataclass(frozen=True)
class Columns:
    """The column of each role. For multi-label data, `labels` may name several columns of 0 and 1 in place of
    `label`."""

    text: str
    pair: str | None = None
    label: str | None = None
    key: str | None = None
    labels: tuple[str, ...] = ()


def text_examples(
    table: RowTable, columns: Columns, split: str, parse: Callable[[Any], Label | None], notes: Notes
) -> list[TextExample]:
    """The examples of a table. `parse` converts a cell to a label: None if the cell is empty, `ValueError` if it is not
    a number."""
    if not table.rows:
        return []
    has_labels = _check(table, columns, split)
    if split.startswith("test"):
        has_labels = has_labels and not are_withheld([_label_cell(row, columns) for row in table.rows])

    def convert(row: Row, key: str) -> tuple[TextExample, Defect | None]:
        text = plain(row.fields.get(columns.text)).strip()
        pair = plain(row.fields.get(columns.pair)).strip() if columns.pair else None
        label = defect = None
        if has_labels:
            try:
                label = parse(_label_cell(row, columns))
                defect = ("no_label", "the label is empty") if label is None else None
            except ValueError as error:
                defect = ("bad_number", str(error))
        if not text or pair == "":
            defect = ("empty_text", f"the {'pair' if text else 'text'} is empty")
        return TextExample(key, text, pair, label), defect

    return convert_rows(table, columns.key, split, notes, convert)


def _check(table: RowTable, columns: Columns, split: str) -> bool:
    """Whether the table has labels. Raises `ValueError` if a required column is missing."""
    table.require(columns.text, "text")
    if columns.pair:
        table.require(columns.pair, "pair")
    label_columns = columns.labels or ((columns.label,) if columns.label else ())
    if split.startswith("test") and not set(label_columns) <= set(table.columns):
        return False
    for column in label_columns:
        table.require(column, "label")
    return bool(label_columns)


def are_withheld(cells: list[Any]) -> bool:
    """Whether the labels of a test split are not published: they are empty or -1 in all rows."""
    return all(is_missing(cell) or str(cell) in ("-1", "-1.0") for cell in cells)


def _label_cell(row: Row, columns: Columns) -> Any:
    if not columns.labels:
        return row.fields.get(columns.label)
    cells = {name: row.fields.get(name) for name in columns.labels}
    return None if all(map(is_missing, cells.values())) else cells


def key_of(row: Row, column: str | None, index: int) -> str:
    value = row.fields.get(column) if column else None
    return str(index) if is_missing(value) else name_of(value)


def plain(value: Any) -> str:
    return "" if is_missing(value) else value if isinstance(value, str) else name_of(value)


def name_of(value: Any) -> str:
    """A class as text; whole floats lose their ".0", as data frames turn 1 into 1.0 in columns with missing values."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def one_class(cell: Any) -> str | None:
    return None if is_missing(cell) else name_of(cell)


def number(cell: Any) -> float | None:
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        return None
    try:
        value = float(cell)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{str(cell)[:60]!r} is not a number") from None
    if not math.isfinite(value):
        raise ValueError(f"{cell!r} is not a finite number")
    return value


def several_classes(separator: str) -> Callable[[Any], tuple[str, ...] | None]:
    def parse(cell: Any) -> tuple[str, ...] | None:
        if isinstance(cell, dict):  # columns of 0 and 1
            return tuple(name for name, value in cell.items() if _is_set(value))
        if cell is None or (isinstance(cell, float) and is_missing(cell)):
            return None
        names = cell.split(separator) if isinstance(cell, str) else cell if isinstance(cell, list | tuple) else [cell]
        return tuple(dict.fromkeys(name_of(name) for name in names if not is_missing(name)))

    return parse


def _is_set(value: Any) -> bool:
    return not is_missing(value) and str(value).strip().lower() in ("1", "1.0", "true", "yes")


def separator_of(cells: list[Any]) -> str:
    texts = [cell for cell in cells if isinstance(cell, str)]
    return next((mark for mark in SEPARATORS if any(mark in text for text in texts)), ",")


def sorted_labels(labels: set[str]) -> tuple[str, ...]:
    """Sorted labels: numbers first, in numeric order, then strings."""

    def order(label: str) -> tuple[int, float, str]:
        try:
            return (0, float(label), label)
        except ValueError:
            return (1, 0.0, label)

    return tuple(sorted(labels, key=order))
