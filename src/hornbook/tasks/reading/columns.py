"""Words and tags: column files of the CoNLL kind, CoNLL-U, and tables with lists."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hornbook.tasks.reading.content import read_text
from hornbook.tasks.reading.layout import Patterns, own_patterns
from hornbook.tasks.reading.notes import Asked, Notes
from hornbook.tasks.reading.rows import FORMATS, Row, Table, is_missing, read_table
from hornbook.tasks.reading.tables import find_column, named_roles
from hornbook.tasks.reading.texts import key_of, name_of
from hornbook.tasks.records import TaggedExample

CONLL_COLUMNS = {"word": 0, "pos": 1, "chunk": 2, "ner": 3}
CONLLU_COLUMNS = {"form": 1, "lemma": 2, "upos": 3, "xpos": 4, "deprel": 7}
BLANK = re.compile(r"[ \t]+")  # and not all that Python takes for white space, for words may hold it
NOT_A_WORD = re.compile(r"\d+[-.]\d+")  # a range such as 1-2, or an empty node such as 1.1
TABLES = tuple(suffix for suffix in FORMATS if suffix != ".tsv")  # a TSV file is rather a word and its tag a line
WORDS = ("words", "tokens", "sentence", "text")
TAGS = ("tags", "ner_tags", "labels", "label", "ner", "pos_tags", "upos", "pos")


@dataclass(frozen=True)
class ColumnLayout:
    """`names` are the columns that may be asked for by name; `tag` is the one taken otherwise."""

    files: Patterns
    tag: str = "last"
    names: Mapping[str, int] = field(default_factory=dict)
    folder: str = ""
    takes_columns = True

    def read(self, paths: Mapping[str, list[Path]], asked: Asked, notes: Notes) -> dict[str, list[TaggedExample]]:
        parts = {}
        for part, files in paths.items():
            examples: list[TaggedExample] = []
            for path in files:
                if path.suffix.lower() in TABLES:
                    examples += table_examples(read_table(path, notes), part, asked, notes)
                elif path.suffix.lower() == ".conllu":
                    examples += self._file(path, part, asked.label or "upos", CONLLU_COLUMNS, notes)
                else:
                    examples += self._file(path, part, asked.label or self.tag, self.names, notes)
            parts[part] = examples
        return parts

    def from_tables(self, tables: Mapping[str, Table], asked: Asked, notes: Notes) -> dict[str, list[TaggedExample]]:
        return {part: table_examples(table, part, asked, notes) for part, table in tables.items()}

    def _file(self, path: Path, part: str, tag: str, names: Mapping[str, int], notes: Notes) -> Iterator[TaggedExample]:
        is_conllu = names is CONLLU_COLUMNS
        column = column_number(tag, names)
        lines = read_text(path, notes).split("\n")
        for number, (place, rows) in enumerate(_sentences(lines, is_conllu)):
            words = tuple(row[1 if is_conllu and len(row) > 1 else 0] for row in rows)
            width = max(len(row) for row in rows)
            example = TaggedExample(str(number), words)
            notes.places[part, str(number)] = f"line {place}"
            if part.startswith("test") and width == 1:
                yield example
                continue
            short = next((index for index, row in enumerate(rows) if not _has(row, column, width, is_conllu)), None)
            if short is None:
                tags = tuple(row[column] for row in rows)
                is_hidden = is_conllu and set(tags) == {"_"}
                is_wanted = is_hidden and not part.startswith("test")
                if is_wanted and notes.leaves_out("no_label", part, str(path), f"line {place}", "no word has a tag"):
                    continue
                yield replace(example, tags=None if is_hidden else tags)
                continue
            detail = f"'{words[short]}' has {len(rows[short])} columns and so no tag"
            if not notes.leaves_out("bad_row", part, str(path), f"line {place + short}", detail):
                yield example


def _has(row: list[str], column: int, width: int, is_conllu: bool) -> bool:
    """Whether a line has the column. Counted from the end it must be a whole line, or another column would be taken."""
    if is_conllu:
        return len(row) == 10
    return len(row) == width and len(row) > 1 if column < 0 else len(row) > column


def column_number(tag: str, names: Mapping[str, int]) -> int:
    if tag == "last":
        return -1
    if tag.isdigit():
        return int(tag)
    if tag.lower() in names:
        return names[tag.lower()]
    known = ", ".join([*names, "last"])
    raise ValueError(f"label='{tag}' is no column of this file: name one of {known}, or its number, the words being 0")


def _sentences(lines: list[str], is_conllu: bool) -> Iterator[tuple[int, list[list[str]]]]:
    """Sentences as lists of split lines, each with the number of its first line."""
    rows: list[list[str]] = []
    start = 0
    for number, line in enumerate([*lines, ""], 1):
        fields = line.split("\t") if is_conllu else BLANK.split(line.strip(" \t"))
        if not line.strip() or fields[0] == "-DOCSTART-":
            if rows:
                yield start, rows
            rows = []
        elif not (is_conllu and (line.startswith("#") or NOT_A_WORD.fullmatch(fields[0]))):
            start = number if not rows else start
            rows.append(fields)


def table_examples(table: Table, part: str, asked: Asked, notes: Notes) -> list[TaggedExample]:
    """Rows with a list of words and a list of tags (in a CSV cell: as JSON, or with spaces between)."""
    if not table.rows:
        return []
    words_column = find_column(table, asked.column("text"), WORDS, "text", num_sure=2)
    is_test = part.startswith("test")
    tags_column = find_column(table, asked.column("label"), TAGS, "label", may_be_missing=is_test)
    notes.say(f"columns: words = '{words_column}', tags = " + (f"'{tags_column}'" if tags_column else "none"))
    key_column = next((name for name in table.columns if name.lower() in ("id", "key", "guid")), None)
    notes.roles = named_roles(words_column, None, tags_column, key_column)
    found = []
    for number, row in enumerate(table.rows):
        key = key_of(row, key_column, number)
        notes.places[part, key] = row.place
        example, trouble = _tagged(row, key, words_column, tags_column)
        if trouble is None or not notes.leaves_out(trouble[0], part, table.file, row.place, trouble[1]):
            found.append(example)
    return found


def _tagged(
    row: Row, key: str, words_column: str, tags_column: str | None
) -> tuple[TaggedExample, tuple[str, str] | None]:
    words = as_words(row.fields.get(words_column))
    tags = row.fields.get(tags_column) if tags_column else None
    if row.broken:
        return TaggedExample(key, words), row.broken
    if not words:
        return TaggedExample(key, ()), ("empty_text", "there are no words")
    if tags_column is None:
        return TaggedExample(key, words), None
    if is_missing(tags):
        return TaggedExample(key, words), ("no_label", "there are no tags")
    tags = as_words(tags)
    if len(tags) != len(words):
        return TaggedExample(key, words), ("bad_tags", f"{len(words)} words and {len(tags)} tags")
    return TaggedExample(key, words, tags), None


def as_words(cell: Any) -> tuple[str, ...]:
    if is_missing(cell):
        return ()
    if isinstance(cell, str):
        if not cell.lstrip().startswith("["):
            return tuple(cell.split())
        try:
            cell = json.loads(cell)
        except json.JSONDecodeError:
            return tuple(cell.split())
    return tuple(name_of(each) for each in cell)


OWN_TAGS = ColumnLayout(own_patterns((*TABLES, ".tsv", ".txt", ".conll", ".conllu", ".bio", ".iob", ".iob2")))
CONLL_FILES: Patterns = {
    "train": ("eng.train", "train.txt", "train.conll", "*.train"),
    "dev": ("eng.testa", "valid.txt", "dev.txt", "validation.txt", "dev.conll", "valid.conll", "*.testa"),
    "test": ("eng.testb", "test.txt", "test.conll", "*.testb"),
}
CONLL2003 = ColumnLayout(CONLL_FILES, "last", CONLL_COLUMNS, folder="conll2003")
CONLL2003_POS = ColumnLayout(CONLL_FILES, "pos", CONLL_COLUMNS, folder="conll2003")
UD_POS = ColumnLayout({part: (f"*-ud-{part}.conllu", f"{part}.conllu") for part in ("train", "dev", "test")}, "upos")
