"""Predictions as files and tables: rows of `Task.describe` as JSON lines, as CSV, or cut short for a terminal."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hornbook.files import write_text

Rows = Sequence[dict[str, Any]]
SHORT_CHARACTERS = 60
NOT_SHOWN = ("probabilities", "n_best", "start", "end", "no_answer_score", "entities")  # on a terminal


def write_rows(path: str | Path, rows: Rows) -> None:
    """Writes rows in the format that the file's ending names: .jsonl, .json, .csv or .tsv."""
    path = Path(path)
    formats = {".jsonl": as_json_lines, ".json": as_json, ".csv": as_csv, ".tsv": lambda rows: as_csv(rows, "\t")}
    if path.suffix.lower() not in formats:
        raise ValueError(f"{path} has none of the endings {', '.join(formats)}, which say the format: add one")
    write_text(path, formats[path.suffix.lower()](rows))


def as_json_lines(rows: Rows) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def as_json(rows: Rows) -> str:
    return json.dumps(list(rows), ensure_ascii=False, indent=2) + "\n"


def as_csv(rows: Rows, separator: str = ",") -> str:
    """With a line of names; a column for each probability, `p_<label>`. Words and tags have spaces between, several
    labels `|`; what is deeper stands as JSON."""
    flat = [flattened(row) for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    written = io.StringIO()
    writer = csv.DictWriter(written, names, restval="", delimiter=separator, lineterminator="\n")
    if names:
        writer.writeheader()
    writer.writerows(flat)
    return written.getvalue()


def flattened(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose values are plain texts and numbers."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if name == "probabilities" and isinstance(value, dict):
            flat |= {f"p_{label}": chance for label, chance in value.items()}
        elif name == "probabilities" and "words" not in row:
            flat |= {f"p_{number}": chance for number, chance in enumerate(value)}
        elif name == "labels":
            flat[name] = "|".join(value)
        elif isinstance(value, list) and not any(isinstance(each, dict | list) for each in value):
            flat[name] = " ".join(str(each) for each in value)
        else:
            flat[name] = json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
    return flat


def readable(rows: Rows) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headings and cells for a terminal: texts cut short, tagged words as `word/TAG`, few columns."""
    shown = [_shown(row) for row in rows]
    names = tuple(dict.fromkeys(name for row in shown for name in row))
    return names, [tuple(row.get(name, "") for name in names) for row in shown]


def _shown(row: dict[str, Any]) -> dict[str, str]:
    if "words" in row and "tags" in row:
        tagged = zip(row["words"], row["tags"], strict=True)
        return {"tagged": " ".join(word if tag == "O" else f"{word}/{tag}" for word, tag in tagged)}
    return {name: _cell(name, value) for name, value in row.items() if name not in NOT_SHOWN}


def _cell(name: str, value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    words = " ".join(str(value).split()) or ("no answer" if name == "answer" else "")
    return words if len(words) <= SHORT_CHARACTERS else words[: SHORT_CHARACTERS - 1] + "…"
