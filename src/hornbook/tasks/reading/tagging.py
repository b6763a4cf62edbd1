"""Words and tags: CoNLL column files, CoNLL-U, tables with lists, and sentences to tag."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hornbook.metrics.tagging import ENTITY_TAG
from hornbook.tasks.reading.cells import as_label, as_text, parse_list
from hornbook.tasks.reading.layout import (
    INPUT_SPLIT,
    FileLayout,
    Paths,
    Patterns,
    Tables,
    TabularLayout,
    custom_patterns,
)
from hornbook.tasks.reading.reader import Defect, Reader
from hornbook.tasks.reading.rows import Row, RowTable, convert_rows, find_column, key_column
from hornbook.tasks.reading.table_files import TABLE_SUFFIXES, read_table
from hornbook.tasks.reading.text_files import lines_of, read_text
from hornbook.tasks.records import SPLITS, Splits, TaggedExample

CONLL_COLUMNS = {"word": 0, "pos": 1, "chunk": 2, "ner": 3}
CONLLU_COLUMNS = {"form": 1, "lemma": 2, "upos": 3, "xpos": 4, "deprel": 7}
BLANK = re.compile(r"[ \t]+")  # not all white space known to Python: words may contain some of it
COMMENT = re.compile(r"#\s*[\w.:-]+ = ")  # such as # sent_id = 7
DOCUMENT = "-DOCSTART-"
SHAPE_LINES = 5000
NOT_A_WORD = re.compile(r"\d+[-.]\d+")  # a range such as 1-2, or an empty node such as 1.1
# A TSV file is more likely one word and tag per line.
TABLES = tuple(suffix for suffix in TABLE_SUFFIXES if suffix != ".tsv")
WORDS = ("words", "tokens", "sentence", "text")
TAGS = ("tags", "ner_tags", "labels", "label", "ner", "pos_tags", "upos", "pos")
SPLIT_COLUMNS = ("words", "tokens")  # texts in columns of these names are already split into words by spaces
COLUMN_FILES = (".conll", ".conllu", ".bio", ".iob", ".iob2", ".tsv")
SAME_WIDTH_FRACTION = 0.9  # fraction of lines


@dataclass(frozen=True)
class ConllLayout(TabularLayout):
    """`names`: indices of the columns that can be selected by name; `tag`: the default tag column."""

    tag: str = "last"
    names: Mapping[str, int] = field(default_factory=dict)

    def read(self, paths: Paths, reader: Reader) -> Splits:
        return FileLayout.read(self, paths, reader)  # file by file

    def read_file(self, path: Path, split: str, reader: Reader) -> Iterable[TaggedExample]:
        if path.suffix.lower() in TABLES:
            return table_examples(read_table(path, reader), split, reader)
        return self._column_file(path, split, reader)

    def from_tables(self, tables: Tables, reader: Reader) -> Splits:
        return {split: table_examples(table, split, reader) for split, table in tables.items()}

    def inputs_of(self, table: RowTable, reader: Reader) -> list[TaggedExample]:
        return sentences_of(table, reader)

    def _column_file(self, path: Path, split: str, reader: Reader) -> Iterator[TaggedExample]:
        requested = reader.requested
        lines = read_text(path, reader).split("\n")
        shape = detect_format(lines, path.suffix.lower() == ".conllu", may_be_conllu=not self.names)
        is_conllu, names = shape.is_conllu, CONLLU_COLUMNS if shape.is_conllu else self.names
        column = column_number(path, requested.label or ("upos" if is_conllu else self.tag), names)
        words_column = column_number(path, requested.text, names, "text") if requested.text else shape.words
        if requested.text:
            _check_column(path, words_column, shape.width, "text")
        if requested.label and not (split.startswith("test") and shape.width == words_column + 1):
            _check_column(path, column, shape.width, "label")
        for number, (place, rows) in enumerate(shape.sentences(lines)):
            words = tuple(row[words_column if len(row) > words_column else 0] for row in rows)
            width = max(len(row) for row in rows)
            example = TaggedExample(str(number), words)
            reader.places[split, str(number)] = f"line {place}"
            if split.startswith("test") and width == words_column + 1:
                yield example
                continue
            problem = None
            short = next((index for index, row in enumerate(rows) if not _has(row, column, width, is_conllu)), None)
            if short is not None:
                problem = ("bad_row", f"'{words[short]}' has no tag: its line has {len(rows[short])} columns")
            elif is_conllu and all(row[column] == "_" for row in rows):
                problem = None if split.startswith("test") else ("no_label", "no word has a tag")
            else:
                example = replace(example, tags=tuple(row[column] for row in rows))
            if reader.keep_example(problem, split, str(path), f"line {place + (short or 0)}"):
                yield example


def _has(row: list[str], column: int, width: int, is_conllu: bool) -> bool:
    """Whether a line has the column. A negative column requires a complete line, as otherwise it would select another
    column."""
    if is_conllu:
        return len(row) == 10
    return len(row) == width and len(row) > 1 if column < 0 else len(row) > column


def column_number(path: Path, requested: str, names: Mapping[str, int], role: str = "label") -> int:
    if requested == "last":
        return -1
    if requested.isdecimal():
        return int(requested)
    if requested.lower() in names:
        return names[requested.lower()]
    known = ", ".join([*names, "last"])
    raise ValueError(f"{path}: {role}={requested!r} is not a column; use one of {known}, or its index from 0")


def _check_column(path: Path, column: int, width: int, role: str) -> None:
    if column >= width:
        raise ValueError(
            f"{path}: {role}= is column {column}, but the lines have only {width}: use an index from 0 to {width - 1}"
        )


@dataclass(frozen=True)
class ConllFormat:
    """The format of a column file. `by_tabs`: fields are separated only by tabs, so that words may contain spaces;
    `width`: number of columns; `tags`: values of the last column; `words`: index of the word column."""

    by_tabs: bool
    width: int
    tags: frozenset[str] = frozenset()
    words: int = 0
    is_conllu: bool = False

    def fields(self, line: str) -> list[str]:
        if self.is_conllu:
            return line.split("\t")
        return _by_tabs(line) if self.by_tabs else _by_blanks(line)

    def sentences(self, lines: list[str]) -> Iterator[tuple[int, list[list[str]]]]:
        """(number of its first line, rows of fields) of each sentence."""
        rows: list[list[str]] = []
        start = 0
        for line_number, line in enumerate([*lines, ""], 1):
            fields = self.fields(line)
            if not line.strip() or DOCUMENT in fields[:2]:
                if rows:
                    yield start, rows
                rows = []
            elif not self._is_skipped(line, fields, is_first=not rows):
                start = line_number if not rows else start
                rows.append(fields)

    def _is_skipped(self, line: str, fields: list[str], is_first: bool) -> bool:
        """Whether a line is a comment or, in CoNLL-U, not a word. In files without word numbers # may be a word: a line
        that starts with # is a comment only before a sentence and without the columns or the tag of a word."""
        if self.is_conllu or self.words:
            return line.startswith("#") or NOT_A_WORD.fullmatch(fields[0]) is not None
        if not is_first or not line.startswith("#"):
            return False
        has_tag = self.width == 1 or fields[-1] in self.tags or fields[-1] == "O" or ENTITY_TAG.fullmatch(fields[-1])
        return len(fields) != self.width or COMMENT.match(line) is not None or not has_tag


CONLLU = ConllFormat(True, 10, words=1, is_conllu=True)


def _by_tabs(line: str) -> list[str]:
    return [field.strip(" ") for field in line.strip(" \t").split("\t")]


def _by_blanks(line: str) -> list[str]:
    return BLANK.split(line.strip(" \t"))


def detect_format(lines: list[str], is_conllu: bool = False, *, may_be_conllu: bool = True) -> ConllFormat:
    """The shape of most lines. In files with numbered words, the word is the second column; with ten columns in
    addition the file is CoNLL-U, whatever its suffix."""
    if is_conllu:
        return CONLLU
    words = [line for line in lines[:SHAPE_LINES] if line.strip() and not line.startswith(("#", DOCUMENT))]
    if not words:
        return ConllFormat(False, 1)
    widths = [Counter(len(split(line)) for line in words).most_common(1)[0] for split in (_by_blanks, _by_tabs)]
    by_tabs = widths[1][1] > widths[0][1] and widths[1][0] > 1
    width = widths[by_tabs][0]
    split = _by_tabs if by_tabs else _by_blanks
    shape = ConllFormat(by_tabs, width, frozenset(split(line)[-1] for line in words))
    if width < 2 or not _are_numbered(shape, lines[:SHAPE_LINES]):
        return shape
    return CONLLU if width == 10 and may_be_conllu else replace(shape, words=1)


def _are_numbered(shape: ConllFormat, lines: list[str]) -> bool:
    """Whether the first column numbers the words of each sentence."""
    firsts = [[row[0] for row in rows if not row[0].startswith("#")] for _, rows in shape.sentences(lines)]
    firsts = [[each for each in first if not NOT_A_WORD.fullmatch(each)] for first in firsts if first]
    numbers = [([*map(str, range(len(each)))], [*map(str, range(1, len(each) + 1))]) for each in firsts]
    is_numbered = all(each in from_0_or_1 for each, from_0_or_1 in zip(firsts, numbers, strict=True))
    return is_numbered and any(len(each) > 1 for each in firsts)


def table_examples(table: RowTable, split: str, reader: Reader) -> list[TaggedExample]:
    """Examples from rows with a list of words and a list of tags (in CSV cells: as JSON, Python or numpy writes it, or
    separated by spaces)."""
    if not table.rows:
        return []
    requested = reader.requested
    words_column = find_column(table, requested.column("text"), WORDS, "text", what="words", num_sure=2)
    is_test = split.startswith("test")
    tags_column = find_column(table, requested.column("label"), TAGS, "label", what="tags", may_be_missing=is_test)
    reader.log(f"columns: words = '{words_column}', tags = " + (f"'{tags_column}'" if tags_column else "none"))
    key = key_column(table, (words_column, tags_column))
    reader.set_roles(text=words_column, label=tags_column, key=key)

    def convert(row: Row, key: str) -> tuple[TaggedExample, Defect | None]:
        words, tags = (as_words(row.fields.get(column)) for column in (words_column, tags_column))
        if not words:
            return TaggedExample(key, ()), ("empty_text", "there are no words")
        if tags_column is None:
            return TaggedExample(key, words), None
        if not tags:
            return TaggedExample(key, words), ("no_label", "there are no tags")
        if len(tags) != len(words):
            return TaggedExample(key, words), ("bad_tags", f"{len(words)} words but {len(tags)} tags")
        return TaggedExample(key, words, tags), None

    return convert_rows(table, key, split, reader, convert)


def as_words(cell: Any) -> tuple[str, ...]:
    words = text_or_list(cell)
    return tuple(words.split()) if isinstance(words, str) else tuple(map(as_label, words))


def text_or_list(cell: Any) -> str | Iterable[Any]:
    """The list in a cell, also one that is written as text; other cells as text."""
    if isinstance(cell, Iterable) and not isinstance(cell, str):
        return cell
    text = as_text(cell)
    written = parse_list(text)
    return text if written is None else written


# ---- sentences to tag


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
    """The sentence in a table cell: a list of words, also one that is written as text, or a text."""
    content = text_or_list(cell)
    if not isinstance(content, str):
        return TaggedExample(key, tuple(map(as_text, content)))
    words = tuple(content.split()) if column.lower() in SPLIT_COLUMNS else words_of(content)
    return TaggedExample(key, words, text=content)


def read_sentences(path: Path, reader: Reader) -> list[TaggedExample]:
    suffix = path.suffix.lower()
    if suffix in TABLES:
        return sentences_of(read_table(path, reader), reader)
    if suffix in COLUMN_FILES or _has_columns(list(lines_of(path, Reader()))):
        return CUSTOM_TAGS.read_inputs(path, reader)
    return [TaggedExample(str(number), words_of(line), text=line) for number, line in enumerate(lines_of(path, reader))]


def _has_columns(lines: list[str]) -> bool:
    """Whether the lines are words in columns: mostly the same number of fields, and blank lines between sentences."""
    widths = Counter(len(line.split()) for line in lines if line.strip() and not line.startswith("#"))
    has_blanks = any(not line.strip() for line in lines[1:-1])
    return has_blanks and max(widths.values(), default=0) > SAME_WIDTH_FRACTION * widths.total()


def sentences_of(table: RowTable, reader: Reader) -> list[TaggedExample]:
    """The sentences to tag in a table."""
    requested = reader.requested
    if not table.rows:
        return []
    trained = requested.trained_columns.get("text")  # of split words; the inputs may be running text in another column
    name = requested.text or (trained if trained in table.columns else None)
    if len(table.columns) == 1 and name is None:
        column = table.columns[0]
    else:
        column = find_column(table, name, WORDS, "text", num_sure=2)
    reader.log(f"columns: words = '{column}'")

    def convert(row: Row, key: str) -> tuple[TaggedExample, None]:
        return sentence_in(key, row.fields.get(column), column), None

    return convert_rows(table, None, INPUT_SPLIT, reader, convert)


CUSTOM_TAGS = ConllLayout(
    files=custom_patterns((*TABLES, ".tsv", ".txt", ".conll", ".conllu", ".bio", ".iob", ".iob2"))
)
CONLL_FILES: Patterns = {
    "train": ("eng.train", "train.txt", "train.conll", "*.train"),
    "dev": ("eng.testa", "valid.txt", "dev.txt", "validation.txt", "dev.conll", "valid.conll", "*.testa"),
    "test": ("eng.testb", "test.txt", "test.conll", "*.testb"),
}
CONLL2003 = ConllLayout("last", CONLL_COLUMNS, files=CONLL_FILES, folder="conll2003")
CONLL2003_POS = ConllLayout("pos", CONLL_COLUMNS, files=CONLL_FILES, folder="conll2003")
UD_POS = ConllLayout("upos", files={each: (f"*-ud-{each}.conllu", f"{each}.conllu") for each in SPLITS})
