"""`hornbook info` for a folder written by `hornbook prompt`."""

from pathlib import Path

from hornbook.files import read_json
from hornbook.report import wording

SCORES = "scores.json"


def about_prompted(folder: Path) -> dict:
    run = read_json(folder / "run.json")
    request, task = run["request"], run["settings"]
    scores = read_json(folder / SCORES) if (folder / SCORES).is_file() else {}
    return {
        "kind": "prompted task",
        "task": task["name"],
        "about": task["about"],
        "model": request["model"],
        "data": request["data"],
        "shots": request["shots"],
        "seeds": request["seeds"],
        "finished": bool(scores) and scores["done"] == scores["pieces"],
        "scores": scores,
    }


def prompted_lines(found: dict) -> list[tuple[str, str]]:
    scores, examples = found["scores"], ", ".join(map(str, found["shots"]))
    if any(found["shots"]):
        examples += f", sampled with {wording.counted(found['seeds'], 'seed')}"
    state = f"{scores['done']} of {wording.counted(scores['pieces'], 'piece')} done" if scores else "nothing done yet"
    out = [
        ("task", f"{found['task']}: {found['about']}"),
        ("model", found["model"]),
        ("data", found["data"] + (f", {wording.counted(scores['questions'], 'question')}" if scores else "")),
        ("examples in the prompt", examples),
        ("state", "finished" if found["finished"] else f"{state}; run the same command with --resume to continue"),
    ]
    if not scores:
        return out
    from hornbook.report.prompted import degenerate_words, rows_of  # imports matplotlib

    for name, num_examples, cells, _ in rows_of(scores):
        count = f", {wording.counted(int(num_examples), 'example')}" if num_examples else ""
        text = ", ".join(f"{wording.measure(measure)} {score}" for measure, score in cells if score)
        out.append((f"{name}{count}", text))
    if text := degenerate_words(scores):
        out.append(("degenerate", text))
    return out
