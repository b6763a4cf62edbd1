"""Data sets that were published as tables, with the quirks of their files."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from hornbook.tasks.reading.content import read_text
from hornbook.tasks.reading.layout import Patterns
from hornbook.tasks.reading.notes import Asked, Notes
from hornbook.tasks.reading.rows import Table, plain_records, read_table, table_of
from hornbook.tasks.reading.texts import Columns, number, one_class, text_examples
from hornbook.tasks.records import TextExample

THREE_PARTS: Patterns = {"train": ("train.tsv",), "dev": ("dev.tsv",), "test": ("test.tsv",)}


@dataclass(frozen=True)
class TableLayout:
    """The columns of a published table. GLUE's TSV files have quotes that are not paired, so that none is a mark;
    where a file has no line of names, the columns are `unnamed`."""

    text: str
    pair: str | None = None
    label: str | None = "label"
    key: str | None = "index"
    kind: Literal["class", "number"] = "class"
    folder: str = ""
    files: Patterns = field(default_factory=lambda: THREE_PARTS)
    unnamed: tuple[str, ...] = ()
    other_label: str | None = None
    takes_columns = True

    def read(self, paths: Mapping[str, list[Path]], asked: Asked, notes: Notes) -> dict[str, list[TextExample]]:
        columns = Columns(asked.text or self.text, asked.pair or self.pair, asked.label or self.label, self.key)
        parse = number if self.kind == "number" else one_class
        return {
            part: [
                example
                for path in files
                for table in [self._table(path, notes)]
                for example in text_examples(table, self._present(columns, table), part, parse, notes)
            ]
            for part, files in paths.items()
        }

    def _present(self, columns: Columns, table: Table) -> Columns:
        """With the other name of the label, where the table has that one."""
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
