"""The layout of a data set: finds the files of each split in a folder, and reads them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hornbook.tasks.reading.reader import Reader
from hornbook.tasks.reading.rows import Row, RowTable
from hornbook.tasks.reading.table_files import TABLE_SUFFIXES, read_table
from hornbook.tasks.records import Example, Splits

Patterns = Mapping[str, Sequence[str]]  # for each split, file names or patterns; the first that exists is used
Paths = Mapping[str, list[Path]]  # the files of each split
Tables = Mapping[str, RowTable]  # the table of each split

SPLIT_NAMES = {"train": ("train", "training"), "dev": ("dev", "validation", "valid", "val", "eval"), "test": ("test",)}
INPUT_SPLIT = "test"  # that inputs to predict are read as: it keeps all examples, and labels may be missing
KNOWN_STEMS = {name for names in SPLIT_NAMES.values() for name in names}
OTHER_FOLDERS = {"manifest.json": "a corpus", "run.json": "a run", "config.json": "a model"}  # by a file in them
OTHER_FOLDERS |= {"tokenizer.json": "a tokenizer"}
TEXT_SUFFIXES = {".txt", ".md", ".gz"}
SHARD = re.compile(r"-\d+-of-\d+\.")


def custom_patterns(suffixes: Sequence[str] = TABLE_SUFFIXES) -> Patterns:
    """Patterns for a user's own folder: train.csv, validation.jsonl, test-00000-of-00002.parquet and similar."""
    return {
        split: [
            name + ending
            for name in names
            for suffix in suffixes
            for ending in (suffix, f"-*-of-*{suffix}")  # shards of one table, as on the Hugging Face Hub
        ]
        for split, names in SPLIT_NAMES.items()
    }


@dataclass(frozen=True, kw_only=True)
class FileLayout:
    """How the files of a data set are found and read. `folder`: name of the subfolder where they may be."""

    files: Patterns = field(default_factory=custom_patterns)
    folder: str = ""
    takes_columns: bool = False  # the user may name columns

    def read(self, paths: Paths, reader: Reader) -> Splits:
        return {
            split: [example for path in files for example in self.read_file(path, split, reader)]
            for split, files in paths.items()
        }

    def read_inputs(self, path: Path, reader: Reader) -> list[Example]:
        """The inputs to predict in a file."""
        return self.read({INPUT_SPLIT: [path]}, reader)[INPUT_SPLIT]

    def read_file(self, path: Path, split: str, reader: Reader) -> Sequence[Example]:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class TabularLayout(FileLayout):
    """Tables, as files or in memory; several files of a split are concatenated."""

    takes_columns: bool = True

    def read(self, paths: Paths, reader: Reader) -> Splits:
        tables = {split: _concatenated([self.table(path, reader) for path in files]) for split, files in paths.items()}
        return self.from_tables(tables, reader)

    def table(self, path: Path, reader: Reader) -> RowTable:
        return read_table(path, reader)

    def from_tables(self, tables: Tables, reader: Reader) -> Splits:
        raise NotImplementedError

    def inputs_of(self, table: RowTable, reader: Reader) -> list[Example]:
        """The inputs to predict in a table."""
        return self.from_tables({INPUT_SPLIT: table}, reader)[INPUT_SPLIT]


def _concatenated(tables: list[RowTable]) -> RowTable:
    if len(tables) == 1:
        return tables[0]
    rows = [
        Row(f"{Path(table.file).name} {row.place}", row.fields, row.defect) for table in tables for row in table.rows
    ]
    columns = list(dict.fromkeys(column for table in tables for column in table.columns))
    return RowTable(f"{tables[0].file} and {len(tables) - 1} more", columns, rows)


def main_table(tables: Tables) -> tuple[str, RowTable]:
    """(split, table) that determines the columns of all splits: the first with rows, which is train if there is one."""
    split, table = next(((split, table) for split, table in tables.items() if table.rows), next(iter(tables.items())))
    if not table.rows:
        raise ValueError(f"{table.file} has no rows: check the file, or give another")
    return split, table


def find_splits(path: Path, patterns: Patterns, inner: str = "", default_split: str = "train") -> Paths:
    """The files of each split. For a file, its split is inferred from its name, and is `default_split` if the name does
    not tell; in a folder without matching files, its subfolder `inner` is searched too."""
    if not path.exists():
        raise ValueError(f"{path} does not exist: check the spelling")
    if path.is_file():
        return {split_of(path, patterns) or default_split: [path]}
    for folder in (path, *_named(path, inner)):
        paths = {split: files for split, names in patterns.items() if (files := _first(folder, names))}
        if paths:
            return paths
    return {}


def split_of(path: Path, patterns: Patterns) -> str | None:
    """The split that the name of a file tells, if any. Published names of a training file may not tell, as such a file
    may be the whole data set."""
    for split, names in patterns.items():
        if split != "train" and any(path.match(name) for name in names):
            return split
    words = re.split(r"[^a-z]+", path.name.lower())
    return next(
        (split for split in ("test", "dev", "train") if any(name in words for name in SPLIT_NAMES[split])), None
    )


def no_files_message(path: Path, *several: Patterns) -> str:
    """The error message for a folder without any matching files."""
    names = dict.fromkeys(name for patterns in several for files in patterns.values() for name in files)
    published = [name for name in names if "-*-of-" not in name and Path(name).stem not in KNOWN_STEMS]
    suffixes = dict.fromkeys(Path(name).suffix for name in names if Path(name).stem in KNOWN_STEMS)
    own = [f"{split}{suffix}" for suffix in list(suffixes)[:1] for split in SPLIT_NAMES]
    alternatives = f" (or {', '.join(list(suffixes)[1:])})" if len(suffixes) > 1 else ""
    expected = [*published, *own]
    contents = ", ".join(sorted(each.name for each in path.iterdir())[:10])
    if not contents:
        return f"{path} is empty: put {(own or expected)[0]}{alternatives} there, or give a file"
    found = next((what for name, what in OTHER_FOLDERS.items() if (path / name).is_file()), None)
    endings = {each.suffix.lower() for each in path.iterdir() if each.is_file()}
    if not found and endings <= TEXT_SUFFIXES and not any(Path(name).suffix.lower() == ".txt" for name in names):
        found = f"a folder of plain text ({contents})"
    if found:
        needed = "a folder with" if published else "a table with a column for the text and one for the label, such as"
        return f"{path} is {found}, which has no labels: give {needed} {expected[0]}{alternatives}"
    return (
        f"{path} contains none of the expected files: {', '.join(expected)}{alternatives}; only {contents}: rename a "
        "file, or give its path"
    )


def _named(path: Path, inner: str) -> list[Path]:
    return [each for each in sorted(path.iterdir()) if each.is_dir() and inner and each.name.lower() == inner.lower()]


def _first(folder: Path, names: Sequence[str]) -> list[Path]:
    for name in names:
        files = sorted(file for file in folder.glob(name) if file.is_file())
        if len(files) > 1 and not all(SHARD.search(file.name) for file in files):
            several = ", ".join(file.name for file in files)
            raise ValueError(f"{folder} has several files that match {name} ({several}): give the path of one of them")
        if files:
            return files
    return []
