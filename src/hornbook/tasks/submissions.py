"""Predictions in the files that the graders of published data sets take.

    GLUE       a zip of TSV files, `index` and `prediction`, with the names and labels that its site asks for
    SQuAD      predictions.json {question: answer}, "" where there is none; for 2.0 na_prob.json beside it
    CoQA       predictions.json, a list of {id, turn_id, answer}, "unknown" where there is none
    tags       predictions.txt, a word a line with its tag in the scheme of the person's files; where the right tag is
               known it stands between, as conlleval reads it

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
Examples = Mapping[str, Sequence[Example]]  # by part
Predictions = Mapping[str, list]  # by part


def write_submission(
    out: str | Path, saved: SavedTask, examples_by_part: Examples, predictions_by_part: Predictions
) -> list[str]:
    """Writes the files of a task into a folder or, where `out` ends in .zip, into a zip; the names of the files.

    A zip of GLUE that is there keeps the files of other tasks, so that run after run makes it whole; `missing_glue`
    says what it lacks.
    """
    for part, examples in examples_by_part.items():
        if len(predictions_by_part[part]) != len(examples):
            raise ValueError(f"{len(predictions_by_part[part])} predictions for {len(examples)} examples of {part}")
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
        raise ValueError(f"no grader's format is known for {saved.name}: write the predictions as JSON or CSV")
    _write(Path(out), files)
    return list(files)


def write_glue_zip(path: str | Path, predictions: Mapping[str, list | Predictions]) -> list[str]:
    """Puts the test predictions of several GLUE tasks, by name, into one zip; the names of the files that it still
    lacks, for GLUE's grader wants all. MNLI has two parts: {"test": ..., "test-mismatched": ...}."""
    files: dict[str, str] = {}
    for name, found in predictions.items():
        entry = known(name)
        if not entry.submissions:
            raise ValueError(f"{name} is no task of GLUE; they are {', '.join(_glue_tasks())}")
        files |= _glue_files(entry, found if isinstance(found, Mapping) else {"test": found})
    path = Path(path)
    path = path if path.suffix.lower() == ".zip" else path.with_name(f"{path.name}.zip")
    _write(path, files)
    return missing_glue(path)


def missing_glue(path: str | Path) -> list[str]:
    """The files that GLUE's grader wants and a zip or folder has not."""
    path = Path(path)
    if path.suffix.lower() == ".zip":
        with zipfile.ZipFile(path) as opened:
            there = set(opened.namelist())
    else:
        there = {file.name for file in path.iterdir()}
    return [file for file in GLUE_FILES if file not in there]


def _glue_tasks() -> list[str]:
    return list(dict.fromkeys(name for name, _ in GLUE_FILES.values()))


def _glue_files(entry: KnownDataSet, predictions: Predictions) -> dict[str, str]:
    graded = {part: found for part, found in predictions.items() if part in entry.submissions}
    if not graded:
        wanted, there = " and ".join(entry.submissions), ", ".join(predictions)
        raise ValueError(f"the grader of {entry.name} takes the part {wanted}, and there is only {there}")
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
            f"the grader of {entry.name} takes {', '.join(entry.labels)}, and the model says '{prediction.label}': "
            "fine-tune on the published files"
        )
    return prediction.label


def _parts(predictions: Predictions) -> Iterator[tuple[str, str, list]]:
    """Each part with what its files' names end in: nothing, when it is the only one."""
    for part, found in predictions.items():
        yield part, f"-{part}" if len(predictions) > 1 else "", found


def _span_files(saved: SavedTask, examples: Examples, predictions: Predictions) -> dict[str, str]:
    files = {}
    for part, ending, found in _parts(predictions):
        pairs = list(zip(examples[part], found, strict=True))
        if saved.name == "coqa":
            files[f"predictions{ending}.json"] = _json([_turn(*pair) for pair in pairs])
            continue
        files[f"predictions{ending}.json"] = _json({each.key: said.answer for each, said in pairs})
        if saved.task.or_none:
            chances = {each.key: _no_answer_chance(said, saved.task.threshold) for each, said in pairs}
            files[f"na_prob{ending}.json"] = _json(chances)
    return files


def _turn(example: SpanExample, prediction: SpanPrediction) -> dict:
    story, _, turn = example.key.partition("#")[0].rpartition("-")
    return {"id": story, "turn_id": int(turn), "answer": prediction.answer or "unknown"}


def _no_answer_chance(prediction: SpanPrediction, threshold: float) -> float:
    beyond = prediction.no_answer_score - threshold
    return 0.5 * (1 + math.tanh(beyond / 2))


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
    """The files of other GLUE tasks in a zip that is there already."""
    try:
        with zipfile.ZipFile(path) as opened:
            names = [name for name in opened.namelist() if name in GLUE_FILES and name not in ours]
            return {name: opened.read(name).decode() for name in names}
    except zipfile.BadZipFile:
        raise ValueError(f"{path} is there and is not a zip: remove it or choose another name") from None
