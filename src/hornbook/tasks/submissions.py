"""Prediction files in the formats of the official graders.

    GLUE       a zip of TSV files, `index` and `prediction`, with the file names and labels that its site requires
    SQuAD      predictions.json {question: answer}, "" for no answer; for 2.0 also na_prob.json
    CoQA       predictions.json, a list of {id, turn_id, answer}, "unknown" for no answer
    tagging    predictions.txt, one word per line with its tag in the scheme of the user's files; if known, the gold tag
               is the column between, as conlleval expects

`na_prob.json` holds 1 / (1 + exp(threshold - score)): above 0.5 where the question is left unanswered. The
official script searches its best threshold over these numbers.
"""

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from hornbook.files import replacing, write_text
from hornbook.tasks.datasets import KNOWN, find_task
from hornbook.tasks.records import Example
from hornbook.tasks.spec import TaskSpec
from hornbook.tasks.task import RegisteredTask

GLUE_FILES = {file: (name, split) for name, entry in KNOWN.items() for split, file in entry.submissions.items()}
Examples = Mapping[str, Sequence[Example]]  # by split
Predictions = Mapping[str, list]  # by split


def write_submission(
    out: str | Path, spec: TaskSpec, examples_by_split: Examples, predictions_by_split: Predictions
) -> list[str]:
    """Writes the submission files of a task to the folder `out`, or to a zip if `out` ends in .zip. Returns their
    names.

    An existing GLUE zip keeps the files of other tasks, so that several runs complete it; `missing_glue` lists the
    files still missing.
    """
    for split, examples in examples_by_split.items():
        if len(predictions_by_split[split]) != len(examples):
            raise ValueError(
                f"{split} has {len(examples)} examples but {len(predictions_by_split[split])} predictions; give one "
                "prediction per example"
            )
    registered = find_task(spec.name)
    if registered.submissions:
        files = _glue_files(registered, predictions_by_split)
    else:
        files = {}
        for split, predictions in predictions_by_split.items():
            ending = f"-{split}" if len(predictions_by_split) > 1 else ""
            files |= spec.task.submission(spec, examples_by_split[split], predictions, ending)
    _write(Path(out), files)
    return list(files)


def missing_glue(path: str | Path) -> list[str]:
    """The files that GLUE's grader requires and a zip or folder does not contain."""
    path = Path(path)
    if path.suffix.lower() == ".zip":
        with zipfile.ZipFile(path) as opened:
            present = set(opened.namelist())
    else:
        present = {file.name for file in path.iterdir()}
    return [file for file in GLUE_FILES if file not in present]


def _glue_files(registered: RegisteredTask, predictions_by_split: Predictions) -> dict[str, str]:
    files = {
        registered.submissions[split]: _glue_table(registered, predictions)
        for split, predictions in predictions_by_split.items()
        if split in registered.submissions
    }
    if not files:
        required, splits = " and ".join(registered.submissions), ", ".join(predictions_by_split)
        raise ValueError(
            f"a {registered.name} submission needs the split {required}, but the predictions are of {splits}"
        )
    return files


def _glue_table(registered: RegisteredTask, predictions: list) -> str:
    lines = [
        f"{index}\t{registered.task_class.as_glue_label(prediction, registered)}"
        for index, prediction in enumerate(predictions)
    ]
    return "\n".join(["index\tprediction", *lines]) + "\n"


def _write(out: Path, files: Mapping[str, str]) -> None:
    if out.suffix.lower() != ".zip":
        for name, content in files.items():
            write_text(out / name, content)
        return
    if out.exists() and files.keys() <= GLUE_FILES.keys():
        files = _others(out, files) | dict(files)
    with replacing(out) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in files.items():
            opened.writestr(name, content)


def _others(path: Path, ours: Mapping[str, str]) -> dict[str, str]:
    """The files of other GLUE tasks in an existing zip."""
    try:
        with zipfile.ZipFile(path) as opened:
            names = [name for name in opened.namelist() if name in GLUE_FILES and name not in ours]
            return {name: opened.read(name).decode() for name in names}
    except zipfile.BadZipFile:
        raise ValueError(f"{path} exists and is not a zip file: remove it or choose another name") from None
