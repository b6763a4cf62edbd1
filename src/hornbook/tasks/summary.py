"""A summary of labelled data before training: examples, classes, lengths, duplicates, overlap."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from hornbook.data.problems import LEFT_OUT_OF_TRAINING
from hornbook.tasks.kinds import KINDS
from hornbook.tasks.overlap import shown, text_hash
from hornbook.tasks.records import DataSet

MAX_CLASSES = 6  # listed by `summary_lines`
FEW_DEV_EXAMPLES = 20  # with fewer, the 95% interval of an accuracy is about 40 points wide
MAJORITY = 0.9  # fraction of the most frequent class from which accuracy says little


def summarize(data: DataSet) -> dict[str, Any]:
    """Counts of the data as plain values for JSON. An example is a duplicate where all of its texts occur in an earlier
    example of the split, and overlaps where they occur in the training split; case and white space do not count."""
    hashes = {name: [text_hash(example) for example in examples] for name, examples in data.splits.items()}
    train = set(hashes.get("train", []))
    splits = {}
    for name, examples in data.splits.items():
        in_train = [example for example, each in zip(examples, hashes[name], strict=True) if each in train]
        splits[name] = {
            "examples": len(examples),
            "unlabelled": sum(example.gold is None for example in examples),
            "duplicates": len(examples) - len(set(hashes[name])),
            **({} if name == "train" else {"also_in_train": len(in_train)}),
            **({"example_in_train": shown(in_train[0])} if name != "train" and in_train else {}),
            "characters": length_quantiles([sum(map(len, example.texts)) for example in examples]),
        }
    roles = {}
    for role, column in data.roles.items():
        names = [column] if column in data.columns else column.split(",")  # several columns of 0 and 1
        roles |= dict.fromkeys(names, role)
    problems = data.problems.to_dict()
    return {
        "kind": data.kind,
        "files": list(data.files),
        "columns": {column: roles.get(column) for column in data.columns} if roles else {},  # known sets have no roles
        "splits": splits,
        "left_out": {kind: problems[kind]["count"] for kind in problems if kind in LEFT_OUT_OF_TRAINING},
        **_labels(data),
        "inferred": list(data.messages),
        "hints": hints(data),
        "problems": problems,
    }


def hints(data: DataSet) -> list[str]:
    """Notes where the data is probably not what the user means, such as numbers that are read as classes."""
    return [f"note: {hint}" for hint in KINDS[data.kind].hints(data)]


def length_quantiles(lengths: Sequence[int]) -> dict[str, int]:
    """Minimum, median, 95th percentile and maximum, rounded down; empty for no lengths.

    >>> length_quantiles([3, 1, 2, 10])
    {'min': 1, 'median': 2, 'p95': 8, 'max': 10}
    """
    if not len(lengths):
        return {}
    values = np.quantile(lengths, (0, 0.5, 0.95, 1))
    return {name: int(value) for name, value in zip(("min", "median", "p95", "max"), values, strict=True)}


def _labels(data: DataSet) -> dict[str, Any]:
    """Counts of each class or tag per split, or statistics of other labels."""
    statistics = KINDS[data.kind].statistics(data)
    if statistics is not None:
        return statistics
    counts = {
        name: Counter(each for example in split for each in example.label_names) for name, split in data.splits.items()
    }
    names = list(dict.fromkeys([*data.labels, *(label for each in counts.values() for label in each)]))
    return {"classes": {label: {name: each[label] for name, each in counts.items()} for label in names}}


def summary_lines(summary: dict[str, Any]) -> list[str]:
    """The summary in a few lines; lines without content are omitted."""
    splits = summary["splits"]
    lines = ["data: " + ", ".join(f"{name} {each['examples']:,} examples" for name, each in splits.items())]
    if classes := summary.get("classes"):
        totals = sorted(((sum(each.values()), label) for label, each in classes.items()), reverse=True)
        shown = ", ".join(f"{label} {count:,}" for count, label in totals[:MAX_CLASSES])
        more = f" and {len(totals) - MAX_CLASSES} more" if len(totals) > MAX_CLASSES else ""
        lines[0] += f"; {shown}{more}"
    if numbers := summary.get("numbers"):
        lines[0] += f"; numbers from {numbers['min']:g} to {numbers['max']:g}, mean {numbers['mean']:.3g}"
    first = next(iter(splits.values()))["characters"]
    lines[0] += f"; median {first['median']:,} characters, longest {first['max']:,}" if first else ""
    in_train = [label for label, each in (classes or {}).items() if each.get("train")]
    if summary["kind"] == "classification" and len(in_train) == 1:
        lines.append(
            f"note: every training example has the label '{in_train[0]}', so finetune refuses the data: add examples "
            "of other classes"
        )
    lines += _majority(classes or {}) if summary["kind"] == "classification" else []
    num_dev = splits.get("dev", {}).get("examples", FEW_DEV_EXAMPLES)
    if num_dev < FEW_DEV_EXAMPLES:
        lines.append(
            f"note: dev has only {num_dev} examples, so scores on it mean little: give more examples, or a larger dev "
            "file"
        )
    for name, each in splits.items():
        if each["duplicates"]:
            lines.append(f"note: {each['duplicates']:,} of {each['examples']:,} examples of {name} are duplicates")
        if each.get("also_in_train"):
            lines.append(
                f"note: {each['also_in_train']:,} of {each['examples']:,} examples of {name} are also in train, such "
                f"as {each['example_in_train']}, so the score on {name} is too optimistic"
            )
    return lines


def _majority(classes: dict[str, dict[str, int]]) -> list[str]:
    """A note if nearly all training examples have the same class."""
    counts = {label: each.get("train", 0) for label, each in classes.items()}
    total = sum(counts.values())
    label = max(counts, key=counts.get, default="")
    if not MAJORITY * total < counts.get(label, 0) < total:
        return []
    percent = int(100 * counts[label] / total)
    return [
        f"note: {percent}% of the training examples have the label '{label}', so accuracy says little: compare with "
        "the majority baseline"
    ]
