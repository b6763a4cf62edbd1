"""Reads texts with marked mentions: entity typing (UFET, Open Entity) and relations (SemEval-2010 task 8, FewRel).

A row of a table is one of these, with the label in `label`, `labels`, `relation`, `types` or `y_str`:

{"left_context_token": [...], "mention_span": "...", "right_context_token": [...]}    UFET (Choi et al. 2018)
{"text" or "sent", "start", "end"}                                                   Open Entity as ERNIE's authors
{"text", "h": {"pos": [0, 5]}, "t": {"pos": [9, 12]}}                                characters
{"tokens", "h": [name, id, [[4, 5]]], "t": [...]}                                    FewRel: numbers of tokens
{"text"} with <e1>, <e2> or the special tokens of the task around the mentions       SemEval, and what `predict` takes

Entities that a text is linked to are read from `ents` ([[id, start, end, score], ...]), from `mentions` or `entities`
as in `data/linked_rows.py`, and from the ids of `h` and `t`.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from hornbook.data.linked_rows import is_linked, linked_texts
from hornbook.tasks.reading.cells import as_text, detect_separator, label_list_parser, parse_int, parse_label
from hornbook.tasks.reading.layout import Patterns, Tables, TabularLayout, custom_patterns, main_table
from hornbook.tasks.reading.reader import Defect, Reader
from hornbook.tasks.reading.rows import Row, RowTable, columns_of, convert_rows, find_column, key_column, object_row
from hornbook.tasks.reading.text_files import read_text
from hornbook.tasks.records import MarkedExample, Splits

TEXTS = ("text", "sent", "sentence")
LABELS = ("label", "labels", "relation", "types", "y_str")
TOKENS = ("tokens", "token")
MIN_SCORE = 0.3  # of a linked entity in ERNIE's files, as published
TAGS = re.compile(r"<(/?)e([12])>")
SEMEVAL_LINE = re.compile(r'^\s*(\d+)\t"(.*)"\s*$')


class Parsed(NamedTuple):
    """A text, its marked mentions, and the entities that it is linked to."""

    text: str
    spans: tuple[tuple[int, int], ...] = ()
    given: tuple[tuple[int, int, str], ...] | None = None


def split_marks(text: str, marks: Sequence[str]) -> tuple[str, tuple[tuple[int, int], ...]]:
    """A text without the marks in it, and the span between each two of the same kind; the spans are empty if a mark is
    missing. `<e1>` and `<e2>` are marks too.

    >>> split_marks("The [ENT] old bridge [ENT] fell.", ["[ENT]"])
    ('The old bridge fell.', ((4, 14),))
    """
    pattern = "|".join(rf"\s*{re.escape(mark)}\s*" for mark in marks)
    plain_text, offsets, end = "", {mark: [] for mark in marks}, 0
    for match in re.finditer(rf"{pattern}|{TAGS.pattern}", text):
        plain_text += text[end : match.start()]
        end = match.end()
        is_special = match[0].strip() in marks
        mark = match[0].strip() if is_special else marks[min(int(match[2]), len(marks)) - 1]
        is_start = len(offsets[mark]) % 2 == 0
        # One space remains outside of a mention, where the special token had any.
        if is_special and is_start and match[0][0].isspace():
            plain_text += " "
        offsets[mark].append(len(plain_text))
        if is_special and not is_start and match[0][-1].isspace():
            plain_text += " "
    plain_text += text[end:]
    spans = tuple(tuple(each[:2]) for each in offsets.values())
    return plain_text, spans if all(len(span) == 2 and span[0] < span[1] for span in spans) else ()


@dataclass(frozen=True)
class MarkedLayout(TabularLayout):
    """`marks`: the special tokens of the task, one for each mention; `has_several`: whether examples have several
    labels."""

    marks: tuple[str, ...]
    has_several: bool

    def is_semeval(self, path: Path) -> bool:
        """Whether a file that is no table is in the published format of SemEval-2010 task 8."""
        if path.suffix.lower() != ".txt":
            return False
        with open(path, encoding="utf-8-sig", errors="replace") as file:
            return bool(SEMEVAL_LINE.match(file.readline()))

    def table(self, path: Path, reader: Reader) -> RowTable:
        if path.suffix.lower() == ".txt":
            reader.tables.append(_semeval_table(read_text(path, reader), str(path)))
            return reader.tables[-1]
        if path.suffix.lower() == ".json" and (rows := _by_relation(path)) is not None:
            reader.files.append(str(path))
            reader.tables.append(RowTable(str(path), columns_of(rows), rows))
            return reader.tables[-1]
        return super().table(path, reader)

    def from_tables(self, tables: Tables, reader: Reader) -> Splits:
        _, table = main_table(tables)
        requested = reader.requested.column("label")
        label = find_column(table, requested, LABELS, "label", may_be_missing=requested is None)
        text = reader.requested.column("text")
        if text is not None:
            table.require(text, "text")
        names = (*TEXTS, *TOKENS, "mention_span")
        reader.log_columns(text=text or find_column(table, None, names, "text", may_be_missing=True), label=label)
        parse = (
            label_list_parser(detect_separator(table.values(label) if label else []))
            if self.has_several
            else parse_label
        )
        return {split: self._examples(each, split, text, label, parse, reader) for split, each in tables.items()}

    def inputs_of(self, table: RowTable, reader: Reader) -> list[MarkedExample]:
        if all(self.parsed(row.fields) is None for row in table.rows):
            raise ValueError(f"{table.file} has no text that can be read: give it as text, with the mentions marked")
        return super().inputs_of(table, reader)

    def _examples(
        self,
        table: RowTable,
        split: str,
        text: str | None,
        label: str | None,
        parse: Callable[[Any], str | tuple[str, ...] | None],
        reader: Reader,
    ) -> list[MarkedExample]:
        has_labels = label is not None and any(row.fields.get(label) is not None for row in table.rows)
        if not has_labels and not split.startswith("test"):
            if label in table.columns:
                raise ValueError(
                    f"{table.file}: the column '{label}' has no labels: fill it in, or name another with label="
                )
            raise ValueError(
                f"{table.file} has no column for the label (looked for {', '.join(LABELS)}); name it with label= "
                f"(columns: {table.column_list})"
            )

        def convert(row: Row, key: str) -> tuple[MarkedExample, Defect | None]:
            fields = row.fields if text is None else {**row.fields, "text": row.fields.get(text)}
            parsed = self.parsed(fields) or Parsed("")
            labels = parse(row.fields.get(label)) if has_labels else None
            is_marked, defect = len(parsed.spans) == len(self.marks), None
            if has_labels and labels is None:
                defect = ("no_label", "the label is empty")
            elif not is_marked:
                defect = ("no_mention", f"mark it with {self.marks[0]}" if parsed.text else "no text can be read")
            return MarkedExample(key, parsed.text, parsed.spans if is_marked else (), labels, parsed.given), defect

        return convert_rows(table, key_column(table, (text, label)), split, reader, convert)

    def parsed(self, fields: Mapping[str, Any]) -> Parsed | None:
        """The text and mentions of a row; None if it has no text, or values of other types than its layout has."""
        try:
            return self._parsed(fields)
        except (TypeError, ValueError, AttributeError, LookupError, OverflowError):
            return None

    def _parsed(self, fields: Mapping[str, Any]) -> Parsed | None:
        if "mention_span" in fields:
            return _ufet(fields)
        tokens = next((fields[name] for name in TOKENS if isinstance(fields.get(name), list)), None)
        name = next((name for name in TEXTS if isinstance(fields.get(name), str)), None)
        if len(self.marks) == 2 and "h" in fields and "t" in fields and (tokens or name):
            return _head_and_tail(fields, tokens, as_text(fields.get(name)) if name else "")
        if name is None:
            return None
        text, given = fields[name], _given(fields)
        if given is None and is_linked(fields):
            _, given = next(linked_texts(fields))
            given = tuple(span for span in given if 0 <= span[0] < span[1] <= len(text))
        spans = ()
        bounds = parse_int(fields.get("start")), parse_int(fields.get("end"))
        if len(self.marks) == 1 and None not in bounds:
            spans = (bounds,)
        elif len(self.marks) == 2 and given is not None and len(given) >= 2 and "ents" in fields:
            spans = tuple(mention[:2] for mention in given[:2])  # as in the files of ERNIE's authors
        if not spans:
            text, spans = split_marks(text, self.marks)
        is_inside = all(0 <= start < end <= len(text) for start, end in spans)
        return Parsed(text, spans if is_inside else (), given)


def _ufet(fields: Mapping[str, Any]) -> Parsed:
    left, right = (" ".join(map(str, fields.get(f"{side}_context_token") or ())) for side in ("left", "right"))
    mention = as_text(fields["mention_span"])
    start = len(left) + 1 if left else 0
    text = " ".join(filter(None, (left, mention, right)))
    return Parsed(text, ((start, start + len(mention)),) if mention else ())


def _head_and_tail(fields: Mapping[str, Any], tokens: list | None, text: str) -> Parsed | None:
    spans, given = [], []
    words = None if tokens is None else list(map(str, tokens))
    text = text if words is None else " ".join(words)
    for role in ("h", "t"):
        identifier, place = _entity(fields[role])
        if not place:
            return Parsed(text)
        first, last = place[0], place[-1]
        if words is not None:  # numbers of tokens: a list of them, or first and last (exclusive)
            last = last if isinstance(fields[role], dict) else last + 1
            start = sum(len(word) + 1 for word in words[:first])
            span = start, start + len(" ".join(words[first:last]))
        else:
            span = first, last
        spans.append(span)
        if identifier:
            given.append((*span, identifier))
    is_inside = all(0 <= start < end <= len(text) for start, end in spans)
    return Parsed(text, tuple(spans) if is_inside else (), tuple(given) or None)


def _entity(value: Any) -> tuple[str, list[int]]:
    """(identifier, places) of `h` or `t` in FewRel (a list) or OpenNRE (an object)."""
    if isinstance(value, dict):
        return as_text(value.get("id")), list(value.get("pos") or ())
    if isinstance(value, list | tuple) and len(value) == 3 and value[2]:
        return as_text(value[1]), list(value[2][0] if isinstance(value[2][0], list) else value[2])
    return "", []


def _given(fields: Mapping[str, Any]) -> tuple[tuple[int, int, str], ...] | None:
    ents = fields.get("ents")
    if not isinstance(ents, list):
        return None
    rows = [each for each in ents if isinstance(each, list | tuple) and len(each) >= 3]
    sure = [each for each in rows if len(each) == 3 or each[3] is None or float(each[3]) > MIN_SCORE]
    return tuple((int(start), int(end), str(entity)) for entity, start, end, *_ in sure)


def _by_relation(path: Path) -> list[Row] | None:
    """The rows of FewRel's JSON, an object with a list of examples for each relation; None for other files."""
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, OSError, RecursionError):
        return None
    if not isinstance(data, dict) or not data or not all(isinstance(each, list) for each in data.values()):
        return None
    examples = [(relation, each) for relation, several in data.items() for each in several]
    if not all(isinstance(each, dict) and "h" in each for _, each in examples):
        return None
    return [
        object_row(f"example {number}", {**each, "relation": relation})
        for number, (relation, each) in enumerate(examples, 1)
    ]


def _semeval_table(text: str, file: str) -> RowTable:
    """A number and a quoted sentence with tags, the relation on the next line, and perhaps a comment."""
    rows, lines = [], text.split("\n")
    for number, line in enumerate(lines):
        if found := SEMEVAL_LINE.match(line):
            after = lines[number + 1].strip() if number + 1 < len(lines) else ""
            label = None if not after or after.startswith("Comment") else after
            rows.append(Row(f"line {number + 1}", {"id": found[1], "text": found[2], "label": label}))
    return RowTable(file, ["id", "text", "label"], rows)


SEMEVAL_FILES: Patterns = {
    "train": ("TRAIN_FILE.TXT", "train.txt"),
    "dev": ("dev.txt",),
    "test": ("TEST_FILE_FULL.TXT", "test.txt"),
}


UFET = MarkedLayout(("[ENT]",), True, files=custom_patterns((".json", ".jsonl")), folder="ufet", takes_columns=False)
SEMEVAL = MarkedLayout(("[HD]", "[TL]"), False, files=SEMEVAL_FILES, folder="semeval2010_task8", takes_columns=False)
