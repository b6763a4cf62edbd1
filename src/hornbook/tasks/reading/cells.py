"""The values of cells: as texts, labels and numbers."""

import ast
import contextlib
import json
import math
import re
from collections.abc import Callable, Iterable
from typing import Any

from hornbook.config import short_repr

SEPARATORS = "|;,"
YES = ("1", "1.0", "true", "yes")
NO = ("0", "0.0", "false", "no")
BETWEEN_QUOTES = re.compile(r"(['\"])\s+(['\"])")
NUMPY_NUMBERS = re.compile(r"\[[\d\s]+\]", re.ASCII)
COMMA_NUMBER = re.compile(r"[-+]?\d+(,\d+)?")


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
    if is_missing(cell):
        return None
    try:
        value = float(cell)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{short_repr(cell)} is not a number") from None
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
            return tuple(name for name, value in cell.items() if _is_yes(value, name))
        if not isinstance(cell, str) and is_missing(cell):
            return None
        if isinstance(cell, str):
            written = parse_list(cell)
            cell = cell.split(separator) if written is None else written
        names = cell if isinstance(cell, list | tuple) else [cell]
        return tuple(sorted({as_label(name) for name in names if not is_missing(name)}))  # equal in whatever order

    return parse


def _is_yes(value: Any, label: str) -> bool:
    written = str(value).strip().lower()
    if written in YES or written in NO or is_missing(value):
        return written in YES
    raise ValueError(f"{short_repr(value)} for '{label}' is neither 0 nor 1")


def parse_list(cell: str) -> list[Any] | None:
    """The list that a cell holds, as JSON, Python or numpy (without commas) writes it; None for any other text.

    >>> parse_list("['joy', 'love']"), parse_list('["joy"]'), parse_list("[3 0]"), parse_list("joy")
    (['joy', 'love'], ['joy'], [3, 0], None)
    """
    text = cell.strip()
    if not (text.startswith("[") and text.endswith("]")):
        return None
    if NUMPY_NUMBERS.fullmatch(text):
        return list(map(int, text[1:-1].split()))
    for parse, written in ((json.loads, text), (ast.literal_eval, BETWEEN_QUOTES.sub(r"\1, \2", text))):
        with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            value = parse(written)
            return value if all(isinstance(name, str | int | float | None) for name in value) else None
    return None


def detect_separator(cells: list[Any]) -> str:
    texts = [cell for cell in cells if isinstance(cell, str) and parse_list(cell) is None]
    return next((mark for mark in SEPARATORS if any(mark in text for text in texts)), ",")


def parse_int(value: Any) -> int | None:
    try:
        return None if is_missing(value) else int(float(value))
    except (TypeError, ValueError, OverflowError):
        return None


def are_withheld(cells: list[Any]) -> bool:
    """Whether the labels of a test split are not published: they are empty or -1 in all rows."""
    return all(is_missing(cell) or str(cell) in ("-1", "-1.0") for cell in cells)


def sorted_labels(labels: set[str]) -> tuple[str, ...]:
    """Sorted labels: numbers first, in numeric order, then strings."""

    def order(label: str) -> tuple[int, float, str]:
        try:
            return (0, float(label), label)
        except ValueError:
            return (1, 0.0, label)

    return tuple(sorted(labels, key=order))
