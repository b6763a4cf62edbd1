"""Tables of texts or pairs, labelled with a class, several classes or a number: users' own tables, and data sets that
were published as tables."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hornbook.models.head_config import ProblemType
from hornbook.tasks.reading.cells import (
    are_withheld,
    as_text,
    detect_separator,
    is_decimal_comma,
    is_missing,
    label_list_parser,
    parse_decimal_comma,
    parse_label,
    parse_list,
    parse_number,
)
from hornbook.tasks.reading.infer_columns import ColumnRoles, infer_columns
from hornbook.tasks.reading.layout import Patterns, Tables, TabularLayout, main_table
from hornbook.tasks.reading.reader import Defect, Reader
from hornbook.tasks.reading.rows import Row, RowTable, convert_rows
from hornbook.tasks.reading.table_files import read_plain_table, read_table
from hornbook.tasks.records import Splits, TextExample

THREE_SPLITS: Patterns = {"train": ("train.tsv",), "dev": ("dev.tsv",), "test": ("test.tsv",)}
Label = str | float | tuple[str, ...]


def text_examples(
    table: RowTable, columns: ColumnRoles, split: str, parse: Callable[[Any], Label | None], reader: Reader
) -> list[TextExample]:
    """The examples of a table. `parse` converts a cell to a label: None if the cell is empty, `ValueError` if it is not
    a number, or neither 0 nor 1 where a label has a column of its own."""
    if not table.rows:
        return []
    has_labels = _check(table, columns, split)
    table.refuse_objects(filter(None, (columns.text, columns.pair, columns.label if parse is parse_label else None)))
    if split.startswith("test"):
        has_labels = has_labels and not are_withheld([_label_cell(row, columns) for row in table.rows])

    def convert(row: Row, key: str) -> tuple[TextExample, Defect | None]:
        text = as_text(row.fields.get(columns.text)).strip()
        pair = as_text(row.fields.get(columns.pair)).strip() if columns.pair else None
        if row.fields and not reader.needs_labels and not isinstance(row.fields.get(columns.pair), str):
            pair = pair or None  # without a value, not even an empty text, an input is a single text
        label = defect = None
        if has_labels:
            try:
                label = parse(_label_cell(row, columns))
                defect = ("no_label", "the label is empty") if label is None else None
            except ValueError as error:
                kind = "bad_number" if parse in (parse_number, parse_decimal_comma) else "bad_flag"
                defect = (kind, f"column '{columns.label}': {error}" if columns.label else str(error))
        if not text or pair == "":
            defect = ("empty_text", f"the {'pair' if text else 'text'} is empty")
        return TextExample(key, text, pair, label), defect

    return convert_rows(table, columns.key, split, reader, convert)


def _check(table: RowTable, columns: ColumnRoles, split: str) -> bool:
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


def _label_cell(row: Row, columns: ColumnRoles) -> Any:
    if not columns.labels:
        return row.fields.get(columns.label)
    cells = {name: row.fields.get(name) for name in columns.labels}
    return None if all(map(is_missing, cells.values())) else cells


@dataclass(frozen=True)
class CustomTexts(TabularLayout):
    """Tables of texts or pairs, labelled with a class, several classes or a number."""

    problem_type: ProblemType

    def from_tables(self, tables: Tables, reader: Reader) -> Splits:
        split, table = main_table(tables)
        columns = infer_columns(table, reader.requested, self.problem_type, needs_label=not split.startswith("test"))
        label = columns.label or ",".join(columns.labels)
        if len(columns.labels) == 1:
            label += ","  # unlike a column that holds the names of classes
        reader.set_roles(text=columns.text, pair=columns.pair, label=label, key=columns.key)
        cells = table.values(columns.label) if columns.label else []
        parse, details = parse_label, ""
        if self.problem_type == "regression":
            has_commas = is_decimal_comma(cells)
            parse, details = (parse_decimal_comma, " with decimal commas") if has_commas else (parse_number, "")
        elif self.problem_type == "multi_label_classification":
            separator = detect_separator(cells)
            parse = label_list_parser(separator)
            is_text = any(isinstance(cell, str) and parse_list(cell) is None for cell in cells)
            details = f", separated by '{separator}'" if is_text else ""
        splits = {name: text_examples(each, columns, name, parse, reader) for name, each in tables.items()}
        label = columns.label or "', '".join(columns.labels)
        if not reader.needs_labels:
            reader.log_columns(text=columns.text, pair=columns.pair)
        else:
            more = self._described(splits[split]) + details
            reader.log_columns(more, text=columns.text, pair=columns.pair, label=label)
        return splits

    def _described(self, examples: list[TextExample]) -> str:
        labels = [example.label for example in examples if example.label is not None]
        if not labels:
            return " (no labels)"
        if self.problem_type == "regression":
            return f" (numbers from {min(labels):g} to {max(labels):g})"
        names = {name for label in labels for name in ((label,) if isinstance(label, str) else label)}
        return f" ({len(names)} class{'es' * (len(names) != 1)})"


@dataclass(frozen=True)
class PublishedTable(TabularLayout):
    """The columns of a published table. Quotes are ordinary characters, as GLUE's TSV files have unbalanced ones;
    `column_names` are the columns of files without a header line; `other_label` is the label in another release."""

    text: str
    pair: str | None = None
    label: str | None = "label"
    key: str | None = "index"
    problem_type: ProblemType = "single_label_classification"
    files: Patterns = field(default_factory=lambda: THREE_SPLITS, kw_only=True)
    column_names: tuple[str, ...] = ()
    other_label: str | None = None

    def table(self, path: Path, reader: Reader) -> RowTable:
        if path.suffix.lower() in (".jsonl", ".json"):
            return read_table(path, reader)
        return read_plain_table(path, reader, self.column_names, self.text)

    def from_tables(self, tables: Tables, reader: Reader) -> Splits:
        text, pair = reader.requested.text or self.text, reader.requested.pair or self.pair
        parse = parse_number if self.problem_type == "regression" else parse_label
        splits = {}
        for split, table in tables.items():
            label = reader.requested.label or self.label
            if label == self.label and label not in table.columns and self.other_label in table.columns:
                label = self.other_label
            splits[split] = text_examples(table, ColumnRoles(text, pair, label, self.key), split, parse, reader)
        return splits


COLA = PublishedTable("sentence", folder="CoLA", column_names=("source", "label", "mark", "sentence"))
SST2 = PublishedTable("sentence", folder="SST-2")
MRPC = PublishedTable("#1 String", "#2 String", "Quality", folder="MRPC")
QQP = PublishedTable("question1", "question2", "is_duplicate", "id", folder="QQP")
QNLI = PublishedTable("question", "sentence", folder="QNLI")
RTE = PublishedTable("sentence1", "sentence2", folder="RTE")
WNLI = PublishedTable("sentence1", "sentence2", folder="WNLI")
STSB = PublishedTable("sentence1", "sentence2", "score", problem_type="regression", folder="STS-B")
MNLI = PublishedTable(
    "sentence1",
    "sentence2",
    "gold_label",
    folder="MNLI",
    files={
        "train": ("train.tsv",),
        "dev": ("dev_matched.tsv",),
        "dev-mismatched": ("dev_mismatched.tsv",),
        "test": ("test_matched.tsv",),
        "test-mismatched": ("test_mismatched.tsv",),
    },
)
DIAGNOSTIC = PublishedTable("sentence1", "sentence2", folder="diagnostic", files={"test": ("diagnostic.tsv",)})
NSMC = PublishedTable(
    "document", key="id", files={"train": ("ratings_train.txt",), "dev": (), "test": ("ratings_test.txt",)}
)
KLUE_NLI = PublishedTable(
    "premise",
    "hypothesis",
    "gold_label",
    "guid",
    files={"train": ("klue-nli*_train.json",), "dev": ("klue-nli*_dev.json",), "test": ("klue-nli*_test.json",)},
)
BOOLQ = PublishedTable(
    "question",
    "passage",
    "answer",
    "idx",
    folder="BoolQ",
    other_label="label",  # in SuperGLUE
    files={"train": ("train.jsonl",), "dev": ("dev.jsonl", "val.jsonl"), "test": ("test.jsonl",)},
)
