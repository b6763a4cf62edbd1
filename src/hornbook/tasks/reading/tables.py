"""Users' own tables: texts with classes or numbers, and questions about passages."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hornbook.models.head_config import ProblemType
from hornbook.tasks.reading.infer_columns import infer_columns, several_columns
from hornbook.tasks.reading.layout import Paths, Tables, TabularLayout, main_table
from hornbook.tasks.reading.notes import Notes
from hornbook.tasks.reading.rows import RowTable, is_missing
from hornbook.tasks.reading.squad import RawQuestion, SquadLayout, checked
from hornbook.tasks.reading.texts import (
    key_column,
    key_of,
    number,
    one_class,
    plain,
    separator_of,
    several_classes,
    text_examples,
)
from hornbook.tasks.records import SpanExample, Splits, TextExample

QUESTIONS = ("question", "query")
PASSAGES = ("passage", "context", "document", "text", "paragraph")
ANSWERS = ("answers", "answer", "answer_text", "label")
STARTS = ("start", "answer_start", "starts")


@dataclass(frozen=True)
class OwnTexts(TabularLayout):
    """Tables of texts or pairs, labelled with a class, several classes or a number."""

    problem_type: ProblemType

    def from_tables(self, tables: Tables, notes: Notes) -> Splits:
        split, table = main_table(tables)
        columns = infer_columns(table, notes.requested, self.problem_type, needs_label=not split.startswith("test"))
        label = columns.label or ",".join(columns.labels)
        if len(columns.labels) == 1:
            label += ","  # unlike a column that holds the names of classes
        notes.set_roles(text=columns.text, pair=columns.pair, label=label, key=columns.key)
        parse = {"single_label_classification": one_class, "regression": number}.get(self.problem_type)
        separated = ""
        if parse is None:
            cells = table.values(columns.label) if columns.label else []
            separator = separator_of(cells)
            parse = several_classes(separator)
            separated = f", separated by '{separator}'" if any(isinstance(cell, str) for cell in cells) else ""
        splits = {name: text_examples(each, columns, name, parse, notes) for name, each in tables.items()}
        label = columns.label or "', '".join(columns.labels)
        more = self._described(splits[split]) + separated
        notes.log_columns(more, text=columns.text, pair=columns.pair, label=label)
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
class OwnSpans(TabularLayout):
    """Tables with columns for the question, the passage, the answer and optionally its start; or SQuAD's JSON."""

    allows_no_answer: bool = False

    def read(self, paths: Paths, notes: Notes) -> Splits:
        squad = {split: files for split, files in paths.items() if all(map(is_squad, files))}
        tables = {split: files for split, files in paths.items() if split not in squad}
        return SquadLayout(allows_no_answer=self.allows_no_answer).read(squad, notes) | super().read(tables, notes)

    def from_tables(self, tables: Tables, notes: Notes) -> Splits:
        return {split: self._examples(table, split, notes) for split, table in tables.items()}

    def _examples(self, table: RowTable, split: str, notes: Notes) -> list[SpanExample]:
        requested = notes.requested
        is_test = split.startswith("test")
        question = find_column(table, requested.column("text"), QUESTIONS, "text")
        passage = find_column(table, requested.column("pair"), PASSAGES, "pair")
        answer = find_column(table, requested.column("label"), ANSWERS, "label", may_be_missing=is_test)
        start = find_column(table, None, STARTS, "start", may_be_missing=True)
        key = key_column(table)
        title = find_column(table, None, ("title", "article"), "title", may_be_missing=True)
        notes.set_roles(text=question, pair=passage, label=answer, key=key)
        notes.log_columns(question=question, passage=passage, answer=answer, start=start)
        questions = (
            RawQuestion(
                key_of(row, key, index),
                plain(row.fields.get(question)).strip(),
                plain(row.fields.get(passage)),
                None if answer is None or row.broken else _answers(row.fields.get(answer), row.fields.get(start)),
                plain(row.fields.get(title)) if title else "",
                row.place,
                row.broken,
            )
            for index, row in enumerate(table.rows)
        )
        return checked(questions, split, table.file, self.allows_no_answer, notes)


def _answers(cell: Any, start: Any) -> tuple[tuple[str, int | None], ...]:
    if isinstance(cell, dict):  # {"text": [...], "answer_start": [...]}
        cell, start = cell.get("text"), cell.get("answer_start")
    texts = cell if isinstance(cell, list | tuple) else [] if is_missing(cell) else [cell]
    starts = start if isinstance(start, list | tuple) else [start]
    starts = [*starts, *[None] * len(texts)]
    pairs = zip(map(plain, texts), map(whole_number, starts), strict=False)
    return tuple(dict.fromkeys(pairs))


def whole_number(value: Any) -> int | None:
    try:
        return None if is_missing(value) else int(float(value))
    except (TypeError, ValueError, OverflowError):
        return None


def is_squad(path: Path) -> bool:
    if path.suffix.lower() != ".json":
        return False
    with open(path, encoding="utf-8", errors="replace") as file:
        return '"paragraphs"' in file.read(1 << 16)


def find_column(
    table: RowTable,
    requested: str | None,
    names: tuple[str, ...],
    role: str,
    *,
    may_be_missing: bool = False,
    num_sure: int = 1,
) -> str | None:
    """The requested column, or the column with one of `names`. If the table has several of them, one of the first
    `num_sure` names is preferred; otherwise `ValueError` is raised."""
    if requested and (requested in table.columns or not may_be_missing):
        table.require(requested, role)
        return requested
    candidates = [] if requested else table.named(names)
    if len(candidates) > 1 and candidates[0].lower() not in names[:num_sure] and not may_be_missing:
        raise several_columns(table, role, candidates)
    if not candidates and not may_be_missing:
        raise ValueError(
            f"{table.file}: no column for the {role} (looked for {', '.join(names)}); name it with {role}= "
            f"(columns: {table.names})"
        )
    return candidates[0] if candidates else None
