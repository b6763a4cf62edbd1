"""The task of a fine-tuned model: built from data, saved to `task.json` in the model folder, loaded to predict.

`config.json` holds what `transformers` reads too (the head, `id2label`); `task.json` holds the rest: metrics, the
no-answer threshold, the number of choices, the tag scheme, the maximum sequence length.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hornbook.files import read_json, refusing_damage, write_json
from hornbook.models.head_config import HeadConfig, HeadOptions
from hornbook.tasks.kinds import KINDS, kind_for
from hornbook.tasks.records import DataSet
from hornbook.tasks.task import RegisteredTask, Task

TASK_FILE = "task.json"
# Fields of `TaskSpec` in `task.json`.
SAVED = ("scheme", "max_length", "has_pairs", "columns", "roles", "reason", "graph")
COLUMNS = {"text", "pair", "label"}


@dataclass(frozen=True)
class TaskSpec:
    """A task and what is known of its data, as `task.json` holds it.

    `name`: as given by the user; `scheme`: tag scheme of the user's files; `max_length`: maximum number of tokens per
    sequence; `has_pairs`: whether the examples are text pairs; `columns`: the columns named by the user; `roles`:
    column by role (text, pair, label, key); `reason`: the knowledge graph whose paths it reads; `graph`: folder and
    fingerprint of the graph to which texts are linked. None where unknown."""

    name: str
    task: Task
    scheme: str | None = None
    max_length: int | None = None
    has_pairs: bool | None = None
    columns: dict[str, str] | None = None
    roles: dict[str, str] | None = None
    reason: dict | None = None
    graph: dict[str, str] | None = None


def head_config_for(data: DataSet, **options: Any) -> HeadConfig:
    """The model output that the data needs. `options` are those of `HeadOptions`."""
    return KINDS[data.kind].head_config_for(data, HeadOptions(**options))


def make_task(registered: RegisteredTask, data: DataSet, head_config: HeadConfig) -> TaskSpec:
    """The task for a registry entry, its data and the model output."""
    task_class = KINDS[data.kind]
    first = next(example for split in data.splits.values() for example in split)
    task = task_class.build(head_config, task_class.details_for(registered, data))
    return TaskSpec(registered.name, task, data.scheme, has_pairs=first.has_pair, roles=data.roles or None)


def save_task(folder: Path, spec: TaskSpec) -> None:
    record = {"task": spec.name, "kind": spec.task.kind} | {name: getattr(spec, name) for name in SAVED}
    write_json(folder / TASK_FILE, record | spec.task.details())


def load_task(folder: Path, head_config: HeadConfig) -> TaskSpec:
    """The task of a run folder; for a folder written by `transformers`, the task inferred from its head."""
    file = folder / TASK_FILE
    if not file.is_file():
        task = kind_for(head_config).build(head_config, {})
        return TaskSpec(task.kind, task)
    details = read_json(file)
    if details.get("kind") not in list(KINDS):
        raise ValueError(f"{file} has no valid 'kind', so it was not written by a run or was changed; restore it")
    with refusing_damage(file):
        columns = details.get("columns") or {}
        if not columns.keys() <= COLUMNS or not all(isinstance(name, str) for name in columns.values()):
            raise ValueError("its columns are not names of text, pair and label")
        task = KINDS[details["kind"]].build(head_config, details)
        if not all(each in (*task.default_metrics, *task.other_metrics) for each in task.metrics):
            raise ValueError(f"its metrics are not those of {task.kind}")
        return TaskSpec(details.get("task", task.kind), task, **{name: details.get(name) for name in SAVED})
