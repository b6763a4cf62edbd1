"""Entry point: reads the data of a task into a `DataSet`, with unique keys, tags in BIO, a held-out dev split and the
list of labels."""

import itertools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from hornbook.data.problems import LEFT_OUT_OF_TRAINING
from hornbook.tasks.datasets import find_task
from hornbook.tasks.reading.cells import sorted_labels
from hornbook.tasks.reading.layout import SPLIT_NAMES, Patterns, find_splits, no_files_message
from hornbook.tasks.reading.notes import Notes, ReadingOptions
from hornbook.tasks.reading.rows import RowTable, in_memory
from hornbook.tasks.reading.split import HELD_OUT, MIN_EXAMPLES, hold_out
from hornbook.tasks.reading.table_files import TABLE_SUFFIXES
from hornbook.tasks.records import SPLITS, DataSet, Example, Splits
from hornbook.tasks.task import RegisteredTask

REASONS = ("empty_file", "unreadable", *LEFT_OUT_OF_TRAINING)


def read(
    task: str,
    data: str | Path | Any,
    *,
    trained_columns: Mapping[str, str] | None = None,
    seed: int = 0,
    held_out: float = HELD_OUT,
    default_split: str = "train",
    **reading: Unpack[ReadingOptions],
) -> DataSet:
    """The examples of a task.

    `data`: a folder in the published layout of the data set or one of its files, a user's own table (CSV, TSV, JSON
    lines, JSON, Parquet or Excel) or a folder with train, dev and test tables, a data frame, a list of dictionaries, or
    a mapping from split names to data frames or lists. A `DataSet` is returned unchanged. `text`, `pair` and `label`
    name columns, `delimiter` and `encoding` describe the files; what is not given is inferred. `trained_columns`: the
    columns, by role, that a run was trained on; a table without them is refused. `held_out`: fraction of train that
    becomes the dev split if there is none, selected by `seed`; 0 makes none. With `strict`, the first problem in the
    data raises `ValueError`. `default_split`: the split of a single file or table whose name does not tell.

    >>> read("sst-2", "glue/SST-2").labels  # doctest: +SKIP
    ('0', '1')
    """
    if isinstance(data, DataSet):
        return data
    registered, notes = find_task(task), Notes.of(trained_columns=trained_columns, **reading)
    if isinstance(data, str | Path):
        splits = _from_files(registered, Path(data).expanduser(), notes, default_split)
    else:
        splits = registered.custom_layout.from_tables(_tables(data, notes, default_split), notes)
    return _data_set(registered, splits, notes, seed=seed, held_out=held_out)


def _tables(data: Any, notes: Notes, default_split: str) -> dict[str, RowTable]:
    """The tables of data in memory: one table, or several by split name."""
    several = data if isinstance(data, Mapping) else {default_split: data}
    names = {name: split for split, names in SPLIT_NAMES.items() for name in names}
    if unknown := [name for name in several if name not in names]:
        raise ValueError(
            f"'{unknown[0]}' is not a split: use train, dev or test; for columns, give a data frame or a list of "
            "dictionaries"
        )
    for name, other in itertools.combinations(several, 2):
        if names[name] == names[other]:
            raise ValueError(f"'{name}' and '{other}' both name the {names[name]} split: give only one of them")
    tables = {names[name]: in_memory(each, f"the {names[name]} table", notes) for name, each in several.items()}
    notes.file_of.update({split: table.file for split, table in tables.items()})
    notes.tables.extend(tables.values())
    if not any(table.rows for table in tables.values()):
        raise ValueError("the table has no rows: give at least one")
    return dict(sorted(tables.items(), key=lambda item: SPLITS.index(item[0])))


def _from_files(registered: RegisteredTask, path: Path, notes: Notes, default_split: str) -> Splits:
    layout = registered.layout
    paths = find_splits(path, layout.files, layout.folder, default_split)
    if not paths or (path.is_file() and not _fits(path, layout.files)):
        layout = registered.custom_layout
        paths = find_splits(path, layout.files, default_split=default_split)
    if not paths:
        raise ValueError(no_files_message(path, registered.layout.files, layout.files))
    if notes.requested and not layout.takes_columns:
        raise ValueError(f"{registered.name} has a fixed layout: leave out text=, pair= and label=")
    notes.file_of.update({split: str(files[0]) for split, files in paths.items()})
    return layout.read(paths, notes)


def _fits(path: Path, patterns: Patterns) -> bool:
    """Whether the suffix of a file allows it to be one of the published files."""
    suffixes = {Path(name).suffix.lower() for names in patterns.values() for name in names}
    return path.suffix.lower() in suffixes or path.suffix.lower() not in TABLE_SUFFIXES


def evaluation_texts(task: str, data: str | Path) -> list[str]:
    """The text of each of a task's examples outside its training split, to keep them out of a corpus."""
    splits = read(task, data, held_out=0, default_split="dev").splits
    texts = [" ".join(each.texts) for name, examples in splits.items() if name != "train" for each in examples]
    if not texts:
        raise ValueError(f"{data} has no dev or test split of {task}: give the folder of its files")
    return texts


def _data_set(registered: RegisteredTask, splits: Splits, notes: Notes, *, seed: int, held_out: float) -> DataSet:
    """The data set of examples that were read: with unique keys, in the form that the task needs, with a dev split."""
    splits = {split: splits[split] for split in sorted(splits, key=_order)}
    if not any(splits.values()):
        reason = notes.problems.most_frequent(*REASONS) or ", ".join(notes.files)
        has_bad_numbers = notes.problems.count("bad_number") > 0
        remedy = (
            "write numbers such as 1234.5, or name another label with label=" if has_bad_numbers else "check the data"
        )
        raise ValueError(f"no example could be read ({reason}): {remedy}")
    for split in [split for split in splits if not splits[split]]:
        notes.log(f"the {split} split has no examples and is ignored")
        del splits[split]
    splits, scheme = registered.task_class.with_bio_tags(splits, notes)
    splits = {split: _with_unique_keys(examples, split, notes) for split, examples in splits.items()}
    if held_out and "dev" not in splits and len(splits.get("train", ())) > 1:
        splits = _with_dev(splits, notes, seed, held_out)
    splits = registered.task_class.in_scored_form(splits, notes)
    labels = _labels(registered, splits, scheme, notes) if registered.task_class.has_labels else ()
    return DataSet(
        kind=registered.kind,
        splits=splits,
        labels=labels,
        problems=notes.problems,
        messages=tuple(notes.messages),
        files=tuple(dict.fromkeys(notes.files)),
        scheme=scheme,
        roles=notes.roles,
        columns=tuple(notes.tables[0].columns) if notes.tables else (),
    )


def _order(split: str) -> tuple[int, str]:
    return (SPLITS.index(split.partition("-")[0]), split)


def _with_unique_keys(examples: list[Example], split: str, notes: Notes) -> list[Example]:
    """Examples with unique keys, as predictions are stored by key; repeated keys get a number."""
    if len({example.key for example in examples}) == len(examples):
        return examples
    seen: set[str] = set()
    renamed = []
    for example in examples:
        key, number = example.key, 2
        while key in seen:
            key, number = f"{example.key}#{number}", number + 1
        if key != example.key:
            notes.add_example_problem(
                "repeated_key", split, example.key, f"'{example.key}' occurs twice, renamed to '{key}'"
            )
            example = replace(example, key=key)
        seen.add(key)
        renamed.append(example)
    return renamed


def _with_dev(splits: Splits, notes: Notes, seed: int, fraction: float) -> Splits:
    if len(splits["train"]) < MIN_EXAMPLES and (skipped := notes.problems.most_frequent(*REASONS)):
        raise ValueError(
            f"only {len(splits['train'])} examples can be used, too few to hold some out; the rest were skipped "
            f"({skipped}): repair them, or give at least {MIN_EXAMPLES} rows"
        )
    train, dev, how = hold_out(splits["train"], fraction, seed)
    share = "a tenth" if fraction == HELD_OUT else f"{fraction:.0%}"
    notes.log(
        f"{len(dev):,} of {len(train) + len(dev):,} examples ({share}, {how}, seed {seed}) are held out for validation"
    )
    return {"train": train, "dev": dev} | {split: each for split, each in splits.items() if split != "train"}


def _labels(registered: RegisteredTask, splits: Splits, scheme: str, notes: Notes) -> tuple[str, ...]:
    """The labels of the training split, or of all splits if there is none; labels only in other splits are recorded as
    problems."""
    label_splits = ["train"] if splits.get("train") else list(splits)
    seen = {name for split in label_splits for example in splits[split] for name in example.label_names}
    if scheme not in ("", "plain"):
        types = sorted({name[2:] for name in seen if name != "O"})
        labels = ("O", *(f"{mark}-{name}" for name in types for mark in "BI"))
        seen = set(labels)
    else:
        labels = registered.labels if seen <= set(registered.labels) else sorted_labels(seen)
    for split in splits:
        for example in splits[split] if split not in label_splits else ():
            for name in example.label_names:
                if name not in seen:
                    notes.add_example_problem("unseen_label", split, example.key, f"'{name}' is not in train")
    return labels
