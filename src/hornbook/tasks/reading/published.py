"""Layouts of data sets that were published as tables."""

from dataclasses import dataclass, field
from pathlib import Path

from hornbook.models.head_config import ProblemType
from hornbook.tasks.reading.layout import Patterns, Tables, TabularLayout
from hornbook.tasks.reading.notes import Notes
from hornbook.tasks.reading.rows import RowTable, read_plain_table, read_table
from hornbook.tasks.reading.texts import Columns, number, one_class, text_examples
from hornbook.tasks.records import Splits

THREE_SPLITS: Patterns = {"train": ("train.tsv",), "dev": ("dev.tsv",), "test": ("test.tsv",)}


@dataclass(frozen=True)
class TableLayout(TabularLayout):
    """The columns of a published table. Quotes are ordinary characters, as GLUE's TSV files have unbalanced ones;
    `unnamed` are the columns of files without a header line; `other_label` is the label in another release."""

    text: str
    pair: str | None = None
    label: str | None = "label"
    key: str | None = "index"
    problem_type: ProblemType = "single_label_classification"
    files: Patterns = field(default_factory=lambda: THREE_SPLITS, kw_only=True)
    unnamed: tuple[str, ...] = ()
    other_label: str | None = None

    def table(self, path: Path, notes: Notes) -> RowTable:
        if path.suffix.lower() in (".jsonl", ".json"):
            return read_table(path, notes)
        return read_plain_table(path, notes, self.unnamed, self.text)

    def from_tables(self, tables: Tables, notes: Notes) -> Splits:
        text, pair = notes.requested.text or self.text, notes.requested.pair or self.pair
        parse = number if self.problem_type == "regression" else one_class
        splits = {}
        for split, table in tables.items():
            label = notes.requested.label or self.label
            if label == self.label and label not in table.columns and self.other_label in table.columns:
                label = self.other_label
            splits[split] = text_examples(table, Columns(text, pair, label, self.key), split, parse, notes)
        return splits


COLA = TableLayout("sentence", folder="CoLA", unnamed=("source", "label", "mark", "sentence"))
SST2 = TableLayout("sentence", folder="SST-2")
MRPC = TableLayout("#1 String", "#2 String", "Quality", folder="MRPC")
QQP = TableLayout("question1", "question2", "is_duplicate", "id", folder="QQP")
QNLI = TableLayout("question", "sentence", folder="QNLI")
RTE = TableLayout("sentence1", "sentence2", folder="RTE")
WNLI = TableLayout("sentence1", "sentence2", folder="WNLI")
STSB = TableLayout("sentence1", "sentence2", "score", problem_type="regression", folder="STS-B")
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
