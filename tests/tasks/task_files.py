"""Small files for the tests of reading."""

import json
from pathlib import Path


def write(folder: Path, **files: str | bytes) -> Path:
    """Writes each file; in a name, `__` stands for the dot."""
    for name, content in files.items():
        path = folder / name.replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def lines(*rows: object) -> str:
    """Rows of a table with tabs between fields, or objects as JSON."""
    return "".join((json.dumps(row) if isinstance(row, dict) else row) + "\n" for row in rows)


def squad(*questions: dict, passage: str = "Ada wrote the first program.", title: str = "Ada") -> dict:
    return {"title": title, "paragraphs": [{"context": passage, "qas": list(questions)}]}


def question(key: str, *answers: tuple[str, int], text: str = "Who?", **more: object) -> dict:
    found = [{"text": answer, "answer_start": start} for answer, start in answers]
    return {"id": key, "question": text, "answers": found, **more}


def counts(data) -> dict[str, int]:
    return {kind: entry["count"] for kind, entry in data.problems.to_dict().items()}


def first(data, kind: str) -> dict:
    return data.problems.to_dict()[kind]["examples"][0]
