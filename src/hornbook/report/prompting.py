"""A prompted task, from its `scores.json` and predictions, also while some are missing: its description, and its report
page with the score by number of examples in the prompt, baselines, and some questions with their answers."""

from pathlib import Path

from hornbook.files import read_json, read_json_if_exists, read_json_lines
from hornbook.lifecycle.run_folder import SCORES
from hornbook.report import formatting
from hornbook.report.rendering import Table, write_page

PLOT_FILE = "score-by-shots.png"
NUM_SAMPLES = 3  # questions shown per number of examples


def write_prompted_page(folder: Path) -> Path:
    """Writes `report.html` and, once there are scores, `score-by-shots.png`."""
    from hornbook.report.plots.drawing import render_png
    from hornbook.report.plots.scores import shots_figure

    scores = read_json(folder / SCORES)
    image, is_whole = None, scores["done"] == scores["runs"]
    if scores["points"]:
        image = render_png(shots_figure(scores), "Score by number of examples in the prompt", folder / PLOT_FILE)
    files = sorted((folder / "predictions").glob("*-seed-0.jsonl"))
    return write_page(
        folder,
        "prompted.html",
        f"{scores['task']}: score by number of examples",
        scores=scores,
        about=f"{scores['model']} · {formatting.counted(scores['questions'], 'question')} · {scores['data']}",
        state="finished" if is_whole else f"{scores['done']} of {scores['runs']} runs",
        warning=degenerate_note(scores),
        plot=image,
        table=score_table(scores),
        samples={file.stem: read_json_lines(file)[:NUM_SAMPLES] for file in files},
    )


def format_score(scores: dict, metric: str, found: dict | None) -> str:
    """The score with its interval: `48.2% (45.1% to 51.0%)`, or `35.1 (33.0 to 37.9)` if it is not a percentage."""
    if found is None:
        return ""
    form = "{:.1f}%" if scores["metrics"][metric]["share"] else "{:.4g}"
    values = [form.format(found[name]) for name in ("value", "low", "high") if found.get(name) is not None]
    return f"{values[0]} ({values[1]} to {values[2]})" if len(values) > 1 else values[0]


def score_table(scores: dict) -> Table:
    """One row per point and baseline: prompt variant or baseline, number of examples, scores, note."""
    metrics = scores["metrics"]
    rows = []
    for point in scores["points"]:
        cells = (format_score(scores, name, point["scores"].get(name)) for name in metrics)
        rows.append((point["variant"], f"{point['shots']}", *cells, _note(point)))
    for name, found in scores["baselines"].items():
        rows.append((name, "", *(format_score(scores, metric, found.get(metric)) for metric in metrics), "baseline"))
    return Table(("prompt or baseline", "examples", *map(formatting.metric_label, metrics), ""), rows)


def _note(point: dict) -> str:
    notes = []
    if point["shown"]["whole"] < point["asked"]:
        notes.append(
            f"{point['shown']['mean']:.3g} examples fitted the context on average, at least {point['shown']['fewest']}"
        )
    if point["cut"]:
        notes.append(f"{point['cut']:,} of {point['asked']:,} questions were truncated")
    return "; ".join(notes)


def degenerate_note(scores: dict) -> str:
    """A sentence about the points where the model gives the same answer to every question; empty if there are none."""
    found = []
    for point in scores["points"]:
        if reason := point.get("degenerate"):
            template = f" ({point['variant']})" if len({each["variant"] for each in scores["points"]}) > 1 else ""
            found.append(f"with {formatting.counted(point['shots'], 'example')}{template} {reason}")
    if not found:
        return ""
    return (
        f"{', '.join(found)}: a score near {scores['majority']:.1f}%, the score of always choosing the most frequent "
        "answer, then means little"
    )


# ---- hornbook info


def describe_prompted(folder: Path) -> dict:
    run, scores = read_json(folder / "run.json"), read_json_if_exists(folder / SCORES)
    request, task = run["request"], run["settings"]
    is_finished = bool(scores) and scores["done"] == scores["runs"]
    examples = ", ".join(map(str, request["shots"]))
    if any(request["shots"]):
        examples += f", sampled with {formatting.counted(request['seeds'], 'seed')}"
    state = f"{scores['done']} of {formatting.counted(scores['runs'], 'run')} done" if scores else "nothing done yet"
    lines = [
        ("task", f"{task['name']}: {task['about']}"),
        ("model", request["model"]),
        ("data", request["data"] + (f", {formatting.counted(scores['questions'], 'question')}" if scores else "")),
        ("examples in the prompt", examples),
        ("state", "finished" if is_finished else f"{state}; run the same command with --resume to continue"),
    ]
    if scores:
        (_, _, *metrics, _), rows = score_table(scores)
        for name, num_examples, *cells, _ in rows:
            count = f", {formatting.counted(int(num_examples), 'example')}" if num_examples else ""
            text = ", ".join(f"{metric} {score}" for metric, score in zip(metrics, cells, strict=True) if score)
            lines.append((f"{name}{count}", text))
    return {
        "kind": "prompted task",
        "title": f"{task['name']}: prompts to {request['model']}",
        "task": task["name"],
        "about": task["about"],
        **{name: request[name] for name in ("model", "data", "shots", "seeds")},
        "finished": is_finished,
        "result": "",
        "scores": scores,
        "lines": [*lines, ("warning", degenerate_note(scores) if scores else "")],
    }
