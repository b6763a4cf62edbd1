"""Layouts of data sets that were published as tables."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from hornbook.tasks.reading.content import read_text
from hornbook.tasks.reading.delimited import plain_records
from hornbook.tasks.reading.layout import Patterns
from hornbook.tasks.reading.notes import Notes, RequestedColumns
from hornbook.tasks.reading.rows import Table, read_table, table_of
from hornbook.tasks.reading.texts import Columns, number, one_class, text_examples
from hornbook.tasks.records import TextExample

THREE_SPLITS: Patterns = {"train": ("train.tsv",), "dev": ("dev.tsv",), "test": ("test.tsv",)}


@dataclass(frozen=True)
class TableLayout:
    """The columns of a published table. Quotes are ordinary characters, as GLUE's TSV files have unbalanced ones;
    `unnamed` are the columns of files without a header line."""

    text: str
    pair: str | None = None
    label: str | None = "label"
    key: str | None = "index"
    kind: Literal["class", "number"] = "class"
    folder: str = ""
    files: Patterns = field(default_factory=lambda: THREE_SPLITS)
    unnamed: tuple[str, ...] = ()
    other_label: str | None = None
    takes_columns = True

    def read(
        self, paths: Mapping[str, list[Path]], requested: RequestedColumns, notes: Notes
    ) -> dict[str, list[TextExample]]:
        columns = Columns(
            requested.text or self.text, requested.pair or self.pair, requested.label or self.label, self.key
        )
        parse = number if self.kind == "number" else one_class
        return {
            split: [
                example
                for path in files
                for table in [self._table(path, notes)]
                for example in text_examples(table, self._present(columns, table), split, parse, notes)
            ]
            for split, files in paths.items()
        }

    def _present(self, columns: Columns, table: Table) -> Columns:
        """`columns` with `other_label` if the table has that column in place of `label`."""
        if self.other_label in table.columns and columns.label == self.label and self.label not in table.columns:
            return replace(columns, label=self.other_label)
        return columns

    def _table(self, path: Path, notes: Notes) -> Table:
        if path.suffix.lower() in (".jsonl", ".json"):
            return read_table(path, notes)
        notes.tables.append(table_of(plain_records(read_text(path, notes)), str(path), self.unnamed, self.text))
        return notes.tables[-1]


COLA = TableLayout("sentence", folder="CoLA", unnamed=("source", "label", "mark", "sentence"))
SST2 = TableLayout("sentence", folder="SST-2")
MRPC = TableLayout("#1 String", "#2 String", "Quality", folder="MRPC")
QQP = TableLayout("question1", "question2", "is_duplicate", "id", folder="QQP")
QNLI = TableLayout("question", "sentence", folder="QNLI")
RTE = TableLayout("sentence1", "sentence2", folder="RTE")
WNLI = TableLayout("sentence1", "sentence2", folder="WNLI")
STSB = TableLayout("sentence1", "sentence2", "score", kind="number", folder="STS-B")
MNLI = TableLayout(
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
DIAGNOSTIC = TableLayout("sentence1", "sentence2", folder="diagnostic", files={"test": ("diagnostic.tsv",)})
NSMC = TableLayout(
    "document", key="id", files={"train": ("ratings_train.txt",), "dev": (), "test": ("ratings_test.txt",)}
)
KLUE_NLI = TableLayout(
    "premise",
    "hypothesis",
    "gold_label",
    "guid",
    files={"train": ("klue-nli*_train.json",), "dev": ("klue-nli*_dev.json",), "test": ("klue-nli*_test.json",)},
)
BOOLQ = TableLayout(
    "question",
    "passage",
    "answer",
    "idx",
    folder="BoolQ",
    other_label="label",  # in SuperGLUE
    files={"train": ("train.jsonl",), "dev": ("dev.jsonl", "val.jsonl"), "test": ("test.jsonl",)},
)
