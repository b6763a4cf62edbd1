"""What `hornbook info` says of a folder that `hornbook prompt` wrote."""

from pathlib import Path

from hornbook.files import read_json
from hornbook.report import wording

ASKED, SCORES = "prompt.json", "scores.json"


def about_prompted(folder: Path) -> dict:
    asked = read_json(folder / ASKED)
    scores = read_json(folder / SCORES) if (folder / SCORES).is_file() else {}
    return {
        "kind": "prompted task",
        "task": asked["task"]["name"],
        "about": asked["task"]["about"],
        "model": asked["model"],
        "data": asked["data"],
        "shots": asked["shots"],
        "seeds": asked["seeds"],
        "finished": bool(scores) and scores["done"] == scores["pieces"],
        "scores": scores,
    }


def prompted_lines(found: dict) -> list[tuple[str, str]]:
    scores, shown = found["scores"], ", ".join(map(str, found["shots"]))
    if any(found["shots"]):
        shown += f", drawn by {wording.counted(found['seeds'], 'seed')}"
    state = f"{scores['done']} of {wording.counted(scores['pieces'], 'piece')} done" if scores else "nothing done yet"
    out = [
        ("task", f"{found['task']}: {found['about']}"),
        ("model", found["model"]),
        ("data", found["data"] + (f", {wording.counted(scores['questions'], 'question')}" if scores else "")),
        ("examples shown", shown),
        ("state", "finished" if found["finished"] else f"{state}; the same command with --resume goes on"),
    ]
    if not scores:
        return out
    from hornbook.report.prompted import degenerate_words, rows_of  # which draws too, and loads what draws

    for name, num_examples, cells, _ in rows_of(scores):
        beside = f", {wording.counted(int(num_examples), 'example')}" if num_examples else ""
        words = ", ".join(f"{wording.measure(measure)} {score}" for measure, score in cells if score)
        out.append((f"{name}{beside}", words))
    if words := degenerate_words(scores):
        out.append(("degenerate", words))
    return out
