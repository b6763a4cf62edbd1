"""Inputs to predict, given in Python, as examples: texts, pairs, questions with passages, sentences, choices."""

from collections.abc import Iterable, Mapping
from typing import Any

from hornbook.metrics.formatting import cut
from hornbook.tasks.kinds import KINDS
from hornbook.tasks.reading.notes import Notes
from hornbook.tasks.reading.rows import in_memory, is_table
from hornbook.tasks.records import Example


def as_examples(items: Any, kind: str, roles: Mapping[str, str] | None = None) -> list[Example]:
    """One example per item, with its index as key. A data frame gives one example per row. `roles` are the columns, by
    role, that the run was trained on: dictionaries and rows may use their names.

    >>> as_examples(["good", ("a cat", "an animal")], "classification")[1].pair
    'an animal'
    """
    if is_table(items):
        items = [row.fields for row in in_memory(items, "the table", Notes()).rows]
    elif isinstance(items, str | Mapping | Example) or not isinstance(items, Iterable):
        items = [items]
    return [_example(str(index), item, kind, roles or {}) for index, item in enumerate(items)]


def _example(key: str, item: Any, kind: str, roles: Mapping[str, str]) -> Example:
    example, task_kind = None, KINDS[kind]
    if isinstance(item, Example):
        example = item if isinstance(item, task_kind.example) else None
    elif isinstance(item, Mapping):
        fields = {str(name).lower(): value for name, value in item.items()}
        fields |= {role: item[column] for role, column in roles.items() if column in item}
        example = task_kind.from_fields(key, fields)
    elif isinstance(item, str):
        example = task_kind.from_text(key, item)
    elif isinstance(item, tuple | list):
        example = task_kind.from_list(key, item)
    if example is None:
        content = ", ".join(map(str, item)) if isinstance(item, Mapping) else repr(item)
        raise ValueError(f"input {int(key) + 1} ({cut(content, 60)}) is invalid: this model takes {task_kind.takes}")
    return example
