"""The task of a fine-tuned model: built from data, saved to `task.json` in the model folder, loaded to predict.

`config.json` holds what `transformers` reads too (the head, `id2label`); `task.json` holds the rest: measures, the
no-answer threshold, the number of endings, the tag scheme, the maximum sequence length.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hornbook.files import read_json, refusing_damage, write_json
from hornbook.models.outputs import Output
from hornbook.tasks.datasets import KnownDataSet, known
from hornbook.tasks.features import Task
from hornbook.tasks.kinds.choice import Choice
from hornbook.tasks.kinds.classification import Classification
from hornbook.tasks.kinds.spans import RULES, Spans
from hornbook.tasks.kinds.tagging import Tagging
from hornbook.tasks.records import DataSet

FILE = "task.json"
COLUMNS = {"text", "pair", "label"}
KIND_OF_OUTPUT: dict[str, str] = {
    "sequence": "classification",
    "tokens": "tagging",
    "spans": "spans",
    "choice": "choice",
}


@dataclass(frozen=True)
class SavedTask:
    """`name`: as given by the user; `scheme`: tag scheme of the user's files; `longest`: maximum number of tokens per
    sequence; `has_pairs`: whether the examples are text pairs; `columns`: the columns named by the user; `roles`:
    column by role (text, pair, label, key). None where unknown."""

    name: str
    kind: str
    task: Task
    scheme: str | None = None
    longest: int | None = None
    has_pairs: bool | None = None
    columns: dict[str, str] | None = None
    roles: dict[str, str] | None = None


def output_for(data: DataSet, head: str = "linear", pairs: str = "joint", answerable: bool = False) -> Output:
    """The model output that the data needs."""
    if data.kind == "spans":
        return Output("spans", 2, answerable=answerable)
    if data.kind == "choice":
        return Output("choice")
    if data.kind == "tagging":
        return Output("tokens", len(data.labels), data.labels)
    if data.kind == "regression":
        return Output("sequence", 1, ("score",), "number", head, pairs)
    return Output("sequence", len(data.labels), data.labels, "multi" if data.is_multi else "single", head, pairs)


def make_task(named: KnownDataSet, data: DataSet, output: Output) -> SavedTask:
    """The task for a registry entry, its data and the model output."""
    first = next(example for part in data.parts.values() for example in part)
    num_endings = len(first.endings) if data.kind == "choice" else 0
    details = {
        "measures": list(_measures(named, data)),
        "positive": named.positive if named.positive in data.labels else None,
        "or_none": named.may_be_none,
        "rules": named.name if named.name in RULES else "squad2" if named.may_be_none else "squad",
        "num_endings": num_endings,
    }
    has_pairs = first.has_pair
    task = _task(data.kind, output, details)
    return SavedTask(named.name, data.kind, task, data.scheme, has_pairs=has_pairs, roles=data.roles or None)


def _measures(named: KnownDataSet, data: DataSet) -> tuple[str, ...]:
    if data.kind == "tagging":
        return named.measures if data.scheme != "plain" else ("tag_accuracy",)
    return named.measures


def _task(kind: str, output: Output, details: dict[str, Any]) -> Task:
    measures = tuple(details.get("measures") or ())
    if kind == "spans":
        return Spans(
            output,
            measures or ("f1", "exact"),
            or_none=bool(details.get("or_none")),
            rules=details.get("rules") or "squad",
            threshold=float(details.get("threshold", 0.0)),
        )
    if kind == "tagging":
        plain = not any(label.startswith(("B-", "I-")) for label in output.labels)
        return Tagging(output, measures or (("tag_accuracy",) if plain else ("entity_f1", "tag_accuracy")))
    if kind == "choice":
        return Choice(output, int(details.get("num_endings") or 4), measures or ("accuracy",))
    positive, defaults = details.get("positive"), {"number": "regression", "multi": "multi-label"}
    if output.problem == "single":
        measures = tuple("macro_f1" if name == "f1" and positive is None else name for name in measures)
        return Classification(output, measures or ("accuracy",), positive)
    return Classification(output, measures or known(defaults[output.problem]).measures)


def save_task(folder: Path, saved: SavedTask) -> None:
    task = saved.task
    names = ("measures", "positive", "or_none", "rules", "threshold", "num_endings")
    details = {name: getattr(task, name) for name in names if hasattr(task, name)}
    about = {"task": saved.name, "kind": saved.kind}
    about |= {name: getattr(saved, name) for name in ("scheme", "longest", "has_pairs", "columns", "roles")}
    write_json(folder / FILE, about | details)


def load_task(folder: Path, output: Output) -> SavedTask:
    """The task of a run folder; for a folder written by `transformers`, the task inferred from its head."""
    file = folder / FILE
    if not file.is_file():
        kind = "regression" if output.problem == "number" else KIND_OF_OUTPUT[output.kind]
        name = "multi-label" if output.problem == "multi" else kind
        return SavedTask(name, kind, _task(kind, output, {}))
    details = read_json(file)
    if details.get("kind") not in (*KIND_OF_OUTPUT.values(), "regression"):
        raise ValueError(f"{file} has no valid 'kind', so it was not written by a run or was changed; restore it")
    columns = details.get("columns") or {}
    if not isinstance(columns, dict) or not columns.keys() <= COLUMNS or not all(map(_is_text, columns.values())):
        raise ValueError(f"{file} is damaged (its columns are not names of text, pair and label): restore the file")
    with refusing_damage(file):
        return _saved(details, output)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _saved(details: dict, output: Output) -> SavedTask:
    return SavedTask(
        details.get("task", details["kind"]),
        details["kind"],
        _task(details["kind"], output, details),
        details.get("scheme"),
        details.get("longest"),
        details.get("has_pairs"),
        details.get("columns"),
        details.get("roles"),
    )
