"""What probes and baselines share: an output folder with the scores of a shallow model.

OUT/run.json              the request, the data, and what was fitted
OUT/scores.json           official scores with intervals, in the format of fine-tuning
OUT/predictions-dev.jsonl the prediction and the label of each dev example
OUT/task.json             measures and threshold
"""

import dataclasses
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hornbook.files import read_json, write_json, write_text
from hornbook.lifecycle.resuming import changed_values
from hornbook.lifecycle.run_folder import RECORD, SCORES, RunFolder, recorded
from hornbook.runs.finetuning.evaluation import verdict
from hornbook.runs.finetuning.inputs import Inputs, Log, is_scored, read_labelled, training_split
from hornbook.runs.finetuning.record import FinetuneRequest, Scored, refuse_other_data, write_task_record
from hornbook.runs.finetuning.settings import FinetuneSettings, settings_for
from hornbook.tasks.datasets import KnownDataSet
from hornbook.tasks.evaluation import rows, with_intervals
from hornbook.tasks.kind import Predict
from hornbook.tasks.records import DataSet, Example
from hornbook.tasks.saved import SavedTask, make_task, output_for, save_task


@dataclass(frozen=True)
class Labelled:
    """The data of a task without a model: the other fields of `Inputs`."""

    named: KnownDataSet
    data: DataSet
    settings: FinetuneSettings
    saved: SavedTask
    train: list[Example]
    threshold_part: list[Example]

    @cached_property
    def dev(self) -> list[Example]:
        return [each for each in self.data.parts["dev"] if is_scored(each, self.named)]


def open_labelled(request: FinetuneRequest, data: Any, log: Log) -> Labelled:
    """Reads the examples that fine-tuning would train on for the same request."""
    named, found = read_labelled(request, data, log)
    settings = settings_for(named, None, request.all_overrides())
    saved = make_task(named, found, output_for(found))
    return Labelled(named, found, settings, saved, *training_split(found, named, settings))


def start_run(
    out: Path, command: str, request: FinetuneRequest, options: dict[str, Any], data: DataSet
) -> Scored | None:
    """Records the request and returns None, or returns the scores if the same request is already finished in `out`.
    Raises a `ValueError` for a different request, unless the earlier one produced nothing."""
    folder = RunFolder(out, command)
    if folder.is_started(resume=True):
        run = folder.read_record(lambda run: dict(run["request"]))
        if [path.name for path in out.iterdir()] != [RECORD]:
            folder.refuse(changed_values(run["request"], request.to_dict() | options))
            refuse_other_data(folder, run, data)
            return read_scored(out) if folder.is_finished else None
    write_task_record(folder, request, data, options)
    return None


def finish(out: Path, inputs: Inputs | Labelled, predict: Predict, fitted: dict[str, Any]) -> Scored:
    """Scores `predict` on every labelled split and writes the results."""
    task, dev = inputs.saved.task, inputs.dev
    predictions = predict(dev)
    task = task.tuned(dev, predictions)
    parts = {"dev": with_intervals(task, dev, predictions := task.thresholded(predictions))}
    if inputs.threshold_part:
        tuned_on_train = task.tuned(inputs.threshold_part, predict(inputs.threshold_part))
        name = "dev, threshold chosen on a part of train"
        parts[name] = with_intervals(tuned_on_train, dev, tuned_on_train.thresholded(predictions))
    others = scored_splits(inputs)
    for name, examples in others.items():
        parts[name] = with_intervals(task, examples, task.thresholded(predict(examples)))
    save_task(out, dataclasses.replace(inputs.saved, task=task))
    lines = [json.dumps(row, ensure_ascii=False) for row in rows(task, dev, predictions)]
    write_text(out / "predictions-dev.jsonl", "\n".join(lines) + "\n")
    about = {"decided_by": task.measures[0], "train_examples": len(inputs.train), "fitted": fitted}
    about["not_scored"] = {
        name: num for name, each in {"dev": dev, **others}.items() if (num := len(inputs.data.parts[name]) - len(each))
    }
    write_json(out / RECORD, recorded(out) | about)
    wrong = verdict(task, inputs.train, dev, predictions, parts["dev"], [])
    write_json(out / SCORES, {"decided_by": task.measures[0], "degenerate": wrong, "parts": parts})
    return read_scored(out)


def scored_splits(inputs: Inputs | Labelled) -> dict[str, list[Example]]:
    """The examples with labels of each split besides train and dev; splits without any are left out."""
    splits = {
        name: [each for each in examples if is_scored(each, inputs.named)]
        for name, examples in inputs.data.parts.items()
        if name not in ("train", "dev")
    }
    return {name: examples for name, examples in splits.items() if examples}


def read_scored(out: Path) -> Scored:
    found = read_json(out / SCORES)
    return Scored(out, found["parts"], found["decided_by"], found["degenerate"])
