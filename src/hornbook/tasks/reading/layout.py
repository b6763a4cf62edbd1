"""Which file of a folder holds which part of a data set."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from hornbook.tasks.reading.rows import FORMATS

Patterns = Mapping[str, Sequence[str]]  # for each part, names or patterns, of which the first that is there is taken

PART_NAMES = {"train": ("train", "training"), "dev": ("dev", "validation", "valid", "val", "eval"), "test": ("test",)}
SHARD = re.compile(r"-\d+-of-\d+\.")


def own_patterns(suffixes: Sequence[str] = FORMATS) -> Patterns:
    """Of a person's own folder: train.csv, validation.jsonl, test-00000-of-00002.parquet and the like."""
    return {
        part: [
            name + ending
            for name in names
            for suffix in suffixes
            for ending in (suffix, f"-*-of-*{suffix}")  # parts of one table, as some hubs write them
        ]
        for part, names in PART_NAMES.items()
    }


def find_parts(path: Path, patterns: Patterns, inner: str = "") -> dict[str, list[Path]]:
    """The files of each part that is there. A file stands for itself, its part told by its name; in a folder without
    any of them, the folder `inner` within is looked into as well."""
    if not path.exists():
        raise ValueError(f"{path} does not exist: check the spelling")
    if path.is_file():
        return {part_of(path, patterns): [path]}
    for folder in (path, *_named(path, inner)):
        found = {part: files for part, names in patterns.items() if (files := _first(folder, names))}
        if found:
            return found
    return {}


def part_of(path: Path, patterns: Patterns) -> str:
    for part, names in patterns.items():
        if any(path.match(name) for name in names):
            return part
    words = re.split(r"[^a-z]+", path.name.lower())
    for part in ("test", "dev"):
        if any(name in words for name in PART_NAMES[part]):
            return part
    return "train"


def wanted(path: Path, *several: Patterns) -> str:
    """What is said of a folder in which nothing was found."""
    names = dict.fromkeys(name for patterns in several for files in patterns.values() for name in files)
    shown = [name for name in names if "-*-of-" not in name]
    there = sorted(each.name for each in path.iterdir())
    holds = ", ".join(there[:10]) or "nothing"
    return f"{path} holds none of the files that were looked for ({', '.join(shown)}); it holds: {holds}"


def _named(path: Path, inner: str) -> list[Path]:
    return [each for each in sorted(path.iterdir()) if each.is_dir() and inner and each.name.lower() == inner.lower()]


def _first(folder: Path, names: Sequence[str]) -> list[Path]:
    for name in names:
        files = sorted(file for file in folder.glob(name) if file.is_file())
        if len(files) > 1 and not all(SHARD.search(file.name) for file in files):
            several = ", ".join(file.name for file in files)
            raise ValueError(f"{folder} has several files that could be meant by {name} ({several}): give one of them")
        if files:
            return files
    return []
