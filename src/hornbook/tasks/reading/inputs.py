"""Reads files of inputs to predict. Every input gives one example, even if it is defective."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hornbook.data.problems import Problems
from hornbook.tasks.datasets import KnownDataSet, known
from hornbook.tasks.items import as_examples, problem_of, sentence_in, words_of
from hornbook.tasks.reading.columns import OWN_TAGS, TABLES, WORDS
from hornbook.tasks.reading.content import read_text
from hornbook.tasks.reading.guess import infer_columns
from hornbook.tasks.reading.notes import HARMLESS, Format, Notes, RequestedColumns
from hornbook.tasks.reading.published import TableLayout
from hornbook.tasks.reading.rows import FORMATS, Row, is_missing, read_table
from hornbook.tasks.reading.squad import read_squad
from hornbook.tasks.reading.tables import OwnSpans, OwnTexts, find_column, is_squad
from hornbook.tasks.reading.texts import key_of
from hornbook.tasks.records import ChoiceExample, Example, Kind, SpanExample, TaggedExample, TextExample
from hornbook.tasks.saved import SavedTask
from hornbook.tasks.schemes import repaired, scheme_of, to_bio

COLUMN_FILES = (".conll", ".conllu", ".bio", ".iob", ".iob2", ".tsv")
PART = "test"  # a test split keeps all examples, and labels may be missing
MOSTLY = 0.9  # fraction of lines


@dataclass(frozen=True)
class InputRow:
    """One input of a file, with its original columns (none if the file is not a table). `problem` describes its defect,
    if any; if `is_usable` is False, it cannot be predicted."""

    example: Example
    columns: dict[str, Any]
    problem: str = ""
    is_usable: bool = True


def read_inputs(file: str | Path, saved: SavedTask, **options: Any) -> list[Example]:
    """The examples of `read_input_rows`, which has the options."""
    return [row.example for row in read_input_rows(file, saved, **options)]


def read_input_rows(
    file: str | Path,
    saved: SavedTask,
    text: str | None = None,
    pair: str | None = None,
    log: Callable[[str], None] | None = None,
    strict: bool = False,
    delimiter: str | None = None,
    encoding: str | None = None,
) -> list[InputRow]:
    """The inputs of a file in order, as examples of the task of a run, with the original columns and the problem of
    each; labels in the file are kept.

    A table (CSV, TSV, JSON lines, JSON, Parquet) has one input per row. Its columns are those that the run was trained
    on, or inferred, unless `text` and `pair` name them; `delimiter` and `encoding` are detected where they are None.
    Other files have one input per line, including empty lines; a tab separates a text from its pair, a question from
    its passage, a context from its endings. Tagging also reads files with one word per line and blank lines between
    sentences; spans also reads SQuAD's JSON. `log` receives what was inferred and which problems were found; with
    `strict`, the first problem raises `ValueError`.
    """
    notes = Notes(strict, needs_labels=False, format=Format(delimiter, encoding))
    found = inputs_in(file, known(saved.name), RequestedColumns(text, pair, trained=saved.roles or {}), notes)
    for message in [*notes.messages, *_problems(notes.problems)] if log else ():
        log(message)
    columns = original_columns(found, notes) or [{} for _ in found]
    rows = notes.tables[0].rows if notes.tables else [Row("") for _ in found]
    return [_input_row(*each) for each in zip(found, columns, rows, strict=True)]


def input_rows(items: Any, kind: Kind) -> list[InputRow]:
    """Inputs in memory as rows without original columns."""
    return [_input_row(example, {}, Row("")) for example in as_examples(items, kind)]


def _input_row(example: Example, columns: dict[str, Any], row: Row) -> InputRow:
    if row.broken:
        return InputRow(example, columns, row.broken[1] or row.broken[0], is_usable=False)
    problem = problem_of(example)
    return InputRow(example, columns, "; ".join(filter(None, (row.note, problem))), not problem)


def original_columns(examples: list[Example], notes: Notes) -> list[dict[str, Any]]:
    """The original columns of each input: the cells of a table, or the id and question of SQuAD's JSON; an empty list
    for other files."""
    if notes.tables:
        (table,) = notes.tables
        assert len(table.rows) == len(examples)
        empty = dict.fromkeys(table.columns)
        return [{name: _as_json(cell) for name, cell in (row.fields or empty).items()} for row in table.rows]
    if isinstance(examples[0], SpanExample) and notes.files[0].lower().endswith(".json"):
        return [{"id": each.key, "question": each.question} for each in examples]
    return []


def _as_json(cell: Any) -> Any:
    """The cell as a value that JSON can represent."""
    if is_missing(cell) and not isinstance(cell, str):
        return None
    return cell if isinstance(cell, str | int | float | list | dict) else str(cell)


def inputs_in(file: str | Path, entry: KnownDataSet, requested: RequestedColumns, notes: Notes) -> list[Example]:
    """The inputs of a file for a registry entry; messages and problems are added to `notes`."""
    path = Path(file).expanduser()
    if path.is_dir() or not path.exists():
        raise ValueError(f"there is no file {path}: give a file with the inputs")
    found = _read(path, entry, requested, notes)
    if not found:
        raise ValueError(f"{path} contains no inputs: write one per line, or a table with one per row")
    return found


def _problems(problems: Problems) -> list[str]:
    return [
        f"{entry['count']:,} {entry['what']} (first: {problems.first(kind)})"
        for kind, entry in problems.as_dict().items()
        if kind not in HARMLESS
    ]


def _read(path: Path, entry: KnownDataSet, requested: RequestedColumns, notes: Notes) -> list[Example]:
    suffix, layout = path.suffix.lower(), entry.layout
    if entry.kind == "tagging":
        return _sentences(path, requested, notes)
    if entry.kind == "spans" and suffix == ".json":
        if is_squad(path):
            return read_squad(path, PART, True, notes)
        if not layout.takes_columns:
            return layout.read({PART: [path]}, requested, notes)[PART]
    if isinstance(layout, TableLayout) and not requested and _is_published(path, layout):
        return layout.read({PART: [path]}, requested, notes)[PART]
    if suffix not in FORMATS:
        return _lines(path, entry, notes)
    if entry.kind == "choice":
        return layout.read({PART: [path]}, requested, notes)[PART]
    table = read_table(path, notes)
    if not table.rows:
        return []
    own = OwnSpans(may_be_none=True) if entry.kind == "spans" else entry.own_layout
    if len(table.columns) == 1 and entry.kind != "spans" and not requested and not requested.trained:
        requested = RequestedColumns(table.columns[0])
    text = None
    if isinstance(own, OwnTexts):
        columns = infer_columns(table, requested, own.kind, needs_label=False)
        requested = replace(requested, text=columns.text, pair=columns.pair)
        text = columns.text if columns.pair is None else None
    for row in table.mend(text):
        notes.problem("kept_bad_row", table.file, row.place, row.note)
    return own.from_tables({PART: table}, requested, notes)[PART]


def _is_published(path: Path, layout: TableLayout) -> bool:
    """Whether a tab-separated file has the columns of the published layout."""
    if path.suffix.lower() not in (".tsv", ".txt"):
        return False
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        names = [name.strip() for name in file.readline().rstrip("\r\n").split("\t")]
    has_names = layout.text in names and (layout.pair is None or layout.pair in names)
    has_known_name = any(path.match(name) for files in layout.files.values() for name in files)
    return (has_names and len(names) > 1) or (has_known_name and len(names) == len(layout.unnamed))


def _split(path: Path, notes: Notes) -> list[str]:
    text = read_text(path, notes)
    return text.removesuffix("\n").split("\n") if text else []


def _lines(path: Path, entry: KnownDataSet, notes: Notes) -> list[Example]:
    lines = _split(path, notes)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            notes.problem("kept_empty_text", str(path), f"line {number}", "the line is empty")
    has_tabs = _majority(["\t" in line for line in lines if line.strip()])
    if entry.kind in ("spans", "choice") and not has_tabs:
        fields = "the question and the passage" if entry.kind == "spans" else "the context and its endings"
        raise ValueError(f"{path}: separate {fields} by a tab on each line, or give a table with columns")
    if entry.kind == "choice":
        return [
            ChoiceExample(str(number), context, tuple(endings) or ("",))
            for number, (context, *endings) in enumerate(line.split("\t") for line in lines)
        ]
    if has_tabs:
        notes.log(f"{path}: the tab on each line separates the two texts")
    example_type = SpanExample if entry.kind == "spans" else TextExample
    found: list[Example] = []
    for number, line in enumerate(lines):
        first, _, second = line.partition("\t") if has_tabs else (line, "", None)
        found.append(example_type(str(number), first, second))
    return found


def _majority(facts: list[bool]) -> bool:
    return bool(facts) and sum(facts) > len(facts) / 2


def _sentences(path: Path, requested: RequestedColumns, notes: Notes) -> list[TaggedExample]:
    suffix = path.suffix.lower()
    if suffix in TABLES:
        return _table_of_sentences(path, requested, notes)
    if suffix in COLUMN_FILES or _has_columns(_split(path, Notes())):
        return _in_bio(OWN_TAGS.read({PART: [path]}, RequestedColumns(requested.text), notes)[PART])
    return [TaggedExample(str(number), words_of(line), text=line) for number, line in enumerate(_split(path, notes))]


def _in_bio(examples: list[TaggedExample]) -> list[TaggedExample]:
    scheme = scheme_of(example.tags for example in examples if example.tags)
    if scheme == "plain":
        return examples
    return [
        replace(each, tags=tuple(repaired(to_bio(each.tags, scheme))[0])) if each.tags else each for each in examples
    ]


def _has_columns(lines: list[str]) -> bool:
    """Whether the lines are words in columns: mostly the same number of fields, and blank lines between sentences."""
    widths = Counter(len(line.split()) for line in lines if line.strip() and not line.startswith("#"))
    has_blanks = any(not line.strip() for line in lines[1:-1])
    return has_blanks and max(widths.values(), default=0) > MOSTLY * widths.total()


def _table_of_sentences(path: Path, requested: RequestedColumns, notes: Notes) -> list[TaggedExample]:
    table = read_table(path, notes)
    if not table.rows:
        return []
    trained = requested.trained.get("text")  # of split words; the inputs may be running text in another column
    name = requested.text or (trained if trained in table.columns else None)
    if len(table.columns) == 1 and name is None:
        column = table.columns[0]
    else:
        column = find_column(table, name, WORDS, "text", num_sure=2)
    notes.log(f"columns: words = '{column}'")
    found = []
    for number, row in enumerate(table.rows):
        if row.broken:
            notes.problem(f"kept_{row.broken[0]}", table.file, row.place, row.broken[1])
        cell = row.fields.get(column)
        found.append(sentence_in(key_of(row, None, number), _parsed_list(cell), column))
    return found


def _parsed_list(cell: object) -> object:
    """The list in a cell that contains a JSON list as text; other cells unchanged."""
    if isinstance(cell, str) and cell.lstrip().startswith("["):
        try:
            value = json.loads(cell)
        except json.JSONDecodeError:
            return cell
        return value if isinstance(value, list) else cell
    return cell
