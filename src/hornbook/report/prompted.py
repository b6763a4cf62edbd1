"""The page of a task as text: score by number of examples as a table and a picture, the baselines beside it, and some
questions with what was answered. It is drawn from `scores.json` and the predictions, however many there are."""

from functools import cache
from html import escape
from itertools import islice
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from hornbook.files import read_json, read_json_lines, write_text
from hornbook.report import wording
from hornbook.report.drawing import (
    DARK,
    LIGHT,
    Colours,
    as_png,
    new_figure,
    style,
    write_png,
    write_title,
)
from hornbook.report.markup import page, picture, row, section, table

SCORES, PICTURE = "scores.json", "score-by-shots.png"
NUM_SAMPLES = 3  # questions that are shown of each number of examples


def is_prompted(folder: str | Path) -> bool:
    path = Path(folder) / SCORES
    return path.is_file() and read_json(path).get("kind") == "prompt"


def write_prompted_page(folder: str | Path) -> Path:
    """Writes `report.html` and, once there are scores, `score-by-shots.png`."""
    folder = Path(folder)
    scores = read_json(folder / SCORES)
    shown = ""
    if scores["points"]:
        draw = cache(lambda is_dark: shots_png(scores, is_dark))
        write_png(folder / PICTURE, draw(False))
        shown = f'<div class="picture">{picture(draw, "Score by number of examples shown")}</div>'
    path = folder / "report.html"
    write_text(path, _page(folder, scores, shown))
    return path


def score_words(scores: dict, measure: str, found: dict | None) -> str:
    """48.2% (45.1% to 51.0%); 35.1 (33.0 to 37.9) for what is no share."""
    if found is None:
        return ""
    unit = "%" if scores["measures"][measure]["share"] else ""
    values = [f"{found[name]:.4g}{unit}" if unit == "" else f"{found[name]:.1f}{unit}" for name in _numbers(found)]
    return f"{values[0]} ({values[1]} to {values[2]})" if len(values) > 1 else values[0]


def _numbers(found: dict) -> list[str]:
    return [name for name in ("value", "low", "high") if found.get(name) is not None]


def rows_of(scores: dict) -> list[tuple[str, str, list[tuple[str, str]], str]]:
    """(who answers, examples, (measure, score) each, note) of every point and baseline."""
    rows = []
    for point in scores["points"]:
        cells = [(name, score_words(scores, name, point["scores"].get(name))) for name in scores["measures"]]
        rows.append((point["variant"], f"{point['shots']}", cells, _note(point)))
    for name, found in scores["baselines"].items():
        cells = [(measure, score_words(scores, measure, found.get(measure))) for measure in scores["measures"]]
        rows.append((name, "", cells, "baseline"))
    return rows


def _note(point: dict) -> str:
    notes = []
    if point["shown"]["whole"] < point["asked"]:
        notes.append(f"{point['shown']['mean']:.3g} examples fitted on average, at least {point['shown']['fewest']}")
    if point["cut"]:
        notes.append(f"{point['cut']:,} of {point['asked']:,} questions were cut")
    return "; ".join(notes)


def degenerate_words(scores: dict) -> str:
    """A sentence about the points at which a model chooses the same whatever is asked; empty where there are none."""
    found = []
    for point in scores["points"]:
        if words := point.get("degenerate"):
            template = f" ({point['variant']})" if len({each["variant"] for each in scores["points"]}) > 1 else ""
            found.append(f"with {wording.counted(point['shots'], 'example')}{template} {words}")
    if not found:
        return ""
    return (
        f"{', '.join(found)}: a score near {scores['majority']:.1f}%, which always taking the commonest choice gets, "
        "then says little"
    )


def _warning(scores: dict) -> str:
    words = degenerate_words(scores)
    return f'<p class="warning">{escape(words[:1].upper() + words[1:])}.</p>' if words else ""


def _page(folder: Path, scores: dict, shown: str) -> str:
    is_whole = scores["done"] == scores["pieces"]
    words = "finished" if is_whole else f"{scores['done']} of {scores['pieces']} pieces"
    badge = f'<span class="badge {"finished" if is_whole else "unfinished"}">{words}</span>'
    about = f"{scores['model']} · {wording.counted(scores['questions'], 'question')} · {scores['data']}"
    head = (
        f"<header>\n<h1>{escape(scores['task'])} {badge}</h1>\n<p>{escape(scores['about'])}.</p>\n"
        f'<p class="soft small path">{escape(about)}</p>\n</header>'
    )
    sections = [
        head,
        _warning(scores),
        section("Score by number of examples", shown + _table(scores)),
        section("Questions and answers", _samples(folder, scores)),
    ]
    return page(f"{scores['task']}: score by number of examples", sections)


def _table(scores: dict) -> str:
    rows = [
        row(name, [("examples", shots), *((wording.measure(measure), words) for measure, words in cells)], note)
        for name, shots, cells, note in rows_of(scores)
    ]
    titles = [escape(wording.measure(name)) for name in scores["measures"]]
    defined = "".join(
        f"<li>{escape(wording.measure(name))}: {escape(each['words'])}</li>"
        for name, each in scores["measures"].items()
    )
    said = f'<p class="soft small">{escape(scores["interval"])}.</p><ul class="soft small">{defined}</ul>'
    return table(("who answers", "examples", *titles, ""), rows, amounts_from=1) + said if rows else ""


def _samples(folder: Path, scores: dict) -> str:
    shown = []
    for file in sorted((folder / "predictions").glob("*-seed-0.jsonl")):
        rows = [
            f"<tr><td><pre>{escape(wording.cut(line['prompt'], 1500))}</pre></td>"
            f'<td data-label="right">{escape(wording.cut(line["answers"][0]))}</td>'
            f'<td data-label="answered">{escape(wording.cut(line["answer"] or line.get("generated", "")))}</td></tr>'
            for line in islice(read_json_lines(file), NUM_SAMPLES)
        ]
        rows_shown = table(("prompt", "right", "answered"), rows)
        shown.append(f"<details><summary>{escape(file.stem)}</summary>{rows_shown}</details>")
    return "".join(shown)


# ---- the picture


def shots_png(scores: dict, dark: bool = False) -> bytes:
    return as_png(shots_figure(scores, DARK if dark else LIGHT))


def shots_figure(scores: dict, colours: Colours = LIGHT) -> Figure:
    """A line a template with a band for its interval, over the number of examples; baselines are dashed."""
    measure = scores["decided_by"]
    figure = new_figure(7.2, 4.2, colours)
    axes = figure.add_subplot()
    style(axes, colours)
    write_title(axes, f"{scores['task']}: {wording.measure(measure)} by number of examples", colours)
    shades = (colours.train, colours.validation, colours.third, "#9a63c4", "#b98a1d")
    variants = dict.fromkeys(point["variant"] for point in scores["points"])
    for number, variant in enumerate(variants):
        points = sorted((each for each in scores["points"] if each["variant"] == variant), key=lambda p: p["shots"])
        at = _place(np.array([point["shots"] for point in points]))
        value, low, high = (np.array([p["scores"][measure][name] for p in points]) for name in ("value", "low", "high"))
        shade = shades[number % len(shades)]
        label = scores["model"].rstrip("/").rpartition("/")[2] if len(variants) == 1 else variant
        axes.plot(at, value, "o-", color=shade, linewidth=1.8, markersize=5, label=label)
        axes.errorbar(at, value, [value - low, high - value], color=shade, capsize=3, linewidth=0, elinewidth=1.2)
        axes.fill_between(at, low, high, color=shade, alpha=0.12, linewidth=0)
    for number, (name, found) in enumerate(scores["baselines"].items()):
        if measure in found:
            dashes = ("--", ":", "-.", (0, (8, 4)))[number % 4]
            axes.axhline(
                found[measure]["value"], color=colours.ink, linestyle=dashes, linewidth=1.3, label=name, alpha=0.7
            )
    shots = sorted({point["shots"] for point in scores["points"]})
    axes.set_xticks(_place(np.array(shots)), [f"{each:,}" for each in shots])
    axes.set_xlabel("examples shown")
    if scores["measures"][measure]["share"]:
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}%")
    # Below the picture: inside it would hide the interval of some number of examples.
    lines, names = axes.get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=4, fontsize=8, frameon=False, labelcolor=colours.ink)
    return figure


def _place(shots: np.ndarray) -> np.ndarray:
    """Each doubling as far from the last, and 0 still there."""
    return np.log2(shots + 1.0)
