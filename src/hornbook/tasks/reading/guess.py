"""Infers which column of a user's own table is the text, its pair and the label, from the column names and, failing
that, from the values. If several columns are possible, the user has to name one."""

import datetime
import itertools
import re
import shlex
from collections.abc import Iterable
from typing import Any, Literal

from hornbook.tasks.reading.notes import RequestedColumns
from hornbook.tasks.reading.rows import Table, is_missing
from hornbook.tasks.reading.texts import Columns

PAIRS = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("question", "passage"),
    ("question", "context"),
    ("question", "sentence"),
    ("query", "passage"),
    ("query", "document"),
    ("text", "pair"),
    ("text", "text_pair"),
)
TEXTS = ("text", "sentence", "review", "document", "content", "body", "comment", "tweet", "message", "utterance")
TEXTS += ("question", "query", "premise", "sentence1", "input", "title", "headline", "description", "summary")
SURE_LABELS = ("label", "labels")
LABELS = ("class", "category", "target", "gold_label", "gold", "sentiment", "polarity", "intent", "topic", "emotion")
NUMBERS = ("score", "similarity", "rating", "stars", "value")
WEAK_LABELS = (*NUMBERS, "genre", "tags", "answer", "y")  # often not the label but another column
KEYS = ("id", "key", "guid", "idx", "index", "uid", "uuid")
TIMES = ("date", "time", "datetime", "timestamp", "created", "updated", "modified", "year", "month", "day")
LabelKind = Literal["class", "classes", "number"]
SAMPLE = 1000
MOST_CLASSES = 100
MANY_ROWS = 20  # with fewer rows, each label may well occur only once
MOST_DISTINCT = 0.8  # maximum distinct values per row of a column with the name of a label
COMPARABLE_LENGTH = 0.5  # text columns below this fraction of the longest mean length are not candidates
TIME = re.compile(
    r"""(\d{4}\s*[-/.년]\s*\d{1,2}\s*[-/.월]\s*\d{1,2}  # 2024-03-17, 2024년 3월 17일
    |\d{1,2}[-/.]\d{1,2}[-/.]\d{4}|\d{1,2}[-/]\d{1,2}[-/]\d{2}|\d\d\.\d\d\.\d\d  # 17/3/2024, 17.03.24
    |\d{1,2}[. -]+[A-Za-z]{3,9}[., -]+\d{2,4}  # 17 March 2024
    |[A-Za-z]{3,9}\.?[ ]\d{1,2}(st|nd|rd|th)?,?[ ]\d{4}  # March 17, 2024
    |\d{1,2}:\d\d)
    ([ ,T일.:].*)?  # the time of day""",
    re.VERBOSE,
)
NAME_PART = re.compile(r"[A-Z]?[^\W\d_A-Z]+|[A-Z]+(?![a-z])|\d+")


def infer_columns(table: Table, requested: RequestedColumns, kind: LabelKind, *, needs_label: bool) -> Columns:
    """The columns of a table of labelled texts. Columns in `requested` and those that the run was trained on
    (`requested.trained`) must exist, the label only with `needs_label`; the others are inferred."""
    for column, role in ((requested.text, "text"), (requested.pair, "pair")):
        if column:
            table.require(column, role)
    _require_trained(table, requested, needs_label)
    label, labels = (
        _requested_labels(table, requested.label) if requested.label and needs_label else (requested.label, ())
    )
    trained = {} if requested.text or requested.pair else requested.trained
    text, pair = requested.text or trained.get("text"), requested.pair or trained.get("pair")
    taken = {text, pair, label, *labels} - {None}
    if text is None and pair is None:
        text, pair = _pair(table, taken)
    text = text or _text(table, taken)
    taken |= {text, pair}
    if not label and not labels:
        label, labels = _trained_labels(table, requested)
    if not label and not labels and not requested.trained:
        label, labels = _label(table, taken, kind, needs_label)
    key = _one_of(table, KEYS, taken | {label})
    return Columns(text, pair, label, key, labels)


def _require_trained(table: Table, requested: RequestedColumns, needs_label: bool) -> None:
    """Raises `ValueError` if the table lacks a column that the run was trained on and the user named no other one."""
    roles = [] if requested.text or requested.pair else ["text", "pair"]
    roles += ["label"] if needs_label and not requested.label else []
    for role in roles:
        column = requested.trained.get(role)
        missing = [] if column is None or column in table.columns else _columns_in(column)
        missing = [name for name in missing if name not in table.columns]
        if missing:
            raise ValueError(
                f"{table.file} has no column '{missing[0]}', which the run was trained on as the {role}; name another "
                f"one with --{role} (columns: {table.names})"
            )


def _columns_in(label: str) -> list[str]:
    return [name.strip() for name in label.split(",") if name.strip()]


def _requested_labels(table: Table, label: str) -> tuple[str | None, tuple[str, ...]]:
    """(label column, ()) or, for several columns of 0 and 1 separated by commas, (None, columns)."""
    if label in table.columns or "," not in label:
        table.require(label, "label")
        return label, ()
    names = tuple(_columns_in(label))
    for name in names:
        table.require(name, "label")
    return None, names


def _trained_labels(table: Table, requested: RequestedColumns) -> tuple[str | None, tuple[str, ...]]:
    label = requested.trained.get("label")
    if label is None or (label not in table.columns and not set(_columns_in(label)) <= set(table.columns)):
        return None, ()
    return _requested_labels(table, label)


# ---- text


def _pair(table: Table, taken: set[str]) -> tuple[str | None, str | None]:
    by_name = {column.lower(): column for column in table.columns}
    found = [
        (by_name[first], by_name[second])
        for first, second in PAIRS
        if first in by_name and second in by_name and not taken & {by_name[first], by_name[second]}
    ]
    if len(found) > 1:
        several = " or ".join(f"{first} and {second}" for first, second in found)
        options = f"--text {shlex.quote(found[0][0])} --pair {shlex.quote(found[0][1])}"
        raise ValueError(
            f"{table.file}: several columns could be the text and its pair ({several}); name them, such as {options}"
        )
    return found[0] if found else (None, None)


def _text(table: Table, taken: set[str]) -> str:
    """The column named "text"; otherwise the only column with another usual name, if no column has longer texts;
    otherwise the only column that contains texts."""
    named = _named(table, TEXTS, taken)
    if sure := [column for column in named if column.lower() == "text"]:
        return sure[0]
    lengths = _text_lengths(table, taken)
    longest = max(lengths.values(), default=0.0)
    if len(named) == 1 and lengths.get(named[0], 0.0) >= longest:
        return named[0]
    comparable = [column for column, length in lengths.items() if length > COMPARABLE_LENGTH * longest]
    candidates = [column for column in table.columns if column in {*named, *comparable}]
    if len(candidates) != 1:
        raise _unclear(table, "text", candidates)
    return candidates[0]


def _text_lengths(table: Table, taken: set[str]) -> dict[str, float]:
    """Mean text length in characters of each column that contains words rather than classes or times."""
    lengths = {}
    for column in table.columns:
        texts = [value for value in _sample(table, column) if isinstance(value, str)]
        has_words = texts and any(" " in text.strip() for text in texts)
        if column not in taken and has_words and not _is_time(table, column) and not _has_few_values(table, column):
            lengths[column] = sum(map(len, texts)) / len(texts)
    return lengths


# ---- label


def _label(table: Table, taken: set, kind: LabelKind, needs_label: bool) -> tuple[str | None, tuple[str, ...]]:
    candidates: list[str] = []
    for names in _label_names(kind):
        named = _named(table, names, taken)
        candidates = [column for column in named if _may_be_label(table, column, kind)]
        if names is WEAK_LABELS and kind != "classes":
            candidates = [*candidates, *(each for each in _label_candidates(table, taken, kind) if each not in named)]
        if candidates:
            break
    if not candidates and kind == "classes":
        if binary_columns := _binary_columns(table, taken):
            return None, binary_columns
    elif not candidates:
        candidates = _label_candidates(table, taken, kind)
    if len(candidates) == 1:
        return candidates[0], ()
    if needs_label:
        raise _unclear(table, "label", candidates)
    return None, ()


def _label_names(kind: LabelKind) -> Iterable[tuple[str, ...]]:
    """Usual names of the label column, most reliable first."""
    return (NUMBERS, SURE_LABELS, LABELS, WEAK_LABELS) if kind == "number" else (SURE_LABELS, LABELS, WEAK_LABELS)


def _may_be_label(table: Table, column: str, kind: LabelKind) -> bool:
    """Whether a column with the name of a label can be one: it is not a time and does not have a new value in nearly
    every row."""
    if _is_time(table, column):
        return False
    num_rows, num_values = _counts(table, column)
    return kind != "class" or num_rows < MANY_ROWS or num_values <= MOST_DISTINCT * num_rows


def _label_candidates(table: Table, taken: set, kind: LabelKind) -> list[str]:
    """The columns of numbers (for `kind` "number") or of few repeated values that are neither times nor keys."""
    found = []
    for column in table.columns:
        if column in taken or _is_key(column) or _is_time(table, column):
            continue
        if kind == "number":
            fits = _holds_numbers(table, column) and not _counts_rows(table, column)
        else:
            fits = _has_few_values(table, column)
        found += [column] if fits else []
    return found


def _has_few_values(table: Table, column: str) -> bool:
    num_rows, num_values = _counts(table, column)
    return 1 < num_values <= min(MOST_CLASSES, max(2, num_rows // 2))


def _holds_numbers(table: Table, column: str) -> bool:
    values = _values(table, column)
    return bool(values) and all(map(_is_number, values))


def _counts_rows(table: Table, column: str) -> bool:
    """Whether the column numbers the rows: each value is one more than the previous one."""
    numbers = [float(value) for value in _values(table, column)]
    return len(numbers) > 1 and all(after - before == 1 for before, after in itertools.pairwise(numbers))


def _binary_columns(table: Table, taken: set) -> tuple[str, ...]:
    """All columns of 0 and 1, which are taken as one column per class."""
    columns = [column for column in table.columns if column not in taken and not _is_key(column)]
    samples = {column: {str(value).strip() for value in _values(table, column)} for column in columns}
    return tuple(column for column in columns if samples[column] and samples[column] <= {"0", "1", "0.0", "1.0"})


# ---- names and values of columns


def _named(table: Table, names: Iterable[str], taken: set) -> list[str]:
    by_name = {column.lower(): column for column in table.columns if column not in taken}
    return [by_name[name] for name in names if name in by_name]


def _one_of(table: Table, names: Iterable[str], taken: set) -> str | None:
    return next(iter(_named(table, names, taken)), None)


def _last_word(column: str) -> str:
    """The last word of a column name, lower case: "id" for `Ticket ID`, `ticket_id` or `ticketId`."""
    return next(iter(NAME_PART.findall(column)[-1:]), "").lower()


def _is_key(column: str) -> bool:
    return column.lower() in KEYS or _last_word(column) in KEYS


def _is_time(table: Table, column: str) -> bool:
    if column.lower() in TIMES or _last_word(column) in TIMES:
        return True
    values = _sample(table, column)
    return bool(values) and sum(map(_is_date, values)) > 0.9 * len(values)


def _is_date(value: Any) -> bool:
    if isinstance(value, datetime.date | datetime.time):
        return True
    return isinstance(value, str) and TIME.fullmatch(value.strip()) is not None


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _counts(table: Table, column: str) -> tuple[int, int]:
    """(number of rows with a value, number of distinct values)."""
    values = _values(table, column)
    return len(values), len({str(value).strip() for value in values})


def _values(table: Table, column: str) -> list[Any]:
    return [value for value in table.values(column) if not is_missing(value)]


def _sample(table: Table, column: str) -> list[Any]:
    values = _values(table, column)
    return values[:: max(1, len(values) // SAMPLE)]


def several_columns(table: Table, role: str, candidates: list[str]) -> ValueError:
    option = f"--{role} {shlex.quote(candidates[0])}"
    return ValueError(
        f"{table.file}: several columns could be the {role} ({', '.join(candidates)}); name one, such as {option}"
    )


def _unclear(table: Table, role: str, candidates: list[str]) -> ValueError:
    broken = next((row for row in table.rows if row.broken is not None), None)
    if not table.columns and broken is not None:
        return ValueError(
            f"{table.file} {broken.place}: no row can be read ({broken.broken[1] or broken.broken[0]}); check the file"
        )
    if candidates:
        return several_columns(table, role, candidates)
    return ValueError(f"{table.file}: no column is clearly the {role}; name it with --{role} (columns: {table.names})")
