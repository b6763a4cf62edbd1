"""Which column of a person's own table is which, told from the names and, failing that, from what stands in them."""

from collections.abc import Mapping
from typing import Any, Literal

from hornbook.tasks.reading.notes import Asked
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
LABELS = ("label", "labels", "class", "category", "target", "gold_label", "gold", "sentiment", "stars", "rating")
LABELS += ("score", "polarity", "intent", "topic", "emotion", "genre", "similarity", "tags", "value", "answer", "y")
NUMBERS = ("score", "similarity", "rating", "stars", "value")
KEYS = ("id", "key", "guid", "idx", "index", "uid")
LabelKind = Literal["class", "classes", "number"]
SAMPLE = 1000
MOST_CLASSES = 100


def guess_columns(table: Table, asked: Asked, kind: LabelKind, *, needs_label: bool) -> Columns:
    """The columns of texts with a label. What was asked for is taken, if it is there."""
    for column, what in ((asked.text, "text"), (asked.pair, "pair")):
        if column:
            table.need(column, what)
    by_name = {column.lower(): column for column in table.columns}
    label, labels = _asked_labels(table, asked.label) if asked.label and needs_label else (asked.label, ())
    taken = {asked.text, asked.pair, label, *labels} - {None}
    text, pair = asked.text, asked.pair
    if text is None and pair is None:
        text, pair = _pair(by_name, taken)
    text = text or _named(by_name, TEXTS, taken) or _longest(table, taken)
    if text is None:
        raise _unclear(table, "text")
    taken |= {text, pair}
    if not label and not labels:
        label = _named(by_name, NUMBERS + LABELS if kind == "number" else LABELS, taken)
        if label is None and kind == "classes":
            labels = _switches(table, taken)
        elif label is None:
            label = _looks_like_label(table, taken, is_number=kind == "number")
        if label is None and not labels and needs_label:
            raise _unclear(table, "label")
    return Columns(text, pair, label, _named(by_name, KEYS, taken | {label}), labels)


def _asked_labels(table: Table, asked: str) -> tuple[str | None, tuple[str, ...]]:
    """One column, or several of 0 and 1 with commas between."""
    if asked in table.columns or "," not in asked:
        table.need(asked, "label")
        return asked, ()
    names = tuple(name.strip() for name in asked.split(",") if name.strip())
    for name in names:
        table.need(name, "label")
    return None, names


def _pair(by_name: dict[str, str], taken: set[str]) -> tuple[str | None, str | None]:
    for names in PAIRS:
        columns = tuple(by_name.get(name) for name in names)
        if all(columns) and not taken & set(columns):
            return columns
    return None, None


def _named(by_name: dict[str, str], names: tuple[str, ...], taken: set) -> str | None:
    return next((by_name[name] for name in names if name in by_name and by_name[name] not in taken), None)


def _longest(table: Table, taken: set[str]) -> str | None:
    """The column with the longest texts, if it has words at all."""
    lengths = {}
    for column in table.columns:
        texts = [value for value in _sample(table, column) if isinstance(value, str)]
        if column not in taken and texts and any(" " in text.strip() for text in texts):
            lengths[column] = sum(map(len, texts)) / len(texts)
    return max(lengths, key=lengths.get, default=None)


def _looks_like_label(table: Table, taken: set, *, is_number: bool) -> str | None:
    """The last column that is numbers, or that has few values which come again."""
    found = None
    for column in table.columns:
        values = _sample(table, column)
        if column in taken or column.lower() in KEYS or not values:
            continue
        if is_number:
            fits = all(map(_is_number, values))
        else:
            kinds = {str(value) for value in values}
            fits = 1 < len(kinds) <= min(MOST_CLASSES, max(2, len(values) // 2))
        found = column if fits else found
    return found


def _switches(table: Table, taken: set) -> tuple[str, ...]:
    """All columns of 0 and 1, one a class."""
    columns = [column for column in table.columns if column not in taken and column.lower() not in KEYS]
    samples = {column: {str(value).strip() for value in _sample(table, column)} for column in columns}
    return tuple(column for column in columns if samples[column] and samples[column] <= {"0", "1", "0.0", "1.0"})


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _sample(table: Table, column: str) -> list[Any]:
    values = (row.fields.get(column) for row in table.rows[:SAMPLE] if row.broken is None)
    return [value for value in values if not is_missing(value)]


def roles_of(columns: Columns) -> Mapping[str, str]:
    """The column of each role, under the name of the option that sets it; `key` is what names an example."""
    named = {"text": columns.text, "pair": columns.pair, "label": columns.label or ",".join(columns.labels)}
    return {role: column for role, column in (named | {"key": columns.key}).items() if column}


def _unclear(table: Table, what: str) -> ValueError:
    broken = next((row for row in table.rows if row.broken is not None), None)
    if not table.columns and broken is not None:
        return ValueError(f"{table.file} {broken.place}: no row can be read, {broken.broken[1] or broken.broken[0]}")
    there = ", ".join(table.columns[:30]) or "none"
    return ValueError(
        f"{table.file}: it is not clear which column is the {what}; there are: {there}. Name it with {what}="
    )
