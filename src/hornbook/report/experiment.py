"""The report page of an experiment: verdicts, score against FLOPs, all scores next to the published ones, and the cost
of each arm. It is built from `results.json`, also while some pieces are missing."""

from functools import cache
from html import escape
from pathlib import Path

from hornbook.files import read_json, write_text
from hornbook.report import wording
from hornbook.report.drawing import write_png
from hornbook.report.experiment_picture import score_png
from hornbook.report.experiment_text import (
    how_measured,
    interval_words,
    loss_words,
    missing,
    notes,
    points_at,
    score_words,
    write_fragment,
)
from hornbook.report.markup import page, picture, row, section, table

RESULTS, PICTURE = "results.json", "score-by-flops.png"
BADGES = {"holds": "finished", "does not hold at this scale": "unfinished"}


def is_experiment(folder: str | Path) -> bool:
    return (Path(folder) / RESULTS).is_file() and read_json(Path(folder) / RESULTS).get("kind") == "experiment"


def write_experiment_page(folder: str | Path) -> Path:
    """Writes `report.html`, the plot and the Markdown version `RESULTS-NAME.md` into the folder of an experiment;
    returns the path of the page."""
    folder = Path(folder)
    results = read_json(folder / RESULTS)
    image = ""
    if results["scores"]:
        draw = cache(lambda is_dark: score_png(results, is_dark))
        write_png(folder / PICTURE, draw(False))
        image = picture(draw, "Score against FLOPs, one line per arm")
    path = folder / "report.html"
    write_text(path, _page(results, image))
    write_fragment(folder, results)
    return path


def _page(results: dict, image: str) -> str:
    captions = "".join(f'<p class="soft small">{escape(each)}</p>' for each in notes(results))
    sections = [
        _head(results),
        section("Verdicts", _verdicts(results)),
        section("Score against FLOPs", image + captions if image else ""),
        section("Scores", _scores(results)),
        section("Sentence heads on both tasks", _sentences(results)),
        section("Training cost", _resources(results)),
        section("Missing pieces", _list(missing(results))),
        section("Degenerate fine-tuning runs", _list(results["degenerate"])),
    ]
    return page(results["title"], sections)


def _head(results: dict) -> str:
    is_whole = results["num_done"] == results["num_pieces"]
    state = "finished" if is_whole else f"{results['num_done']} of {results['num_pieces']} pieces"
    badge = f'<span class="badge {"finished" if is_whole else "unfinished"}">{state}</span>'
    about = f"<p>{escape(results['about'])}</p>" if results["about"] else ""
    return f"<header>\n<h1>{escape(results['title'])} {badge}</h1>\n{about}</header>"


def _verdicts(results: dict) -> str:
    rows = []
    for claim in results["claims"]:
        kind = BADGES.get(claim["verdict"], "")
        reasons = "".join(f"<li>{escape(each['reason'])}</li>" for each in claim["conditions"])
        decide = claim["would_decide"]
        more = f'<p class="small">To decide it: {escape(decide)}.</p>' if decide else ""
        published = f'<p class="soft small">Published: {escape(claim["published"])}</p>' if claim["published"] else ""
        rows.append(
            f"<tr><td><strong>{escape(claim['words'])}</strong>{published}</td>"
            f'<td><span class="badge {kind}">{escape(claim["verdict"])}</span></td>'
            f'<td><ul class="small">{reasons}</ul>{more}</td></tr>'
        )
    return table(("claim", "verdict", "reason"), rows) if rows else ""


def _scores(results: dict) -> str:
    """The scores at the full FLOPs next to the published ones, then those of the earlier checkpoints."""
    if not results["scores"]:
        return ""
    tables = [_score_table(results, 1.0, is_last=True)]
    for share in results["checkpoints"][-2::-1]:
        title = f"at {share:.4g} of the FLOPs"
        found = _score_table(results, share, is_last=False)
        tables.append(f"<details><summary>{title}</summary>{found}</details>" if found else "")
    return "".join(tables)


def _score_table(results: dict, share: float, is_last: bool) -> str:
    tasks = [results["mean"], *(name for name, task in results["tasks"].items() if task["has_data"])]
    rows = []
    for name, arm in results["arms"].items():
        points = points_at(results, name, share)
        if points:
            cells = [(task, score_words(points.get(task))) for task in tasks]
            note = (
                f"published (other tasks and model sizes): {arm['published']}" if is_last and arm["published"] else ""
            )
            rows.append(_arm_row(arm["label"], note, cells))
    titles = [f"{task}<br>{escape(wording.measure(results['tasks'][task]['measure']))}" for task in tasks[1:]]
    return table(("arm", "mean", *titles), rows, amounts_from=1) if rows else ""


def _arm_row(label: str, note: str, cells: list[tuple[str, str]]) -> str:
    """Like `markup.row`, with a note below the name."""
    amounts = "".join(f'<td class="amount" data-label="{escape(name)}">{escape(value)}</td>' for name, value in cells)
    below = f'<div class="soft small">{escape(note)}</div>' if note else ""
    return f"<tr><td>{escape(label)}{below}</td>{amounts}</tr>"


def _sentences(results: dict) -> str:
    found = {arm["label"]: arm["crossed"] for arm in results["arms"].values() if arm["crossed"]}
    if results["overlap"]:
        found["shared-word classifier"] = results["overlap"]
    rows = [
        row(name, [(kind.upper(), interval_words(pairs[kind], "%")) for kind in ("nsp", "sop")])
        for name, pairs in found.items()
    ]
    note = (
        '<p class="soft small">Accuracy on held-out pairs, with 95% intervals over the documents that the pairs start '
        "in; chance is 50%. A head is applied to the task it was not trained for without further training. The "
        "shared-word classifier is logistic regression on the number of tokens that two segments share.</p>"
    )
    titles = ("classifier", "next sentence (NSP)", "sentence order (SOP)")
    return table(titles, rows, amounts_from=1) + note if rows else ""


def _resources(results: dict) -> str:
    rows = []
    for arm in results["arms"].values():
        record = arm["record"]
        if record:
            cells = [
                ("parameters", wording.amount(record["parameters"])),
                ("updates", f"{record['steps']:,}"),
                ("FLOPs", f"{record['flops']:.3g}"),
                ("updates/s", f"{record['updates_per_second']:.3g}"),
                ("tokens/s", wording.amount(record["tokens_per_second"])),
                ("time", wording.duration(record["seconds"])),
                ("peak memory", wording.size(record["memory"]["bytes"])),
            ]
            rows.append(_arm_row(arm["label"], f"held-out losses: {loss_words(record)}", cells))
    titles = ("parameters", "updates", "FLOPs", "updates/s", "tokens/s", "time", "peak memory")
    where = "".join(f'<p class="soft small">{escape(each)}</p>' for each in how_measured(results))
    return table(("arm", *titles), rows, amounts_from=1) + where if rows else ""


def _list(items: list[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(each)}</li>' for each in items)}</ul>" if items else ""
