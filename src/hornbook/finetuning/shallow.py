"""What probes and baselines have in common: a folder with the scores of a model that is not the whole network.

OUT/run.json              what was asked, the data, and what was fitted
OUT/scores.json           official scores with intervals, in the form in which fine-tuning writes them
OUT/predictions-dev.jsonl what was said of each dev example, beside what is right
OUT/task.json             measures and threshold
"""

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hornbook.files import read_json, write_json, write_text
from hornbook.finetuning.evaluation import verdict
from hornbook.finetuning.inputs import Inputs, Log, is_scored, read_labelled, training_part
from hornbook.finetuning.record import SCORES, Request, Scored, asked_of, refuse_other_data
from hornbook.finetuning.settings import FinetuneSettings, settings_for
from hornbook.tasks.datasets import KnownDataSet
from hornbook.tasks.evaluation import rows, tuned, with_intervals
from hornbook.tasks.records import DataSet, Example
from hornbook.tasks.saved import SavedTask, make_task, output_for, save_task
from hornbook.tasks.spans import Spans

Predict = Callable[[list[Example]], list]  # predictions of the task, one for each example, in their order


@dataclass(frozen=True)
class Labelled:
    """The data of a task without any network: what `Inputs` has besides it."""

    named: KnownDataSet
    data: DataSet
    settings: FinetuneSettings
    saved: SavedTask
    train: list[Example]
    threshold_part: list[Example]

    @cached_property
    def dev(self) -> list[Example]:
        return [each for each in self.data.parts["dev"] if is_scored(each, self.named)]


def open_labelled(request: Request, data: Any, log: Log) -> Labelled:
    """The same examples that fine-tuning would train on, for the same request."""
    named, found = read_labelled(request, data, log)
    settings = settings_for(named, None, request.all_overrides())
    saved = make_task(named, found, output_for(found))
    return Labelled(named, found, settings, saved, *training_part(found, named, settings))


def begin(out: Path, verb: str, request: Request, asked: dict[str, Any], data: DataSet) -> Scored | None:
    """Writes down what was asked. What is there already from the same words is the answer; other words are refused,
    unless they came to nothing."""
    wanted = request.to_dict() | asked
    if (out / "run.json").exists():
        run = read_json(out / "run.json")
        if run.get("command") != verb:
            raise ValueError(f"{out} holds a run of '{run.get('verb')}' and not of '{verb}': choose another --out")
        differences = [
            f"{name} {run['request'].get(name)}, not {value}"
            for name, value in wanted.items()
            if value != run["request"].get(name)
        ]
        came_to_nothing = [path.name for path in out.iterdir()] == ["run.json"]
        if differences and not came_to_nothing:
            raise ValueError(f"{out} was begun with {'; '.join(differences)}: choose another --out")
        if not came_to_nothing:
            refuse_other_data(run, data)
            return read_scored(out) if (out / SCORES).exists() else None
    write_json(out / "run.json", asked_of(verb, request, data) | {"request": wanted})
    return None


def finish(out: Path, inputs: Inputs | Labelled, predict: Predict, fitted: dict[str, Any]) -> Scored:
    """Scores what `predict` says of every labelled part."""
    task, dev = inputs.saved.task, inputs.dev
    predictions = predict(dev)
    task = tuned(task, dev, predictions)
    parts = {"dev": with_intervals(task, dev, predictions := _under(task, predictions))}
    if inputs.threshold_part:
        beside = tuned(task, inputs.threshold_part, predict(inputs.threshold_part))
        name = "dev, threshold chosen on a part of train"
        parts[name] = with_intervals(beside, dev, _under(beside, predictions))
    others = scored_parts(inputs)
    for name, examples in others.items():
        parts[name] = with_intervals(task, examples, _under(task, predict(examples)))
    save_task(out, dataclasses.replace(inputs.saved, task=task))
    lines = [json.dumps(row, ensure_ascii=False) for row in rows(task, dev, predictions)]
    write_text(out / "predictions-dev.jsonl", "\n".join(lines) + "\n")
    about = {"decided_by": task.measures[0], "train_examples": len(inputs.train), "fitted": fitted}
    about["not_scored"] = {
        name: num for name, each in {"dev": dev, **others}.items() if (num := len(inputs.data.parts[name]) - len(each))
    }
    write_json(out / "run.json", read_json(out / "run.json") | about)
    wrong = verdict(task, inputs.train, dev, predictions, parts["dev"], [])
    write_json(out / SCORES, {"decided_by": task.measures[0], "degenerate": wrong, "parts": parts})
    return read_scored(out)


def scored_parts(inputs: Inputs | Labelled) -> dict[str, list[Example]]:
    """What can be scored of each part besides train and dev; a part without any such example does not come."""
    parts = {
        name: [each for each in examples if is_scored(each, inputs.named)]
        for name, examples in inputs.data.parts.items()
        if name not in ("train", "dev")
    }
    return {name: examples for name, examples in parts.items() if examples}


def _under(task: Any, predictions: list) -> list:
    return task.thresholded(predictions) if isinstance(task, Spans) and task.or_none else predictions


def read_scored(out: Path) -> Scored:
    found = read_json(out / SCORES)
    return Scored(out, found["parts"], found["decided_by"], found["degenerate"])
