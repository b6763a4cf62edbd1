"""Predictions as files and tables: rows of `Task.describe` as JSON lines, JSON or CSV, or shortened for a terminal; and
files in the formats of the official graders.

In files the original columns of each input come first, under their names. A prediction column whose name the input
already has is prefixed with `predicted_`. The graders:

    GLUE       a zip of TSV files, `index` and `prediction`, with the file names and labels that its site requires
    SQuAD      predictions.json {question: answer}, "" for no answer; for 2.0 also na_prob.json
    CoQA       predictions.json, a list of {id, turn_id, answer}, "unknown" for no answer
    tagging    predictions.txt, one word per line with its tag in the scheme of the user's files; if known, the gold tag
               is the column between, as conlleval expects

`na_prob.json` holds 1 / (1 + exp(threshold - score)): above 0.5 where the question is left unanswered. The
official script searches its best threshold over these numbers.
"""

import csv
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hornbook.files import replacing, write_text
from hornbook.metrics.formatting import one_line
from hornbook.tasks.datasets import KNOWN, find_task
from hornbook.tasks.records import Example
from hornbook.tasks.spec import TaskSpec
from hornbook.tasks.task import RegisteredTask

Rows = Sequence[dict[str, Any]]
OriginalColumns = Sequence[Mapping[str, Any]]  # of each input; empty if the inputs have none
OUTPUT_SUFFIXES = (".jsonl", ".json", ".csv", ".tsv")
INPUT_FIELDS = ("text", "pair", "question", "context", "choices")  # of a described row; the others are predicted
NESTED = ("entities", "n_best")  # lists of objects
WORD_COLUMNS = {"words", "tokens"}  # input columns that already contain the words
SHORT_CHARACTERS = 60
HIDDEN = ("probabilities", "n_best", "start", "end", "no_answer_score", "entities")  # on a terminal


def write_rows(path: str | Path, rows: Rows, columns: OriginalColumns = ()) -> None:
    """Writes rows in the format given by the file's suffix: .jsonl, .json, .csv or .tsv."""
    write_text(Path(path), formatted(rows, format_of(path), columns))


def format_of(path: str | Path) -> str:
    """The suffix of a file for predictions; raises `ValueError` if the format is not supported."""
    suffix = Path(path).suffix.lower()
    if suffix not in OUTPUT_SUFFIXES:
        raise ValueError(f"{path}: the suffix selects the format; use one of {', '.join(OUTPUT_SUFFIXES)}")
    return suffix


def formatted(rows: Rows, suffix: str, columns: OriginalColumns = ()) -> str:
    """The content of a file with this suffix. Numbers of predictions have 6 significant digits."""
    rows = [rounded(row) for row in rows]
    if suffix in (".csv", ".tsv"):
        return as_csv(rows, "," if suffix == ".csv" else "\t", columns)
    rows = with_columns(rows, columns)
    if suffix == ".json":
        return json.dumps(list(rows), ensure_ascii=False, indent=2) + "\n"
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def rounded(value: Any) -> Any:
    """The value with all numbers in it rounded to 6 significant digits.

    >>> rounded({"label": "good", "probabilities": {"good": 0.9987654321, "bad": 0.0012345679}})
    {'label': 'good', 'probabilities': {'good': 0.998765, 'bad': 0.00123457}}
    """
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def with_columns(rows: Rows, columns: OriginalColumns) -> Rows:
    """The original columns of each input, followed by its prediction.

    >>> with_columns([{"text": "a", "label": "x"}], [{"id": 7, "review": "a", "label": "y"}])
    [{'id': 7, 'review': 'a', 'label': 'y', 'predicted_label': 'x'}]
    """
    if not columns:
        return rows
    taken = {name for each in columns for name in each}
    left_out = {*INPUT_FIELDS, *(("words",) if WORD_COLUMNS & {name.lower() for name in taken} else ())}
    return [
        {**cells, **{_unused_name(name, taken): value for name, value in row.items() if name not in left_out}}
        for cells, row in zip(columns, rows, strict=True)
    ]


def is_frame(items: Any) -> bool:
    """Whether `items` is a pandas or polars data frame."""
    return hasattr(items, "columns") and (hasattr(items, "assign") or hasattr(items, "hstack"))


def with_predictions(frame: Any, rows: Rows) -> Any:
    """The data frame with the prediction columns appended; lists stay lists."""
    names = [str(name) for name in frame.columns]
    described = [{name: row.get(name, value) for name, value in flattened(row).items()} for row in rows]
    predicted = with_columns(described, [dict.fromkeys(names) for _ in described])
    new = list(dict.fromkeys(name for row in predicted for name in row if name not in names))
    columns = {name: [row.get(name) for row in predicted] for name in new}
    return frame.assign(**columns) if hasattr(frame, "assign") else frame.hstack(type(frame)(columns))


def prefixed_columns(rows: Rows, columns: OriginalColumns) -> list[str]:
    """Names of the prediction columns that were prefixed with `predicted_` because the input has a column of that
    name."""
    taken = {name for each in columns for name in each}
    names = [name for row in with_columns(rows[:1], columns[:1]) for name in row]
    return [name for name in names if name.startswith("predicted_") and name not in taken]


def _unused_name(name: str, taken: set[str]) -> str:
    while name in taken:
        name = f"predicted_{name}"
    return name


def as_csv(rows: Rows, separator: str = ",", columns: OriginalColumns = ()) -> str:
    """CSV with a header line and one column per probability, `p_<label>`. Words and tags are separated by spaces,
    multiple labels by `|`; nested values are JSON."""
    cells = [{name: _as_json(cell) for name, cell in each.items()} for each in columns]
    flat_rows = with_columns([flattened(row) for row in rows], cells)
    names = list(
        dict.fromkeys([*(name for each in cells for name in each), *(name for row in flat_rows for name in row)])
    )
    written = io.StringIO()
    writer = csv.DictWriter(written, names, restval="", delimiter=separator, lineterminator="\n")
    if names:
        writer.writeheader()
    writer.writerows(flat_rows)
    return written.getvalue()


def _as_json(cell: Any) -> Any:
    return json.dumps(cell, ensure_ascii=False) if isinstance(cell, dict | list) else cell


def flattened(row: dict[str, Any]) -> dict[str, Any]:
    """The row with all values as strings and numbers."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if name == "probabilities" and isinstance(value, dict):
            flat |= {f"p_{label}": probability for label, probability in value.items()}
        elif name == "probabilities" and "words" not in row:
            flat |= {f"p_{index}": probability for index, probability in enumerate(value)}
        elif name == "labels":
            flat[name] = "|".join(value)
        elif isinstance(value, list) and name not in NESTED:
            flat[name] = " ".join(str(item) for item in value)
        else:
            flat[name] = _as_json(value)
    return flat


def readable(rows: Rows) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """(column names, rows of cells) for a terminal: texts shortened, tagged words as `word/TAG`, few columns."""
    shortened = [_shortened(row) for row in rows]
    names = tuple(dict.fromkeys(name for row in shortened for name in row))
    return names, [tuple(row.get(name, "") for name in names) for row in shortened]


def _shortened(row: dict[str, Any]) -> dict[str, str]:
    if "words" in row and "tags" in row:
        tagged = zip(row["words"], row["tags"], strict=True)
        return {"tagged": " ".join(word if tag == "O" else f"{word}/{tag}" for word, tag in tagged)}
    return {name: _cell(name, value) for name, value in row.items() if name not in HIDDEN}


def _cell(name: str, value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return one_line(str(value), SHORT_CHARACTERS) or ("no answer" if name == "answer" else "")


# ---- the formats of official graders


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
