"""Multiple choice, a context and several choices, one of them right: SWAG, CommonsenseQA, CODAH and users' own
tables."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hornbook.metrics.formatting import cut
from hornbook.tasks.reading.cells import are_withheld, as_text, is_missing, parse_list
from hornbook.tasks.reading.layout import Tables, TabularLayout, main_table
from hornbook.tasks.reading.reader import Defect, Reader, RequestedColumns
from hornbook.tasks.reading.rows import Row, RowTable, columns_of, convert_rows, find_column, key_column
from hornbook.tasks.reading.table_files import read_plain_table
from hornbook.tasks.records import ChoiceExample, Splits

CONTEXTS = ("context", "sent1", "question", "premise", "prompt", "stem", "text")
BEGINNINGS = ("beginning", "sent2", "ctx_b")
LABELS = ("label", "answer", "answerkey", "answer_key", "gold", "correct")
CHOICES = ("choices", "endings", "options", "answers", "candidates")
NUMBERED = re.compile(r"(ending|choice|option|answer|candidate)[ _-]?(\d+|[a-z])", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class ChoiceLayout(TabularLayout):
    """`column_names`: column names for TSV files without a header, whose quotes are ordinary characters."""

    column_names: tuple[str, ...] = ()

    def table(self, path: Path, reader: Reader) -> RowTable:
        if self.column_names and path.suffix.lower() == ".tsv":
            return read_plain_table(path, reader, self.column_names, self.column_names[-1])
        return super().table(path, reader)

    def from_tables(self, tables: Tables, reader: Reader) -> Splits:
        first, _ = main_table(tables)
        tables = {split: _flattened(table) for split, table in tables.items() if table.rows}
        columns = {split: _columns(table, split, reader.requested) for split, table in tables.items()}
        main = columns[first]
        reader.set_roles(text=main.context, pair=main.beginning, label=main.label, key=main.key)
        named = {"context": main.context, "beginning": main.beginning, "label": main.label}
        reader.log_columns(**named, choices=", ".join(main.choices))
        counts = Counter(len(choices) for row in tables[first].rows if (choices := _choices(row, main)[0]))
        if not counts:
            raise ValueError(f"{tables[first].file}: no row has choices; fill in the columns {', '.join(main.choices)}")
        num_choices = counts.most_common(1)[0][0]
        first_label = _first_label(tables, columns, num_choices, reader)
        return {
            split: _examples(table, columns[split], num_choices, first_label, split, reader)
            for split, table in tables.items()
        }


@dataclass(frozen=True)
class ChoiceColumns:
    context: str
    beginning: str | None
    label: str | None
    key: str | None
    choices: tuple[str, ...]  # one column of lists, or several columns of one choice each


def _flattened(table: RowTable) -> RowTable:
    """The table with the fields of a nested "question" object as columns, as in CommonsenseQA."""
    rows = []
    for row in table.rows:
        inner = row.fields.get("question")
        if isinstance(inner, dict):
            row = Row(row.place, {**{k: v for k, v in row.fields.items() if k != "question"}, **inner}, row.defect)
        rows.append(row)
    return RowTable(table.file, columns_of(rows) or table.columns, rows)


def _columns(table: RowTable, split: str, requested: RequestedColumns) -> ChoiceColumns:
    context = find_column(table, requested.column("text"), CONTEXTS, "text", what="context")
    beginning = find_column(
        table, requested.column("pair"), BEGINNINGS, "pair", may_be_missing=requested.column("pair") is None
    )
    label = find_column(table, requested.column("label"), LABELS, "label", may_be_missing=split.startswith("test"))
    key = key_column(table, (context, beginning, label))
    numbered = [name for name in table.columns if NUMBERED.fullmatch(name) and name not in (context, label)]
    if len(numbered) > 1:
        return ChoiceColumns(context, beginning, label, key, tuple(sorted(numbered, key=choice_order)))
    as_list = find_column(table, None, CHOICES, "choices", may_be_missing=True)
    if as_list is None:
        raise ValueError(
            f"{table.file} has no columns for the choices; name them choice0, choice1, … or give a list named choices "
            f"(its columns are: {table.column_list})"
        )
    return ChoiceColumns(context, beginning, label, key, (as_list,))


def choice_order(name: str) -> tuple[int, str]:
    """Sorts the columns of choices by their number or letter."""
    mark = NUMBERED.fullmatch(name)[2]
    return (int(mark), "") if mark.isdigit() else (0, mark.lower())


def _choices(row: Row, columns: ChoiceColumns) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(choices, their names in the file such as A, B, …)."""
    if len(columns.choices) > 1:
        return tuple(as_text(row.fields.get(name)).strip() for name in columns.choices) if row.fields else (), ()
    cell = row.fields.get(columns.choices[0])
    if isinstance(cell, str):
        cell = parse_list(cell)
    if isinstance(cell, dict):  # {"label": ["A", …], "text": […]}
        cell = [{"label": a, "text": b} for a, b in zip(cell.get("label", ()), cell.get("text", ()), strict=False)]
    if not isinstance(cell, list | tuple):
        return (), ()
    if all(isinstance(each, dict) for each in cell):
        return tuple(as_text(each.get("text")) for each in cell), tuple(as_text(each.get("label")) for each in cell)
    return tuple(as_text(each) for each in cell), ()


def _first_label(tables: Tables, columns: Mapping[str, ChoiceColumns], num_choices: int, reader: Reader) -> int:
    """Whether labels count choices from 0 or 1: 1 if some label equals the number of choices and none is 0."""
    labels = set()
    for split, table in tables.items():
        label = columns[split].label
        if label and not any(_choices(row, columns[split])[1] for row in table.rows):
            labels |= {as_text(value).strip() for value in table.values(label)}
    if str(num_choices) in labels and "0" not in labels:
        reader.log(f"labels count choices from 1 to {num_choices}")
        return 1
    return 0


def _examples(
    table: RowTable, columns: ChoiceColumns, num_choices: int, first_label: int, split: str, reader: Reader
) -> list[ChoiceExample]:
    """Examples that all have `num_choices` choices, or as many as their row if they are inputs to predict; labels count
    from `first_label`."""
    has_labels = columns.label is not None
    if has_labels and split.startswith("test"):
        has_labels = not are_withheld(table.values(columns.label))

    def convert(row: Row, key: str) -> tuple[ChoiceExample, Defect | None]:
        choices, names = _choices(row, columns)
        context, beginning = (as_text(row.fields.get(name)).strip() for name in (columns.context, columns.beginning))
        label = defect = None
        if has_labels:
            label, defect = _label(row.fields.get(columns.label), choices, names, first_label)
        if len(choices) != num_choices or not all(choices):
            defect = ("bad_choices", f"{sum(map(bool, choices))} choices, but most rows have {num_choices}")
        elif not context and not beginning:
            defect = ("empty_text", "the context is empty")
        padded = (*choices, *[""] * num_choices)[:num_choices] if reader.needs_labels else choices
        return ChoiceExample(key, context, padded, beginning, label if (label or 0) < num_choices else None), defect

    return convert_rows(table, columns.key, split, reader, convert)


def _label(
    cell: Any, choices: tuple[str, ...], names: tuple[str, ...], first_label: int
) -> tuple[int | None, Defect | None]:
    """(index of the right choice, defect) from its name, number, text or letter."""
    if is_missing(cell):
        return None, ("no_label", "the label is empty")
    label = as_text(cell).strip()
    if label in names:
        return names.index(label), None
    if re.fullmatch(r"\d+", label) and 0 <= int(label) - first_label < len(choices):
        return int(label) - first_label, None
    if choices.count(label) == 1:
        return choices.index(label), None
    if re.fullmatch(r"[A-Za-z]", label) and ord(label.upper()) - ord("A") < len(choices):
        return ord(label.upper()) - ord("A"), None
    return None, ("bad_choice_label", f"the label '{cut(label, 60)}' matches none of the {len(choices)} choices")


SWAG = ChoiceLayout(
    files={"train": ("train.csv",), "dev": ("val.csv", "dev.csv"), "test": ("test.csv",)},
    folder="swag",
)
COMMONSENSEQA = ChoiceLayout(
    files={
        "train": ("train_rand_split.jsonl", "train.jsonl"),
        "dev": ("dev_rand_split.jsonl", "dev.jsonl"),
        "test": ("test_rand_split_no_answers.jsonl", "test.jsonl"),
    },
    folder="commonsenseqa",
)
CODAH = ChoiceLayout(
    files={
        "train": ("train.tsv", "full_data.tsv", "dataset.tsv", "data/full_data.tsv"),
        "dev": ("dev.tsv",),
        "test": ("test.tsv",),
    },
    column_names=("category", "question", "ending0", "ending1", "ending2", "ending3", "label"),
    folder="codah",
)
