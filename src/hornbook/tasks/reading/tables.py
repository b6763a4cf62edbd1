"""Users' own tables: texts with classes or numbers, and questions about passages."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hornbook.tasks.reading.guess import LabelKind, infer_columns, roles_of, several_columns
from hornbook.tasks.reading.layout import Patterns, own_patterns
from hornbook.tasks.reading.notes import Notes, RequestedColumns
from hornbook.tasks.reading.rows import Row, Table, is_missing, read_table
from hornbook.tasks.reading.squad import RawQuestion, checked, read_squad
from hornbook.tasks.reading.texts import (
    number,
    one_class,
    plain,
    separator_of,
    several_classes,
    text_examples,
)
from hornbook.tasks.records import SpanExample, TextExample

QUESTIONS = ("question", "query")
PASSAGES = ("passage", "context", "document", "text", "paragraph")
ANSWERS = ("answers", "answer", "answer_text", "label")
STARTS = ("start", "answer_start", "starts")


def read_tables(paths: Mapping[str, list[Path]], notes: Notes) -> dict[str, Table]:
    """One table per split; several files of a split are concatenated."""
    return {split: concatenated([read_table(path, notes) for path in files]) for split, files in paths.items()}


def concatenated(tables: list[Table]) -> Table:
    if len(tables) == 1:
        return tables[0]
    rows = [
        Row(f"{Path(table.file).name} {row.place}", row.fields, row.broken) for table in tables for row in table.rows
    ]
    columns = list(dict.fromkeys(column for table in tables for column in table.columns))
    return Table(f"{tables[0].file} and {len(tables) - 1} more", columns, rows)


def main_table(tables: Mapping[str, Table]) -> tuple[str, Table]:
    """(split, table) that determines the columns of all splits: the first with rows, which is train if there is one."""
    return next(((split, table) for split, table in tables.items() if table.rows), next(iter(tables.items())))


@dataclass(frozen=True)
class OwnTexts:
    kind: LabelKind
    files: Patterns = field(default_factory=own_patterns)
    folder: str = ""
    takes_columns = True

    def read(
        self, paths: Mapping[str, list[Path]], requested: RequestedColumns, notes: Notes
    ) -> dict[str, list[TextExample]]:
        return self.from_tables(read_tables(paths, notes), requested, notes)

    def from_tables(
        self, tables: Mapping[str, Table], requested: RequestedColumns, notes: Notes
    ) -> dict[str, list[TextExample]]:
        split, table = main_table(tables)
        if not table.rows:
            raise ValueError(f"{table.file} has no rows: check the file, or give another")
        needs_label = not split.startswith("test")
        columns = infer_columns(table, requested, self.kind, needs_label=needs_label)
        notes.roles = dict(roles_of(columns))
        parse = {"class": one_class, "number": number}.get(self.kind)
        separated = ""
        if parse is None:
            cells = table.values(columns.label) if columns.label else []
            separator = separator_of(cells)
            parse = several_classes(separator)
            separated = f", separated by '{separator}'" if any(isinstance(cell, str) for cell in cells) else ""
        splits = {name: text_examples(each, columns, name, parse, notes) for name, each in tables.items()}
        notes.log(columns.described() + self._described(splits.get(split, [])) + separated)
        return splits

    def _described(self, examples: list[TextExample]) -> str:
        labels = [example.label for example in examples if example.label is not None]
        if not labels:
            return " (no labels)"
        if self.kind == "number":
            return f" (numbers from {min(labels):g} to {max(labels):g})"
        names = {name for label in labels for name in ((label,) if isinstance(label, str) else label)}
        return f" ({len(names)} classes)"


@dataclass(frozen=True)
class OwnSpans:
    """Tables with columns for the question, the passage, the answer and optionally its start; or SQuAD's JSON."""

    may_be_none: bool = False
    files: Patterns = field(default_factory=own_patterns)
    folder: str = ""
    takes_columns = True

    def read(
        self, paths: Mapping[str, list[Path]], requested: RequestedColumns, notes: Notes
    ) -> dict[str, list[SpanExample]]:
        splits: dict[str, list[SpanExample]] = {}
        tables: dict[str, list[Path]] = {}
        for split, files in paths.items():
            if all(map(is_squad, files)):
                splits[split] = [each for path in files for each in read_squad(path, split, self.may_be_none, notes)]
            else:
                tables[split] = files
        return {**splits, **self.from_tables(read_tables(tables, notes), requested, notes)}

    def from_tables(
        self, tables: Mapping[str, Table], requested: RequestedColumns, notes: Notes
    ) -> dict[str, list[SpanExample]]:
        return {split: self._examples(table, split, requested, notes) for split, table in tables.items()}

    def _examples(self, table: Table, split: str, requested: RequestedColumns, notes: Notes) -> list[SpanExample]:
        is_test = split.startswith("test")
        question = find_column(table, requested.column("text"), QUESTIONS, "text")
        passage = find_column(table, requested.column("pair"), PASSAGES, "pair")
        answer = find_column(table, requested.column("label"), ANSWERS, "label", may_be_missing=is_test)
        start = find_column(table, None, STARTS, "start", may_be_missing=True)
        key = find_column(table, None, ("id", "key", "guid"), "key", may_be_missing=True)
        title = find_column(table, None, ("title", "article"), "title", may_be_missing=True)
        notes.roles = named_roles(question, passage, answer, key)
        columns = {"question": question, "passage": passage, "answer": answer, "start": start}
        notes.log("columns: " + ", ".join(f"{what} = '{name}'" for what, name in columns.items() if name))
        questions = (
            RawQuestion(
                str(index) if key is None or is_missing(row.fields.get(key)) else plain(row.fields[key]),
                plain(row.fields.get(question)).strip(),
                plain(row.fields.get(passage)),
                None if answer is None or row.broken else _answers(row.fields.get(answer), row.fields.get(start)),
                plain(row.fields.get(title)) if title else "",
                row.place,
                row.broken,
            )
            for index, row in enumerate(table.rows)
        )
        return checked(questions, split, table.file, self.may_be_none, notes)


def _answers(cell: Any, start: Any) -> tuple[tuple[str, int | None], ...]:
    if isinstance(cell, dict):  # {"text": [...], "answer_start": [...]}
        cell, start = cell.get("text"), cell.get("answer_start")
    texts = cell if isinstance(cell, list | tuple) else [] if is_missing(cell) else [cell]
    starts = start if isinstance(start, list | tuple) else [start]
    starts = [*starts, *[None] * len(texts)]
    pairs = ((plain(text), whole_number(place)) for text, place in zip(texts, starts, strict=False))
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


def named_roles(text: str, pair: str | None, label: str | None, key: str | None) -> dict[str, str]:
    found = {"text": text, "pair": pair, "label": label, "key": key}
    return {role: column for role, column in found.items() if column}


def find_column(
    table: Table,
    requested: str | None,
    names: tuple[str, ...],
    what: str,
    *,
    may_be_missing: bool = False,
    num_sure: int = 1,
) -> str | None:
    """The requested column, or the column with one of `names`. If the table has several of them, one of the first
    `num_sure` names is preferred; otherwise `ValueError` is raised."""
    if requested and (requested in table.columns or not may_be_missing):
        table.require(requested, what)
        return requested
    by_name = {column.lower(): column for column in table.columns}
    present = [] if requested else [name for name in names if name in by_name]
    if len(present) > 1 and present[0] not in names[:num_sure] and not may_be_missing:
        raise several_columns(table, what, [by_name[name] for name in present])
    found = by_name[present[0]] if present else None
    if found is None and not may_be_missing:
        raise ValueError(
            f"{table.file}: no column for the {what} (looked for {', '.join(names)}); name it with --{what} "
            f"(columns: {table.names})"
        )
    return found
