"""Entry point: reads the data of a task into a `DataSet`, with unique keys, tags in BIO, a held-out dev split and the
list of labels."""

import hashlib
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar, Unpack

from hornbook.data.problems import LEFT_OUT_OF_TRAINING
from hornbook.tasks.datasets import find_task
from hornbook.tasks.overlap import text_hash
from hornbook.tasks.reading.cells import sorted_labels
from hornbook.tasks.reading.layout import SPLIT_NAMES, Patterns, find_splits, no_files_message
from hornbook.tasks.reading.reader import Reader, ReadingOptions
from hornbook.tasks.reading.rows import RowTable, in_memory
from hornbook.tasks.reading.table_files import TABLE_SUFFIXES
from hornbook.tasks.records import SPLITS, DataSet, Example, SpanExample, Splits, TextExample
from hornbook.tasks.task import RegisteredTask

E = TypeVar("E")
HELD_OUT = 0.1  # fraction of train that becomes the dev split if there is none
LARGEST_SHARE = 3  # whole articles are held out if they take at most this many times the fraction
MIN_EXAMPLES, MIN_HELD_OUT = 4, 2  # minimum number of examples; a correlation needs two
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
    registered, reader = find_task(task), Reader.of(trained_columns=trained_columns, **reading)
    if isinstance(data, str | Path):
        splits = _from_files(registered, Path(data).expanduser(), reader, default_split)
    else:
        splits = registered.custom_layout.from_tables(_tables(data, reader, default_split), reader)
    return _data_set(registered, splits, reader, seed=seed, held_out=held_out)


def _tables(data: Any, reader: Reader, default_split: str) -> dict[str, RowTable]:
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
    tables = {names[name]: in_memory(each, f"the {names[name]} table", reader) for name, each in several.items()}
    reader.file_of.update({split: table.file for split, table in tables.items()})
    reader.tables.extend(tables.values())
    if not any(table.rows for table in tables.values()):
        raise ValueError("the table has no rows: give at least one")
    return dict(sorted(tables.items(), key=lambda item: SPLITS.index(item[0])))


def _from_files(registered: RegisteredTask, path: Path, reader: Reader, default_split: str) -> Splits:
    layout = registered.layout
    paths = find_splits(path, layout.files, layout.folder, default_split)
    if not paths or (path.is_file() and not _fits(path, layout.files)):
        layout = registered.custom_layout
        paths = find_splits(path, layout.files, default_split=default_split)
    if not paths:
        raise ValueError(no_files_message(path, registered.layout.files, layout.files))
    if reader.requested and not layout.takes_columns:
        raise ValueError(f"{registered.name} has a fixed layout: leave out text=, pair= and label=")
    reader.file_of.update({split: str(files[0]) for split, files in paths.items()})
    return layout.read(paths, reader)


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


def _data_set(registered: RegisteredTask, splits: Splits, reader: Reader, *, seed: int, held_out: float) -> DataSet:
    """The data set of examples that were read: with unique keys, in the form that the task needs, with a dev split."""
    splits = {split: splits[split] for split in sorted(splits, key=_order)}
    if not any(splits.values()):
        reason = reader.problems.most_frequent(*REASONS) or ", ".join(reader.files)
        has_bad_numbers = reader.problems.count("bad_number") > 0
        remedy = (
            "write numbers such as 1234.5, or name another label with label=" if has_bad_numbers else "check the data"
        )
        raise ValueError(f"no example could be read ({reason}): {remedy}")
    for split in [split for split in splits if not splits[split]]:
        reader.log(f"the {split} split has no examples and is ignored")
        del splits[split]
    splits, scheme = registered.task_class.with_bio_tags(splits, reader)
    splits = {split: _with_unique_keys(examples, split, reader) for split, examples in splits.items()}
    if held_out and "dev" not in splits and len(splits.get("train", ())) > 1:
        splits = _with_dev(splits, reader, seed, held_out)
    splits = registered.task_class.in_scored_form(splits, reader)
    labels = _labels(registered, splits, scheme, reader) if registered.task_class.has_labels else ()
    return DataSet(
        kind=registered.kind,
        splits=splits,
        labels=labels,
        problems=reader.problems,
        messages=tuple(reader.messages),
        files=tuple(dict.fromkeys(reader.files)),
        scheme=scheme,
        roles=reader.roles,
        columns=tuple(reader.tables[0].columns) if reader.tables else (),
    )


def _order(split: str) -> tuple[int, str]:
    return (SPLITS.index(split.partition("-")[0]), split)


def _with_unique_keys(examples: list[Example], split: str, reader: Reader) -> list[Example]:
    """Examples with unique keys, as predictions are stored by key; repeated keys get a number."""
    if len({example.key for example in examples}) == len(examples):
        return examples
    seen: set[str] = set()
    renamed, numbers = [], Counter()  # the last number that each repeated key got
    for example in examples:
        key = example.key
        while key in seen:
            numbers[example.key] += 1
            key = f"{example.key}#{numbers[example.key] + 1}"
        if key != example.key:
            reader.add_example_problem(
                "repeated_key", split, example.key, f"'{example.key}' occurs twice, renamed to '{key}'"
            )
            example = replace(example, key=key)
        seen.add(key)
        renamed.append(example)
    return renamed


def _with_dev(splits: Splits, reader: Reader, seed: int, fraction: float) -> Splits:
    if len(splits["train"]) < MIN_EXAMPLES and (skipped := reader.problems.most_frequent(*REASONS)):
        raise ValueError(
            f"only {len(splits['train'])} examples can be used, too few to hold some out; the rest were skipped "
            f"({skipped}): repair them, or give at least {MIN_EXAMPLES} rows"
        )
    train, dev, how = hold_out(splits["train"], fraction, seed)
    share, total = "a tenth, " if fraction == HELD_OUT else f"{fraction:.0%}, ", len(train) + len(dev)
    if abs(len(dev) / total - fraction) > 0.05:  # of few examples, or in large groups
        share = ""
    reader.log(f"{len(dev):,} of {total:,} examples ({share}{how}, seed {seed}) are held out for validation")
    return {"train": train, "dev": dev} | {split: each for split, each in splits.items() if split != "train"}


def _labels(registered: RegisteredTask, splits: Splits, scheme: str, reader: Reader) -> tuple[str, ...]:
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
                    reader.add_example_problem("unseen_label", split, example.key, f"'{name}' is not in train")
    return labels


# ---- splitting off a held-out set


def split_off(
    examples: Sequence[E],
    fraction: float,
    seed: int,
    strata: Callable[[E], Hashable] | None = None,
    at_least: int = 1,
) -> tuple[list[E], list[E]]:
    """(remaining examples, examples split off), both in their original order.

    Each stratum contributes its `fraction`, and one example if it has two and another stratum can contribute one less.
    Every stratum keeps at least one example, unless this splits off fewer than `at_least` in total. The selection
    depends only on the seed and the indices of the examples.
    """
    if not 0 < fraction < 1:
        raise ValueError(f"the fraction to hold out must be between 0 and 1, not {fraction}")
    by_stratum: dict[Hashable, list[int]] = defaultdict(list)
    for index, example in enumerate(examples):
        by_stratum[strata(example) if strata else None].append(index)
    strata_indices, nums = list(by_stratum.values()), []  # nums: how many each stratum contributes
    owed = 0.0  # carried over between strata, so that small ones contribute their fraction together
    for indices in strata_indices:
        owed += len(indices) * fraction
        nums.append(min(int(owed + 0.5), len(indices) - 1))
        owed = min(owed - nums[-1], 1.0)  # limits what a large stratum contributes for many single-example ones
    while sum(nums) < min(at_least, len(examples) - 1):
        remaining = [len(indices) - num for indices, num in zip(strata_indices, nums, strict=True)]
        nums[remaining.index(max(remaining))] += 1
    for i, indices in enumerate(strata_indices):
        if nums[i] == 0 and len(indices) > 1 and max(nums) > 1:
            nums[nums.index(max(nums))] -= 1
            nums[i] = 1
    selected = {
        index for indices, num in zip(strata_indices, nums, strict=True) for index in _shuffled(indices, seed)[:num]
    }
    return _divided(examples, selected)


def split_groups(
    examples: Sequence[E], fraction: float, seed: int, group: Callable[[E], Hashable], at_least: int = 1
) -> tuple[list[E], list[E]]:
    """As `split_off`, but by whole groups in random order, until they have this `fraction` and at least `at_least`
    examples. At least one group always remains."""
    groups = {indices[0]: indices for indices in _groups(examples, group)}
    selected: set[int] = set()
    for first in _shuffled(list(groups), seed)[: len(groups) - 1]:
        if len(selected) >= max(fraction * len(examples), at_least):
            break
        selected.update(groups[first])
    return _divided(examples, selected)


def by_article(examples: Sequence[SpanExample]) -> tuple[list[SpanExample], list[SpanExample]]:
    """(train, dev) by whole articles, about half each, for data of which only one published split is available. The
    split of an article depends only on its title, not on the rest of the file."""
    halves: tuple[list[SpanExample], list[SpanExample]] = ([], [])
    for example in examples:
        digest = hashlib.sha256(example.title.encode("utf-8", "surrogatepass")).digest()
        halves[digest[-1] % 2].append(example)
    return halves


def hold_out(examples: list[Example], fraction: float, seed: int) -> tuple[list[Example], list[Example], str]:
    """(train, dev, description of the split: by article, by passage, by label or at random). Examples with the same
    texts, apart from case and white space, are on the same side; one that occurs more often than `fraction` of the data
    stays in train."""
    if len(examples) < MIN_EXAMPLES:
        raise ValueError(
            f"{len(examples)} examples are too few to hold some out: give at least {MIN_EXAMPLES}, or a separate dev "
            "split"
        )
    by_group = []
    for group, how in examples[0].kept_together:
        train, dev = split_groups(examples, fraction, seed, attrgetter(group), MIN_HELD_OUT)
        if len(dev) >= MIN_HELD_OUT:
            by_group.append((train, dev, how))
    if by_group:
        largest = max(MIN_HELD_OUT, LARGEST_SHARE * fraction * len(examples))
        return next((each for each in by_group if len(each[1]) <= largest), by_group[-1])
    groups = _groups(examples, text_hash)
    small = [indices for indices in groups if len(indices) <= max(1, fraction * len(examples))]
    single = [[index] for index in range(len(examples))]
    chosen = next(each for each in (small, groups, single) if len(each) >= MIN_EXAMPLES)
    strata, how = None, "at random"
    if examples[0].is_stratified:
        strata, how = (lambda indices: _stratum(examples[indices[0]])), "by label"
    _, held_out = split_off(chosen, fraction, seed, strata, MIN_HELD_OUT)
    if chosen is not single and len(groups) < len(examples):
        how += ", equal texts together"
    return *_divided(examples, {index for indices in held_out for index in indices}), how


def _stratum(example: TextExample) -> Hashable:
    return example.label[:1] if isinstance(example.label, tuple) else example.label


def _groups(examples: Sequence[E], group: Callable[[E], Hashable]) -> list[list[int]]:
    """The indices of the examples of each group, in order of their first example."""
    by_group: dict[Hashable, list[int]] = defaultdict(list)
    for index, example in enumerate(examples):
        by_group[group(example)].append(index)
    return list(by_group.values())


def _divided(examples: Sequence[E], selected: set[int]) -> tuple[list[E], list[E]]:
    rest = [example for index, example in enumerate(examples) if index not in selected]
    return rest, [examples[index] for index in sorted(selected)]


def _shuffled(indices: list[int], seed: int) -> list[int]:
    """Shuffled by hash rather than by a random generator: the order is the same on every machine and version."""
    return sorted(indices, key=lambda index: hashlib.sha256(f"{seed}:{index}".encode()).digest())
