"""Sentences to tag: texts, lists of words, and files of them."""

import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any

from hornbook.tasks.reading.columns import OWN_TAGS, TABLES, WORDS, text_or_list
from hornbook.tasks.reading.content import lines_of
from hornbook.tasks.reading.notes import Notes
from hornbook.tasks.reading.rows import read_table
from hornbook.tasks.reading.tables import find_column
from hornbook.tasks.reading.texts import plain
from hornbook.tasks.records import TaggedExample

SPLIT_COLUMNS = ("words", "tokens")  # texts in columns of these names are already split into words by spaces
COLUMN_FILES = (".conll", ".conllu", ".bio", ".iob", ".iob2", ".tsv")
MOSTLY = 0.9  # fraction of lines


def words_of(text: str) -> tuple[str, ...]:
    """The words of a text, split at white space; punctuation around a word is split off, inside a word it is kept.

    >>> words_of('Ms. Lee said: "don\\'t go (to Paris)."')
    ('Ms', '.', 'Lee', 'said', ':', '"', "don't", 'go', '(', 'to', 'Paris', ')', '.', '"')
    """
    words: list[str] = []
    for chunk in text.split():
        first, last = 0, len(chunk)
        while first < last and _is_punctuation(chunk[first]):
            first += 1
        while last > first and _is_punctuation(chunk[last - 1]):
            last -= 1
        words += [*chunk[:first], *([chunk[first:last]] if first < last else []), *chunk[last:]]
    return tuple(words)


def _is_punctuation(character: str) -> bool:
    return unicodedata.category(character)[0] in "PS"


def sentence_in(key: str, cell: Any, column: str) -> TaggedExample:
    """The sentence in a table cell: a list of words, also as JSON, or a text."""
    content = text_or_list(cell)
    if not isinstance(content, str):
        return TaggedExample(key, tuple(map(plain, content)))
    words = tuple(content.split()) if column.lower() in SPLIT_COLUMNS else words_of(content)
    return TaggedExample(key, words, text=content)


def read_sentences(path: Path, notes: Notes) -> list[TaggedExample]:
    suffix = path.suffix.lower()
    if suffix in TABLES:
        return _table_of_sentences(path, notes)
    if suffix in COLUMN_FILES or _has_columns(lines_of(path, Notes())):
        return list(OWN_TAGS.read_file(path, "test", notes))
    return [TaggedExample(str(number), words_of(line), text=line) for number, line in enumerate(lines_of(path, notes))]


def _has_columns(lines: list[str]) -> bool:
    """Whether the lines are words in columns: mostly the same number of fields, and blank lines between sentences."""
    widths = Counter(len(line.split()) for line in lines if line.strip() and not line.startswith("#"))
    has_blanks = any(not line.strip() for line in lines[1:-1])
    return has_blanks and max(widths.values(), default=0) > MOSTLY * widths.total()


def _table_of_sentences(path: Path, notes: Notes) -> list[TaggedExample]:
    table, requested = read_table(path, notes), notes.requested
    if not table.rows:
        return []
    trained = requested.trained.get("text")  # of split words; the inputs may be running text in another column
    name = requested.text or (trained if trained in table.columns else None)
    if len(table.columns) == 1 and name is None:
        column = table.columns[0]
    else:
        column = find_column(table, name, WORDS, "text", num_sure=2)
    notes.log(f"columns: words = '{column}'")
    sentences = []
    for index, row in enumerate(table.rows):
        if row.broken:
            notes.problem(f"kept_{row.broken[0]}", table.file, row.place, row.broken[1])
        sentences.append(sentence_in(str(index), row.fields.get(column), column))
    return sentences
