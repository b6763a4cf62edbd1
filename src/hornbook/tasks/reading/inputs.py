"""Inputs to predict: in files, on standard input, and given in Python. Every input gives one example, even if it is
defective."""

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Unpack

from hornbook.data.csv_dialect import excel_delimiter
from hornbook.data.problems import problem_lines
from hornbook.data.text_encoding import encoding_of
from hornbook.metrics.formatting import cut
from hornbook.tasks.datasets import find_task
from hornbook.tasks.kinds import KINDS
from hornbook.tasks.reading.cells import is_missing
from hornbook.tasks.reading.choices import CONTEXTS
from hornbook.tasks.reading.infer_columns import PAIRS, TEXTS, infer_columns
from hornbook.tasks.reading.reader import Reader, ReadingOptions, RequestedColumns
from hornbook.tasks.reading.rows import Row, RowTable, in_memory, is_table
from hornbook.tasks.reading.spans import PASSAGES, QUESTIONS
from hornbook.tasks.reading.table_files import TABLE_SUFFIXES, is_streamed, line_pieces, read_table, table_pieces
from hornbook.tasks.reading.tagging import WORDS
from hornbook.tasks.reading.text_files import lines_of
from hornbook.tasks.reading.texts import CustomTexts, PublishedTable
from hornbook.tasks.records import Example
from hornbook.tasks.spec import TaskSpec
from hornbook.tasks.task import RegisteredTask, Task

COLUMNS = {*TEXTS, *QUESTIONS, *PASSAGES, *CONTEXTS, *WORDS, *(name for pair in PAIRS for name in pair)}
SUFFIX_OF_DELIMITER = {"\t": ".tsv", ",": ".csv", ";": ".csv"}


@dataclass(frozen=True)
class InputRow:
    """One input of a file, with its original columns (none if the file is not a table). `problem` describes its defect,
    if any; if `is_usable` is False, it cannot be predicted."""

    example: Example
    columns: dict[str, Any]
    problem: str = ""
    is_usable: bool = True


def read_input_rows(
    file: str | Path,
    spec: TaskSpec,
    log: Callable[[str], None] | None = None,
    **reading: Unpack[ReadingOptions],
) -> list[InputRow]:
    """The inputs of a file in order, as examples of the task of a run, with the original columns and the problem of
    each; labels in the file are kept.

    A table (CSV, TSV, JSON lines, JSON, Parquet) has one input per row. Its columns are those that the run was trained
    on, or inferred, unless `text` and `pair` name them; `delimiter` and `encoding` are detected where they are None.
    Other files have one input per line, including empty lines; a tab separates a text from its pair, a question from
    its passage, a context from its choices. Tagging also reads files with one word per line and blank lines between
    sentences; spans also reads SQuAD's JSON. `log` receives what was inferred and which problems were found; with
    `strict`, the first problem raises `ValueError`.
    """
    reader = Reader.of(trained_columns=spec.roles, needs_labels=False, **reading)
    examples = inputs_in(file, find_task(spec.name), reader)
    for message in [*reader.messages, *problem_lines(reader.problems.to_dict())] if log else ():
        log(message)
    rows = reader.tables[0].rows if reader.tables else [Row("")] * len(examples)
    return [_input_row(*each) for each in zip(examples, original_columns(examples, reader), rows, strict=True)]


def input_rows(items: Any, kind: str) -> list[InputRow]:
    """Inputs in memory as rows without original columns."""
    return [_input_row(example, {}, Row("")) for example in as_examples(items, kind)]


def _input_row(example: Example, columns: dict[str, Any], row: Row) -> InputRow:
    if row.defect:
        return InputRow(example, columns, row.defect[1] or row.defect[0], is_usable=False)
    problem = example.reason_unusable
    return InputRow(example, columns, "; ".join(filter(None, (row.repaired, problem))), not problem)


def original_columns(examples: list[Example], reader: Reader) -> list[dict[str, Any]]:
    """The original columns of each input: the cells of a table, or the id and question of SQuAD's JSON; none for other
    files."""
    if reader.tables:
        (table,) = reader.tables
        assert len(table.rows) == len(examples)
        empty = dict.fromkeys(table.columns)
        return [{name: _as_json(cell) for name, cell in (row.fields or empty).items()} for row in table.rows]
    if reader.files[0].lower().endswith(".json"):
        return [{"id": each.key, **each.inputs} for each in examples]
    return [{} for _ in examples]


def _as_json(cell: Any) -> Any:
    """The cell as a value that JSON can represent."""
    if is_missing(cell) and not isinstance(cell, str):
        return None
    return cell if isinstance(cell, str | int | float | list | dict) else str(cell)


def inputs_in(file: str | Path, registered: RegisteredTask, reader: Reader) -> list[Example]:
    """The inputs of a file for a registry entry; messages and problems are added to `reader`."""
    path = _existing(file)
    examples = _read(path, registered, reader)
    if not examples:
        raise ValueError(f"{path} contains no inputs: write one per line, or a table with one per row")
    return examples


def stream_inputs(
    file: str | Path, registered: RegisteredTask, reader: Reader
) -> Iterator[tuple[list[Example], list[dict[str, Any]]]]:
    """The inputs of a file with their original columns, in pieces that fit into memory. What is inferred about the
    file, such as its columns, is inferred from the first piece."""
    path = _existing(file)
    if not is_streamed(path):
        examples = inputs_in(path, registered, reader)
        yield examples, original_columns(examples, reader)
    elif path.suffix.lower() not in TABLE_SUFFIXES:
        num_lines, has_tabs = 0, None
        for lines in line_pieces(path, reader):
            has_tabs = _have_tabs(lines) if has_tabs is None else has_tabs
            yield _from_lines(lines, has_tabs, path, registered.task_class, reader, num_lines), [{} for _ in lines]
            num_lines += len(lines)
    else:
        columns: list[str] = []
        for table in table_pieces(path, reader):
            columns = columns or table.columns
            table.columns = list(dict.fromkeys([*columns, *table.columns]))  # a piece may have no value of a column
            reader.tables[:] = [table]
            examples = _from_table(table, registered.task_class, reader)
            reader.places.clear()
            yield examples, original_columns(examples, reader)
        reader.tables.clear()


def inputs_of_table(
    data: Any, registered: RegisteredTask, reader: Reader
) -> tuple[list[Example], list[dict[str, Any]]]:
    """The inputs of a table in memory, with their original columns."""
    table = in_memory(data, "the table", reader)
    if not table.rows:
        raise ValueError("the table has no rows: give at least one")
    reader.tables.append(table)
    examples = _from_table(table, registered.task_class, reader)
    return examples, original_columns(examples, reader)


def _existing(file: str | Path) -> Path:
    path = Path(file).expanduser()
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give a file in it")
    if not path.exists():
        raise ValueError(f"there is no file {path}: give a file with the inputs")
    return path


def _read(path: Path, registered: RegisteredTask, reader: Reader) -> list[Example]:
    layout = registered.layout
    examples = registered.task_class.read_file(path, registered, reader)
    if examples is not None:
        return examples
    if isinstance(layout, PublishedTable) and not reader.requested and _is_published(path, layout):
        return layout.read_inputs(path, reader)
    if path.suffix.lower() not in TABLE_SUFFIXES:
        lines = list(lines_of(path, reader))
        return _from_lines(lines, _have_tabs(lines), path, registered.task_class, reader)
    table = read_table(path, reader)
    return _from_table(table, registered.task_class, reader) if table.rows else []


def _from_table(table: RowTable, task_class: type[Task], reader: Reader) -> list[Example]:
    layout, text, requested = task_class.custom_layout, None, reader.requested
    if isinstance(layout, CustomTexts):
        if len(table.columns) == 1 and not requested and not requested.trained_columns:
            requested = RequestedColumns(table.columns[0])
        columns = infer_columns(table, requested, layout.problem_type, needs_label=False)
        reader.requested = replace(requested, text=columns.text, pair=columns.pair)
        text = columns.text if columns.pair is None else None
    for row in table.repair(text):
        reader.add_problem("kept_bad_row", table.file, row.place, row.repaired)
    return layout.inputs_of(table, reader)


def _is_published(path: Path, layout: PublishedTable) -> bool:
    """Whether a tab-separated file has the columns of the published layout."""
    if path.suffix.lower() not in (".tsv", ".txt"):
        return False
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        names = [name.strip() for name in file.readline().rstrip("\r\n").split("\t")]
    has_names = layout.text in names and (layout.pair is None or layout.pair in names)
    has_known_name = any(path.match(name) for files in layout.files.values() for name in files)
    return (has_names and len(names) > 1) or (has_known_name and len(names) == len(layout.column_names))


def _have_tabs(lines: list[str], at_least: int = 1) -> bool:
    """Whether most lines that are not empty have this many tabs."""
    has_tabs = [line.count("\t") >= at_least for line in lines if line.strip()]
    return 2 * sum(has_tabs) > len(has_tabs)


def _from_lines(
    lines: list[str], has_tabs: bool, path: Path, task_class: type[Task], reader: Reader, first_index: int = 0
) -> list[Example]:
    for line_number, line in enumerate(lines, first_index + 1):
        if not line.strip():
            reader.add_problem("kept_empty_text", str(path), f"line {line_number}", "the line is empty")
    if task_class.tab_separated and not has_tabs:
        raise ValueError(
            f"{path}: separate {task_class.tab_separated} by a tab on each line, or give a table with columns"
        )
    if has_tabs and task_class.label_scope != "choice":
        if _have_tabs(lines, 2):
            raise ValueError(
                f"{path} has more than two texts separated by tabs on each line: if it is a table whose first line "
                "names the columns, rename it to .tsv"
            )
        reader.log(f"{path}: the tab on each line separates the two texts")
    return [task_class.from_line(str(index), line, has_tabs) for index, line in enumerate(lines, first_index)]


# ---- standard input


@contextlib.contextmanager
def spooled(stream: BinaryIO, text: str | None = None, trained_columns: Iterable[str] = ()) -> Iterator[Path]:
    """Yields a temporary file with the content of the stream; its suffix is the inferred format. `text` is the text
    column, if the user named one; `trained_columns` are those that the run was trained on."""
    data = stream.read()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"standard-input{suffix_of(data, text, trained_columns)}"
        path.write_bytes(data)
        yield path


def suffix_of(data: bytes, text: str | None = None, trained_columns: Iterable[str] = ()) -> str:
    """The format of piped data: JSON if it starts like JSON, a table if the first line contains a usual column name or
    one of `trained_columns` (or, if given, `text`), otherwise one input per line.

    >>> suffix_of(b'{"text": "a"}'), suffix_of(b"id,review"), suffix_of(b"Well, a text")
    ('.jsonl', '.csv', '.txt')
    >>> suffix_of("sep=;\\r\\n번호;문의\\r\\n".encode("cp949"), trained_columns=["문의"])
    '.csv'
    """
    first, _, rest = data.decode(encoding_of(data), "replace").lstrip("\ufeff \t\r\n").partition("\n")
    if excel_delimiter(first.rstrip()):
        first = rest.partition("\n")[0]
    if first.startswith(("{", "[{")) or first.strip() == "[":
        return ".jsonl" if first.startswith("{") else ".json"
    names = {*COLUMNS, *map(str.lower, trained_columns)} if text is None else {text.lower()}
    for delimiter, suffix in SUFFIX_OF_DELIMITER.items():
        fields = [field.strip().strip('"').lower() for field in first.split(delimiter)]
        if len(fields) > 1 and names & set(fields):
            return suffix
    return ".txt" if text is None else ".csv"


# ---- inputs in Python


def as_examples(items: Any, kind: str, roles: Mapping[str, str] | None = None) -> list[Example]:
    """One example per item, with its index as key. A data frame gives one example per row. `roles` are the columns, by
    role, that the run was trained on: dictionaries and rows may use their names.

    >>> as_examples(["good", ("a cat", "an animal")], "classification")[1].pair
    'an animal'
    """
    if is_table(items):
        return _from_rows(items, "the table", KINDS[kind], roles or {})
    if isinstance(items, str | Mapping | Example) or not isinstance(items, Iterable):
        items = [items]
    return [_example(str(index), item, kind, roles or {}) for index, item in enumerate(items)]


def _example(key: str, item: Any, kind: str, roles: Mapping[str, str]) -> Example:
    example, task_class, name = None, KINDS[kind], f"input {int(key) + 1}"
    if isinstance(item, Mapping):
        (example,) = _from_rows([dict(item)], name, task_class, roles)
        return replace(example, key=key)
    if isinstance(item, Example):
        example = item if isinstance(item, task_class.example) else None
    elif isinstance(item, str):
        example = task_class.from_text(key, item)
    elif isinstance(item, tuple | list):
        example = task_class.from_list(key, item)
    if example is None:
        raise _invalid_error(name, repr(item), task_class)
    return example


def _from_rows(data: Any, name: str, task_class: type[Task], roles: Mapping[str, str]) -> list[Example]:
    """One example per row of a table in memory. The columns are those that the run was trained on, if the table has
    them; otherwise they are inferred."""
    table = in_memory(data, name, Reader())
    has_trained = all(roles[role] in table.columns for role in ("text", "pair") if role in roles)
    requested = RequestedColumns(trained_columns=roles if has_trained else {})
    try:
        return _from_table(table, task_class, Reader(needs_labels=False, requested=requested)) if table.rows else []
    except ValueError as error:
        raise _invalid_error(name, ", ".join(table.columns), task_class) from error


def _invalid_error(name: str, content: str, task_class: type[Task]) -> ValueError:
    return ValueError(f"{name} ({cut(content, 60)}) is invalid: this model takes {task_class.accepted_inputs}")
