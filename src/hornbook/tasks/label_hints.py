"""Hints where labels, as they were read, are probably not what the user means."""

import textwrap
from collections import Counter, defaultdict

from hornbook.tasks.reading.cells import SEPARATORS, is_decimal_comma, is_number
from hornbook.tasks.records import DataSet

MISSING = ("n/a", "#n/a", "na", "nan", "nil", "null", "none", "-", "--", "?")  # lower-case names of missing values
MANY_NUMBERS = 20  # more of them are seldom classes
MANY_CLASSES = 20
MANY_SINGLE_NUMBERS = 10  # where most examples have a number of their own


def heading_hint(data: DataSet) -> str | None:
    """A hint if the name of the label column looks like a label, as in a file without a row of column names."""
    column = data.roles.get("label")
    if column is None or not (column in data.labels or is_number(column)):
        return None
    return (
        f"the label column is named '{column}', like a label: if the first row is data, add a row of column names "
        "above it"
    )


def missing_hint(data: DataSet) -> str | None:
    """A hint if names of missing values are learned as classes."""
    counts = Counter(label for split in data.splits.values() for each in split for label in each.label_names)
    named = [f"'{label}' ({counts[label]:,} rows)" for label in data.labels if label.lower() in MISSING]
    if not named:
        return None
    return (
        f"{', '.join(named)} may stand for a missing label, but is learned as a class: empty these cells to leave the "
        "rows out"
    )


def capitals_hint(data: DataSet) -> str | None:
    """A hint if the names of classes differ only in capitals."""
    counts = Counter(label for split in data.splits.values() for each in split for label in each.label_names)
    spellings = defaultdict(list)
    for label in sorted(counts):
        spellings[label.casefold()].append(f"'{label}' ({counts[label]:,} rows)")
    alike = [" and ".join(names) for names in spellings.values() if len(names) > 1]
    if not alike:
        return None
    return f"{', '.join(alike)} differ only in capitals, but are learned as different classes: spell them alike"


def contradictions_hint(data: DataSet) -> str | None:
    """A hint if an equal text, or pair of texts, has different labels in several examples."""
    labels = defaultdict(set)
    for split in data.splits.values():
        for example in split:
            if example.gold is not None:
                labels[example.texts].add(example.gold)
    contradictory = [texts for texts, names in labels.items() if len(names) > 1]
    if not contradictory:
        return None
    num, first = len(contradictory), contradictory[0]
    text = textwrap.shorten(first[0], 60, placeholder=" ...")
    return (
        f"{num:,} {'text occurs' if num == 1 else 'texts occur'} with different labels, such as '{text}' "
        f"({', '.join(sorted(labels[first]))}): correct the labels"
    )


def numbers_hint(data: DataSet) -> str | None:
    """A hint if the classes are probably quantities. Consecutive numbers from 0 or 1 are the ids of classes."""
    labels = [label for label in data.labels if label.lower() not in MISSING]
    if is_decimal_comma(labels):
        labels = [label.replace(",", ".") for label in labels]
    if not labels or not all(map(is_number, labels)):
        return None
    numbers = sorted(map(float, labels))
    are_ids = all(map(float.is_integer, numbers)) and numbers[0] in (0, 1) and numbers[-1] <= 2 * len(numbers)
    are_single = len(numbers) >= MANY_SINGLE_NUMBERS and 2 * len(numbers) >= sum(map(len, data.splits.values()))
    if not are_single and (are_ids or len(numbers) <= MANY_NUMBERS):
        return None
    column = f"'{data.roles['label']}' has" if "label" in data.roles else "the labels are"
    return f"{column} {len(numbers)} different numbers: use task='regression' to predict numbers"


def rare_classes_hint(data: DataSet) -> str | None:
    """A hint if most of many classes have a single example, as if the label were a date or a name."""
    counts = Counter(label for split in data.splits.values() for each in split for label in each.label_names)
    num_single = sum(count == 1 for count in counts.values())
    if len(counts) <= MANY_CLASSES or 2 * num_single <= len(counts) or numbers_hint(data):
        return None
    return (
        f"{num_single:,} of {len(counts):,} classes have a single example, too few to learn them: check that label= "
        "names the right column, or give more examples of each class"
    )


def single_label_hint(data: DataSet) -> str | None:
    """A hint if no example of multi-label data has several labels."""
    num_labels = [len(example.label_names) for split in data.splits.values() for example in split]
    if max(num_labels, default=0) != 1:
        return None
    num_empty = num_labels.count(0)
    empty = f", and {num_empty:,} {'has' if num_empty == 1 else 'have'} none" if num_empty else ""
    return (
        f"no example has several labels{empty}: use task='classification' if every text has exactly one, or name "
        "another column by label="
    )


def several_labels_hint(data: DataSet) -> str | None:
    """A hint if classes are names of other classes with a separator between them. A comma may be a part of a name,
    so all names around it must be classes."""
    if is_decimal_comma(data.labels):
        return None
    names = set(data.labels)
    for separator in SEPARATORS:
        for label in data.labels:
            parts = {name.strip() for name in label.split(separator)}
            if len(parts) > 1 and (parts <= names or (separator != "," and parts & names)):
                return f"'{label}' looks like several labels: use task='multi-label' to predict each of them"
    return None
