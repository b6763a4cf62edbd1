"""The folder of a probe or a baseline, with its scores.

OUT/run.json              the request, the data, and what was fitted
OUT/scores.json           standard metrics with intervals, in the format of fine-tuning
OUT/predictions-dev.jsonl the prediction and the label of each dev example
OUT/task.json             metrics and threshold
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hornbook.files import write_json
from hornbook.lifecycle.requests import changed_values
from hornbook.lifecycle.run_folder import RECORD, RunFolder, recorded
from hornbook.runs.finetuning.inputs import LabelledTask
from hornbook.runs.finetuning.record import FinetuneRequest, refuse_other_data, write_task_record
from hornbook.runs.finetuning.scores import TaskResult, score_splits, write_predictions, write_scores
from hornbook.tasks.records import DataSet, Example


def start_run(
    out: Path, command: str, request: FinetuneRequest, options: dict[str, Any], data: DataSet
) -> TaskResult | None:
    """Records the request and returns None, or returns the scores if the same request is already finished in `out`.
    Raises a `ValueError` for a different request, unless the earlier one produced nothing."""
    folder = RunFolder(out, command)
    if folder.is_started(resume=True):
        run = folder.read_record(lambda run: dict(run["request"]))
        if [path.name for path in out.iterdir()] != [RECORD]:
            # The data may have moved: its content is compared.
            folder.refuse(changed_values(run["request"] | {"data": request.data}, request.to_dict() | options))
            refuse_other_data(folder, run, data)
            return TaskResult.read(out) if folder.is_finished else None
    write_task_record(folder, request, data, options)
    return None


def finish(
    out: Path, inputs: LabelledTask, predict: Callable[[str, list[Example]], list], fitted: dict[str, Any]
) -> TaskResult:
    """Scores `predict`, which takes the name of a split and its examples, on every labelled split; writes results."""
    scored = score_splits(inputs, predict)
    write_predictions(out, inputs, scored)
    info = {"metric_for_best": scored.task.metrics[0], "train_examples": len(inputs.train), "fitted": fitted}
    splits = {"dev": inputs.dev, **inputs.other_splits()}
    num_not_scored = {name: len(inputs.data.splits[name]) - len(each) for name, each in splits.items()}
    info["not_scored"] = {name: num for name, num in num_not_scored.items() if num}
    write_json(out / RECORD, recorded(out) | info)
    write_scores(out, inputs, scored, losses=[])
    return TaskResult.read(out)
