"""Prediction files in the formats of the official graders.

    GLUE       a zip of TSV files, `index` and `prediction`, with the file names and labels that its site requires
    SQuAD      predictions.json {question: answer}, "" for no answer; for 2.0 also na_prob.json
    CoQA       predictions.json, a list of {id, turn_id, answer}, "unknown" for no answer
    tagging    predictions.txt, one word per line with its tag in the scheme of the user's files; if known, the gold tag
               is the column between, as conlleval expects

`na_prob.json` holds 1 / (1 + exp(threshold - score)): above 0.5 where the question is left unanswered. The
official script searches its best threshold over these numbers.
"""

import json
import math
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hornbook.files import replacing, write_text
from hornbook.tasks.classification import ClassPrediction
from hornbook.tasks.datasets import KNOWN, KnownDataSet, known
from hornbook.tasks.records import Example, SpanExample, TaggedExample
from hornbook.tasks.saved import SavedTask
from hornbook.tasks.schemes import from_bio
from hornbook.tasks.spans import SpanPrediction, Spans
from hornbook.tasks.tagging import TagPrediction

STSB_RANGE = (0.0, 5.0)
GLUE_FILES = {file: (name, part) for name, entry in KNOWN.items() for part, file in entry.submissions.items()}
Examples = Mapping[str, Sequence[Example]]  # by split
Predictions = Mapping[str, list]  # by split


def write_submission(
    out: str | Path, saved: SavedTask, examples_by_part: Examples, predictions_by_part: Predictions
) -> list[str]:
    """Writes the submission files of a task to the folder `out`, or to a zip if `out` ends in .zip. Returns their
    names.

    An existing GLUE zip keeps the files of other tasks, so that several runs complete it; `missing_glue` lists the
    files still missing.
    """
    for part, examples in examples_by_part.items():
        if len(predictions_by_part[part]) != len(examples):
            raise ValueError(
                f"{part} has {len(examples)} examples but {len(predictions_by_part[part])} predictions; give one "
                "prediction per example"
            )
    entry = known(saved.name)
    if entry.submissions:
        files = _glue_files(entry, predictions_by_part)
    elif isinstance(saved.task, Spans):
        files = _span_files(saved, examples_by_part, predictions_by_part)
    elif saved.kind == "tagging":
        files = {
            f"predictions{ending}.txt": "\n".join(_column_lines(examples_by_part[part], found, saved.scheme or "BIO"))
            for part, ending, found in _parts(predictions_by_part)
        }
    else:
        raise ValueError(f"{saved.name} has no official submission format: write the predictions as JSON or CSV")
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


def _glue_files(entry: KnownDataSet, predictions: Predictions) -> dict[str, str]:
    graded = {part: found for part, found in predictions.items() if part in entry.submissions}
    if not graded:
        required, given = " and ".join(entry.submissions), ", ".join(predictions)
        raise ValueError(f"a {entry.name} submission needs the split {required}, but the predictions are of {given}")
    return {entry.submissions[part]: _glue_table(entry, found) for part, found in graded.items()}


def _glue_table(entry: KnownDataSet, predictions: list) -> str:
    lines = [f"{number}\t{_glue_label(entry, found)}" for number, found in enumerate(predictions)]
    return "\n".join(["index\tprediction", *lines]) + "\n"


def _glue_label(entry: KnownDataSet, prediction: ClassPrediction | float) -> str:
    if entry.kind == "regression":
        low, high = STSB_RANGE
        return f"{min(max(prediction, low), high):.3f}"
    if prediction.label not in entry.labels:
        raise ValueError(
            f"the grader of {entry.name} accepts {', '.join(entry.labels)}, but the model predicts "
            f"'{prediction.label}': fine-tune on the published files"
        )
    return prediction.label


def _parts(predictions: Predictions) -> Iterator[tuple[str, str, list]]:
    """(split, suffix of its file names, predictions); the suffix is empty for a single split."""
    for part, found in predictions.items():
        yield part, f"-{part}" if len(predictions) > 1 else "", found


def _span_files(saved: SavedTask, examples: Examples, predictions: Predictions) -> dict[str, str]:
    files = {}
    for part, ending, found in _parts(predictions):
        pairs = list(zip(examples[part], found, strict=True))
        if saved.name == "coqa":
            files[f"predictions{ending}.json"] = _json([_turn(*pair) for pair in pairs])
            continue
        files[f"predictions{ending}.json"] = _json({each.key: prediction.answer for each, prediction in pairs})
        if saved.task.or_none:
            threshold = saved.task.threshold
            probabilities = {each.key: _no_answer_probability(prediction, threshold) for each, prediction in pairs}
            files[f"na_prob{ending}.json"] = _json(probabilities)
    return files


def _turn(example: SpanExample, prediction: SpanPrediction) -> dict:
    story, _, turn = example.key.partition("#")[0].rpartition("-")
    return {"id": story, "turn_id": int(turn), "answer": prediction.answer or "unknown"}


def _no_answer_probability(prediction: SpanPrediction, threshold: float) -> float:
    return 0.5 * (1 + math.tanh((prediction.no_answer_score - threshold) / 2))


def _column_lines(
    examples: Sequence[TaggedExample], predictions: Sequence[TagPrediction], scheme: str
) -> Iterator[str]:
    for example, prediction in zip(examples, predictions, strict=True):
        columns = [[word.replace(" ", "_") or "_" for word in example.words]]
        if example.tags is not None:
            columns.append(from_bio(example.tags, scheme))
        columns.append(from_bio(prediction.tags, scheme))
        yield from map(" ".join, zip(*columns, strict=True))
        yield ""


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False) + "\n"


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
