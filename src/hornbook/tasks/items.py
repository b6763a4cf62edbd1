"""Inputs to predict, given in Python, as examples: texts, pairs, questions with passages, sentences, endings."""

import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from hornbook.tasks.reading.choices import BEGINNINGS, CHOICES, CONTEXTS, NUMBERED
from hornbook.tasks.reading.columns import WORDS
from hornbook.tasks.reading.guess import PAIRS, TEXTS
from hornbook.tasks.reading.notes import Notes
from hornbook.tasks.reading.rows import in_memory, is_missing
from hornbook.tasks.reading.tables import PASSAGES, QUESTIONS
from hornbook.tasks.reading.texts import plain
from hornbook.tasks.records import ChoiceExample, Example, SpanExample, TaggedExample, TextExample

SPLIT_COLUMNS = ("words", "tokens")  # texts in columns of these names are already split into words by spaces
SHAPES = {
    "classification": "a text, a (text, pair), or a dictionary with text and optionally pair",
    "regression": "a text, a (text, pair), or a dictionary with text and optionally pair",
    "spans": "a (question, passage), or a dictionary with question and passage",
    "tagging": "a text, or a list of words",
    "choice": "a (context, endings), a (context, ending, ending, …), or a dictionary with context and endings",
}


def as_examples(items: Any, kind: str) -> list[Example]:
    """One example per item, with its index as key. A data frame gives one example per row.

    >>> as_examples(["good", ("a cat", "an animal")], "classification")[1].pair
    'an animal'
    """
    if isinstance(items, str | Mapping | Example):
        items = [items]
    elif hasattr(items, "columns") or hasattr(items, "column_names"):
        items = [row.fields for row in in_memory(items, "the table", Notes()).rows]
    return [_example(str(number), item, kind) for number, item in enumerate(items)]


def words_of(text: str) -> tuple[str, ...]:
    """The words of a text, split at white space; punctuation around a word is split off, inside a word it is kept.

    >>> words_of('Ms. Lee said: "don\\'t go (to Paris)."')
    ('Ms', '.', 'Lee', 'said', ':', '"', "don't", 'go', '(', 'to', 'Paris', ')', '.', '"')
    """
    found: list[str] = []
    for chunk in text.split():
        first, last = 0, len(chunk)
        while first < last and _is_punctuation(chunk[first]):
            first += 1
        while last > first and _is_punctuation(chunk[last - 1]):
            last -= 1
        found += [*chunk[:first], *([chunk[first:last]] if first < last else []), *chunk[last:]]
    return tuple(found)


def _is_punctuation(character: str) -> bool:
    return unicodedata.category(character)[0] in "PS"


def _example(key: str, item: Any, kind: str) -> Example:
    example = None
    if isinstance(item, Example):
        example = item if isinstance(item, _EXAMPLES[kind]) else None
    elif isinstance(item, Mapping):
        example = _FROM_FIELDS[kind](key, {str(name).lower(): value for name, value in item.items()})
    elif isinstance(item, str) and kind in ("classification", "regression"):
        example = TextExample(key, item)
    elif isinstance(item, str) and kind == "tagging":
        example = TaggedExample(key, words_of(item), text=item)
    elif kind == "tagging" and _is_list_of_texts(item):
        example = TaggedExample(key, tuple(item))
    elif isinstance(item, tuple | list) and len(item) == 2:
        example = _from_pair(key, *item, kind)
    elif kind == "choice" and _is_list_of_texts(item) and len(item) > 2:
        example = ChoiceExample(key, item[0], tuple(item[1:]))
    if example is None:
        content = ", ".join(map(str, item)) if isinstance(item, Mapping) else repr(item)
        raise ValueError(f"input {int(key) + 1} ({_shortened(content)}) is invalid: this model takes {SHAPES[kind]}")
    return example


def _from_pair(key: str, first: Any, second: Any, kind: str) -> Example | None:
    if not isinstance(first, str):
        return None
    if kind == "choice":
        return ChoiceExample(key, first, tuple(second)) if _is_list_of_texts(second) and second else None
    if kind == "spans":
        return SpanExample(key, first, second) if isinstance(second, str) else None
    return TextExample(key, first, second) if isinstance(second, str | None) else None


def _text(key: str, fields: dict[str, Any]) -> TextExample | None:
    pair = next((names for names in PAIRS if all(name in fields for name in names)), None)
    if pair:
        second = fields[pair[1]]
        return TextExample(key, plain(fields[pair[0]]), None if is_missing(second) else plain(second))
    name = _first(fields, TEXTS)
    return None if name is None else TextExample(key, plain(fields[name]))


def _question(key: str, fields: dict[str, Any]) -> SpanExample | None:
    question, passage = _first(fields, QUESTIONS), _first(fields, PASSAGES)
    if question is None or passage is None:
        return None
    return SpanExample(key, plain(fields[question]), plain(fields[passage]))


def _sentence(key: str, fields: dict[str, Any]) -> TaggedExample | None:
    name = _first(fields, WORDS)
    return None if name is None else sentence_in(key, fields[name], name)


def sentence_in(key: str, cell: Any, column: str) -> TaggedExample:
    """A table cell, either a list of words or a text, as a sentence."""
    return TaggedExample(key, words_in(cell, column), text=cell if isinstance(cell, str) else None)


def words_in(cell: Any, column: str) -> tuple[str, ...]:
    """The words of a table cell, which is either a list of words or a text."""
    if is_missing(cell):
        return ()
    if not isinstance(cell, str):
        return tuple(map(plain, cell))
    return tuple(cell.split()) if column.lower() in SPLIT_COLUMNS else words_of(cell)


def _endings(key: str, fields: dict[str, Any]) -> ChoiceExample | None:
    context, several, beginning = _first(fields, CONTEXTS), _first(fields, CHOICES), _first(fields, BEGINNINGS)
    numbered = sorted((name for name in fields if NUMBERED.fullmatch(name)), key=lambda name: (len(name), name))
    endings = fields[several] if several else [fields[name] for name in numbered]
    if context is None or not isinstance(endings, list | tuple) or not endings:
        return None
    start = plain(fields[beginning]) if beginning else ""
    return ChoiceExample(key, plain(fields[context]), tuple(map(plain, endings)), start)


def _first(fields: Mapping[str, Any], names: Iterable[str]) -> str | None:
    return next((name for name in names if name in fields), None)


def _is_list_of_texts(item: Any) -> bool:
    return isinstance(item, tuple | list) and all(isinstance(each, str) for each in item)


def _shortened(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"


_EXAMPLES = {
    "classification": TextExample,
    "regression": TextExample,
    "spans": SpanExample,
    "tagging": TaggedExample,
    "choice": ChoiceExample,
}
_FROM_FIELDS = {
    "classification": _text,
    "regression": _text,
    "spans": _question,
    "tagging": _sentence,
    "choice": _endings,
}
