"""The report page of a prompted task: score by number of examples in the prompt as a table and a plot, with baselines,
and some questions with their answers. It is built from `scores.json` and the predictions, also while some are
missing."""

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
NUM_SAMPLES = 3  # questions shown per number of examples


def is_prompted(folder: str | Path) -> bool:
    path = Path(folder) / SCORES
    return path.is_file() and read_json(path).get("kind") == "prompt"


def write_prompted_page(folder: str | Path) -> Path:
    """Writes `report.html` and, once there are scores, `score-by-shots.png`."""
    folder = Path(folder)
    scores = read_json(folder / SCORES)
    image = ""
    if scores["points"]:
        draw = cache(lambda is_dark: shots_png(scores, is_dark))
        write_png(folder / PICTURE, draw(False))
        image = f'<div class="picture">{picture(draw, "Score by number of examples in the prompt")}</div>'
    path = folder / "report.html"
    write_text(path, _page(folder, scores, image))
    return path


def score_words(scores: dict, measure: str, found: dict | None) -> str:
    """The score with its interval: `48.2% (45.1% to 51.0%)`, or `35.1 (33.0 to 37.9)` if it is not a percentage."""
    if found is None:
        return ""
    unit = "%" if scores["measures"][measure]["share"] else ""
    values = [f"{found[name]:.4g}{unit}" if unit == "" else f"{found[name]:.1f}{unit}" for name in _numbers(found)]
    return f"{values[0]} ({values[1]} to {values[2]})" if len(values) > 1 else values[0]


def _numbers(found: dict) -> list[str]:
    return [name for name in ("value", "low", "high") if found.get(name) is not None]


def rows_of(scores: dict) -> list[tuple[str, str, list[tuple[str, str]], str]]:
    """One row per point and baseline: (prompt variant or baseline, number of examples, (metric, score) pairs, note)."""
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
        notes.append(
            f"{point['shown']['mean']:.3g} examples fitted the context on average, at least {point['shown']['fewest']}"
        )
    if point["cut"]:
        notes.append(f"{point['cut']:,} of {point['asked']:,} questions were truncated")
    return "; ".join(notes)


def degenerate_words(scores: dict) -> str:
    """A sentence about the points where the model gives the same answer to every question; empty if there are none."""
    found = []
    for point in scores["points"]:
        if reason := point.get("degenerate"):
            template = f" ({point['variant']})" if len({each["variant"] for each in scores["points"]}) > 1 else ""
            found.append(f"with {wording.counted(point['shots'], 'example')}{template} {reason}")
    if not found:
        return ""
    return (
        f"{', '.join(found)}: a score near {scores['majority']:.1f}%, the score of always choosing the most frequent "
        "answer, then means little"
    )


def _warning(scores: dict) -> str:
    text = degenerate_words(scores)
    return f'<p class="warning">{escape(text[:1].upper() + text[1:])}.</p>' if text else ""


def _page(folder: Path, scores: dict, image: str) -> str:
    is_whole = scores["done"] == scores["pieces"]
    state = "finished" if is_whole else f"{scores['done']} of {scores['pieces']} pieces"
    badge = f'<span class="badge {"finished" if is_whole else "unfinished"}">{state}</span>'
    about = f"{scores['model']} · {wording.counted(scores['questions'], 'question')} · {scores['data']}"
    head = (
        f"<header>\n<h1>{escape(scores['task'])} {badge}</h1>\n<p>{escape(scores['about'])}.</p>\n"
        f'<p class="soft small path">{escape(about)}</p>\n</header>'
    )
    sections = [
        head,
        _warning(scores),
        section("Score by number of examples", image + _table(scores)),
        section("Questions and answers", _samples(folder, scores)),
    ]
    return page(f"{scores['task']}: score by number of examples", sections)


def _table(scores: dict) -> str:
    rows = [
        row(name, [("examples", shots), *((wording.measure(measure), score) for measure, score in cells)], note)
        for name, shots, cells, note in rows_of(scores)
    ]
    titles = [escape(wording.measure(name)) for name in scores["measures"]]
    defined = "".join(
        f"<li>{escape(wording.measure(name))}: {escape(each['words'])}</li>"
        for name, each in scores["measures"].items()
    )
    notes = f'<p class="soft small">{escape(scores["interval"])}.</p><ul class="soft small">{defined}</ul>'
    return table(("prompt or baseline", "examples", *titles, ""), rows, amounts_from=1) + notes if rows else ""


def _samples(folder: Path, scores: dict) -> str:
    out = []
    for file in sorted((folder / "predictions").glob("*-seed-0.jsonl")):
        rows = [
            f"<tr><td><pre>{escape(wording.cut(line['prompt'], 1500))}</pre></td>"
            f'<td data-label="gold">{escape(wording.cut(line["answers"][0]))}</td>'
            f'<td data-label="answer">{escape(wording.cut(line["answer"] or line.get("generated", "")))}</td></tr>'
            for line in islice(read_json_lines(file), NUM_SAMPLES)
        ]
        content = table(("prompt", "gold", "answer"), rows)
        out.append(f"<details><summary>{escape(file.stem)}</summary>{content}</details>")
    return "".join(out)


# ---- plot


def shots_png(scores: dict, dark: bool = False) -> bytes:
    return as_png(shots_figure(scores, DARK if dark else LIGHT))


def shots_figure(scores: dict, colours: Colours = LIGHT) -> Figure:
    """One line per template with its interval as a band, over the number of examples; baselines are dashed."""
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
    axes.set_xlabel("examples in the prompt")
    if scores["measures"][measure]["share"]:
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}%")
    # The legend is below the axes: inside, it would hide an interval.
    lines, names = axes.get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=4, fontsize=8, frameon=False, labelcolor=colours.ink)
    return figure


def _place(shots: np.ndarray) -> np.ndarray:
    """x positions on a log2(shots + 1) axis, which also has 0."""
    return np.log2(shots + 1.0)
