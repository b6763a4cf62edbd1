"""Infers which column of a user's own table is the text, its pair and the label, from the column names and, failing
that, from the values. If several columns are possible, the user has to name one."""

import datetime
import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hornbook.config import short_repr
from hornbook.models.head_config import ProblemType
from hornbook.tasks.reading.cells import is_decimal_comma, is_missing, is_number
from hornbook.tasks.reading.reader import RequestedColumns
from hornbook.tasks.reading.rows import KEYS, RowTable, ambiguous_columns_error, headerless_error, key_column

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
SEVERAL_LABELS = ("classes", "categories", "targets", "intents", "topics", "emotions", "tags")
NUMBERS = ("score", "similarity", "rating", "stars", "value")
WEAK_LABELS = (*NUMBERS, "genre", "tags", "answer", "y")  # often not the label but another column
TIMES = ("date", "time", "datetime", "timestamp", "created", "updated", "modified", "year", "month", "day")
SAMPLE = 1000
MAX_CLASSES = 100
MANY_ROWS = 20  # with fewer rows, each label may well occur only once
MAX_DISTINCT = 0.8  # maximum distinct values per row of a column with the name of a label
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
LIKE_NUMBER = re.compile(r"\D{0,5}\d[\d., ]*\D{0,5}")  # with a unit or separators, such as $1,250 or 12,50 €
NAME_PART = re.compile(r"[A-Z]?[^\W\d_A-Z]+|[A-Z]+(?![a-z])|\d+")


@dataclass(frozen=True)
class ColumnRoles:
    """The column of each role. For multi-label data, `labels` may name several columns of 0 and 1 in place of
    `label`."""

    text: str
    pair: str | None = None
    label: str | None = None
    key: str | None = None
    labels: tuple[str, ...] = ()


class Column:
    """A column of a table: its name, and its cells that are not empty."""

    def __init__(self, table: RowTable, name: str):
        self.name, self._table = name, table

    @cached_property
    def values(self) -> list[Any]:
        return [value for value in self._table.values(self.name) if not is_missing(value)]

    @cached_property
    def sample(self) -> list[Any]:
        return self.values[:: max(1, len(self.values) // SAMPLE)]

    @cached_property
    def distinct(self) -> set[str]:
        return {str(value).strip() for value in self.values}

    @property
    def last_word(self) -> str:
        """The last word of the name, lower case: "id" for `Ticket ID`, `ticket_id` or `ticketId`."""
        return next(iter(NAME_PART.findall(self.name)[-1:]), "").lower()

    @property
    def is_key(self) -> bool:
        return self.name.lower() in KEYS or self.last_word in KEYS

    @cached_property
    def is_time(self) -> bool:
        if self.name.lower() in TIMES or self.last_word in TIMES:
            return True
        return bool(self.sample) and sum(map(_is_date, self.sample)) > 0.9 * len(self.sample)

    @property
    def has_few_values(self) -> bool:
        return 1 < len(self.distinct) <= min(MAX_CLASSES, max(2, len(self.values) // 2))

    @property
    def text_length(self) -> float:
        """Mean length of the texts in characters; 0 if the column has no words, but classes or times."""
        texts = [value for value in self.sample if isinstance(value, str)]
        has_words = any(" " in text.strip() for text in texts)
        return sum(map(len, texts)) / len(texts) if has_words and not self.is_time and not self.has_few_values else 0.0

    def may_be_label(self, problem_type: ProblemType) -> bool:
        """Whether a column with the name of a label can be one: it is not a time and does not have a new value in
        nearly every row."""
        num_rows = len(self.values)
        has_new_values = num_rows >= MANY_ROWS and len(self.distinct) > MAX_DISTINCT * num_rows
        return not self.is_time and not (problem_type == "single_label_classification" and has_new_values)

    def looks_like_label(self, problem_type: ProblemType) -> bool:
        """Whether a column of any name holds numbers (for regression) or few repeated values, and is neither a
        time nor a key."""
        if self.is_key or self.is_time:
            return False
        if problem_type != "regression":
            return self.has_few_values
        if is_decimal_comma(self.values):
            return True
        if not self.values or not all(map(is_number, self.values)):
            return False
        numbers = [float(value) for value in self.values]
        counts_rows = len(numbers) > 1 and all(after - before == 1 for before, after in itertools.pairwise(numbers))
        return not counts_rows

    @property
    def is_binary(self) -> bool:
        return not self.is_key and bool(self.distinct) and self.distinct <= {"0", "1", "0.0", "1.0"}


def infer_columns(
    table: RowTable, requested: RequestedColumns, problem_type: ProblemType, *, needs_label: bool
) -> ColumnRoles:
    """The columns of a table of labelled texts. Columns in `requested` and those that the run was trained on
    (`requested.trained_columns`) must exist, the label only with `needs_label`; the others are inferred."""
    for column, role in ((requested.text, "text"), (requested.pair, "pair")):
        if column:
            table.require(column, role)
    _require_trained(table, requested, needs_label)
    label, labels = _label_columns(table, requested.column("label"), needs_label)
    trained_columns = {} if requested.text or requested.pair else requested.trained_columns
    text, pair = requested.text or trained_columns.get("text"), requested.pair or trained_columns.get("pair")
    columns = [Column(table, name) for name in table.columns]

    def free() -> list[Column]:
        return [column for column in columns if column.name not in (text, pair, label, *labels)]

    if text is None and pair is None:
        text, pair = _pair(table, free())
    text = text or _text(table, free())
    if not requested.label and not requested.trained_columns:
        label, labels = _label(table, free(), problem_type, needs_label)
    return ColumnRoles(text, pair, label, key_column(table, (text, pair, label, *labels)), labels)


def _require_trained(table: RowTable, requested: RequestedColumns, needs_label: bool) -> None:
    """Raises `ValueError` if the table lacks a column that the run was trained on and the user named no other one."""
    roles = [] if requested.text or requested.pair else ["text", "pair"]
    roles += ["label"] if needs_label and not requested.label else []
    for role in roles:
        column = requested.trained_columns.get(role)
        missing = [] if column is None or column in table.columns else _columns_in(column)
        missing = [name for name in missing if name not in table.columns]
        if missing:
            raise ValueError(
                f"{table.file} has no column '{missing[0]}', which the run was trained on as the {role}; name another "
                f"one with {role}= (columns: {table.column_list})"
            )


def _columns_in(label: str) -> list[str]:
    return [name.strip() for name in label.split(",") if name.strip()]


def _label_columns(table: RowTable, label: str | None, needs_label: bool) -> tuple[str | None, tuple[str, ...]]:
    """(label column, ()) or, for several columns of 0 and 1 separated by commas, (None, columns); (None, ()) if none is
    named, or if it is missing from a table that needs no label."""
    if label is None or label in table.columns:
        return label, ()
    names = tuple(_columns_in(label)) if "," in label else (label,)
    if needs_label:
        for name in names:
            table.require(name, "label")
    elif not set(names) <= set(table.columns):
        return None, ()
    return None, names


def _named(columns: list[Column], names: Iterable[str]) -> list[Column]:
    by_name = {column.name.lower(): column for column in columns}
    return [by_name[name] for name in names if name in by_name]


def _pair(table: RowTable, columns: list[Column]) -> tuple[str | None, str | None]:
    pairs = [[column.name for column in _named(columns, names)] for names in PAIRS]
    pairs = [names for names in pairs if len(names) == 2]
    if len(pairs) > 1:
        several = " or ".join(f"{first} and {second}" for first, second in pairs)
        arguments = f"text={pairs[0][0]!r} and pair={pairs[0][1]!r}"
        raise ValueError(
            f"{table.file}: several columns could be the text and its pair ({several}); name them, such as {arguments}"
        )
    return tuple(pairs[0]) if pairs else (None, None)


def _text(table: RowTable, columns: list[Column]) -> str:
    """The column named "text"; otherwise the only column with another usual name, if no column has longer texts;
    otherwise the only column that contains texts."""
    named = _named(columns, TEXTS)
    if sure := [column.name for column in named if column.name.lower() == "text"]:
        return sure[0]
    lengths = {column.name: column.text_length for column in columns}
    longest = max(lengths.values(), default=0.0)
    if len(named) == 1 and lengths[named[0].name] >= longest:
        return named[0].name
    candidates = [column for column in columns if column in named or lengths[column.name] > COMPARABLE_LENGTH * longest]
    if len(candidates) != 1:
        raise _unclear_column_error(table, "text", candidates)
    return candidates[0].name


def _label(
    table: RowTable, columns: list[Column], problem_type: ProblemType, needs_label: bool
) -> tuple[str | None, tuple[str, ...]]:
    """The column with the most reliable name of a label or, if it has only a weak one or none, the only column that
    looks like a label. Multi-label data may have one column of 0 and 1 per class."""
    candidates: list[Column] = []
    is_multi_label = problem_type == "multi_label_classification"
    usual_names = (*LABELS, *SEVERAL_LABELS) if is_multi_label else LABELS
    for names in (NUMBERS, SURE_LABELS, usual_names, WEAK_LABELS)[problem_type != "regression" :]:
        named = _named(columns, names)
        candidates = [column for column in named if column.may_be_label(problem_type)]
        if names is WEAK_LABELS and not is_multi_label:
            candidates += [
                column for column in columns if column not in named and column.looks_like_label(problem_type)
            ]
        if candidates:
            break
    binary = tuple(column.name for column in columns if column.is_binary) if is_multi_label else ()
    if not candidates and binary:
        return None, binary
    if len(candidates) == 1:
        return candidates[0].name, ()
    if not needs_label:
        return None, ()
    if problem_type == "regression" and not candidates:
        _refuse_unread_numbers(table, columns)
    if not candidates:
        _refuse_distinct_labels(table, columns, problem_type)
    error = _unclear_column_error(table, "label", candidates)
    if problem_type == "single_label_classification" and candidates and all(each.is_binary for each in candidates):
        error = ValueError(f"{error}, or give task='multi-label' to predict all of them")
    raise error


def _refuse_distinct_labels(table: RowTable, columns: list[Column], problem_type: ProblemType) -> None:
    """Raises `ValueError` if a column with the name of a label has a different value in nearly every row."""
    for column in _named(columns, (*SURE_LABELS, *LABELS)):
        if not column.is_time and not column.may_be_label(problem_type):
            raise ValueError(
                f"{table.file}: column '{column.name}' has {len(column.distinct):,} different values in "
                f"{len(column.values):,} rows, which are hardly classes; if they are, name it with "
                f"label={column.name!r}, otherwise another column (columns: {table.column_list})"
            )


def _refuse_unread_numbers(table: RowTable, columns: list[Column]) -> None:
    """Raises `ValueError` if most values of a column are numbers with a unit or in another notation."""
    for column in columns:
        unread = [value for value in column.sample if not is_number(value)]
        are_numbers = 2 * sum(map(_is_like_number, column.sample)) > len(column.sample)
        if unread and are_numbers and not column.is_key and not column.is_time:
            raise ValueError(
                f"{table.file}: column '{column.name}' has {short_repr(str(unread[0]))}, which cannot be read as a "
                "number; write numbers such as 1234.5, or name another column with label= (columns: "
                f"{table.column_list})"
            )


def _is_like_number(value: Any) -> bool:
    return is_number(value) or (isinstance(value, str) and LIKE_NUMBER.fullmatch(value.strip()) is not None)


def _is_date(value: Any) -> bool:
    if isinstance(value, datetime.date | datetime.time):
        return True
    return isinstance(value, str) and TIME.fullmatch(value.strip()) is not None


def _unclear_column_error(table: RowTable, role: str, candidates: list[Column]) -> ValueError:
    unread = next((row for row in table.rows if row.defect is not None), None)
    if not table.columns and unread is not None:
        return ValueError(
            f"{table.file} {unread.place}: no row can be read ({unread.defect[1] or unread.defect[0]}); check the file"
        )
    if candidates:
        return ambiguous_columns_error(table, role, [column.name for column in candidates])
    if "paragraphs" in table.columns:
        return ValueError(f"{table.file} looks like questions in SQuAD's format: read it with task='spans'")
    if role == "label" and len(table.columns) == 1 and headerless_error(table) is None:
        return ValueError(
            f"{table.file} has one column only ({table.column_list}): add a column of labels, or give delimiter= if "
            "the columns are separated by another character (to pre-train on the texts, build a corpus of them)"
        )
    table.refuse_objects(table.columns)
    return headerless_error(table) or ValueError(
        f"{table.file}: no column is clearly the {role}; name it with {role}= (columns: {table.column_list})"
    )
