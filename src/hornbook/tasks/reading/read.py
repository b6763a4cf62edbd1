"""The way in: a task's name and where its data is, to a `DataSet`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hornbook.tasks.datasets import KnownDataSet, known
from hornbook.tasks.reading.finish import finished
from hornbook.tasks.reading.layout import PART_NAMES, find_parts, wanted
from hornbook.tasks.reading.notes import Asked, Format, Notes
from hornbook.tasks.reading.rows import FORMATS, Table, in_memory
from hornbook.tasks.reading.split import HELD_OUT
from hornbook.tasks.records import PARTS, DataSet, Example


def read(
    task: str,
    data: str | Path | Any,
    *,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    trained: Mapping[str, str] | None = None,
    strict: bool = False,
    seed: int = 0,
    held_out: float = HELD_OUT,
    lone: str = "train",
) -> DataSet:
    """The examples of a task.

    `data` is a folder in the layout in which the data set was published, a file of it, a person's own table (CSV, TSV,
    JSON lines, JSON or Parquet) or a folder with train, dev and test tables, a data frame, a list of dictionaries, or
    several of these by the name of their part. A `DataSet` that was read before is answered as it is.
    `text`, `pair` and `label` name columns, `delimiter` and `encoding` say how files are written; what is not given is
    inferred. `trained` are the columns by role that a run was trained on: a table without them is refused. Where there
    is no dev part, the share `held_out` of train becomes one, drawn by `seed`; 0 leaves it out. With `strict`, the
    first problem in the data is a `ValueError`. A single file or table whose name does not say its part is the part
    `lone`.

    >>> read("sst-2", "glue/SST-2").labels  # doctest: +SKIP
    ('0', '1')
    """
    if isinstance(data, DataSet):
        return data
    entry, asked, notes = (
        known(task),
        Asked(text, pair, label, trained or {}),
        Notes(strict, format=Format(delimiter, encoding)),
    )
    if isinstance(data, str | Path):
        parts = _from_files(entry, Path(data).expanduser(), asked, notes, lone)
    else:
        parts = entry.own_layout.from_tables(_tables(data, notes, lone), asked, notes)
    return finished(entry, parts, notes, seed=seed, held_out=held_out)


def _tables(data: Any, notes: Notes, lone: str) -> dict[str, Table]:
    """What is in memory: one table, or several by the name of their part."""
    several = data if isinstance(data, Mapping) else {lone: data}
    names = {name: part for part, names in PART_NAMES.items() for name in names}
    if unknown := [name for name in several if name not in names]:
        raise ValueError(f"'{unknown[0]}' is no part of a data set: name it train, dev or test")
    tables = {names[name]: in_memory(each, f"the {names[name]} table", notes) for name, each in several.items()}
    notes.file_of.update({part: table.file for part, table in tables.items()})
    notes.tables.extend(tables.values())
    if not any(table.rows for table in tables.values()):
        raise ValueError("the table has no rows")
    return dict(sorted(tables.items(), key=lambda item: PARTS.index(item[0])))


def _from_files(entry: KnownDataSet, path: Path, asked: Asked, notes: Notes, lone: str) -> dict[str, list[Example]]:
    layout = entry.layout
    paths = find_parts(path, layout.files, layout.folder)
    if not paths or (path.is_file() and not _fits(path, layout.files)):
        layout = entry.own_layout
        paths = find_parts(path, layout.files)
    if not paths:
        raise ValueError(wanted(path, entry.layout.files, layout.files))
    if path.is_file() and "train" in paths and "train" not in path.name.lower():
        paths = {lone: paths["train"]}
    if asked and not layout.takes_columns:
        raise ValueError(f"{entry.name} has a layout of its own: leave text=, pair= and label= out")
    notes.file_of.update({part: str(files[0]) for part, files in paths.items()})
    return layout.read(paths, asked, notes)


def _fits(path: Path, files: dict) -> bool:
    """Whether a file may be one of the data set's own, told by its ending."""
    endings = {Path(name).suffix.lower() for names in files.values() for name in names}
    if path.suffix.lower() in endings:
        return True
    return path.suffix.lower() not in FORMATS
