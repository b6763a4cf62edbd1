"""The report page of several runs: table and plot of a search or of restarts, and the label curve."""

from functools import cache
from html import escape
from pathlib import Path

from hornbook.files import write_text
from hornbook.report import several, several_pictures, wording
from hornbook.report.drawing import write_png
from hornbook.report.markup import page, picture, row, section, table
from hornbook.report.run import number
from hornbook.report.several import Scored

TITLES = {"search": "Search over learning rates", "restarts": "Restarts"}


def write_several_page(folder: str | Path) -> Path:
    """Writes `report.html`, and `tries.png` or `curve.png`, for a folder of several runs; returns the page's path."""
    folder = Path(folder)
    head = f'<header>\n<h1>Several runs</h1>\n<p class="soft small path">{escape(str(folder))}</p>\n</header>'
    path = folder / "report.html"
    write_text(path, page(f"several runs in {folder}", [head, *several_sections(folder)]))
    return path


def several_sections(folder: Path) -> list[str]:
    """The sections for `tries.json` and `curve.json`; also writes their plots into the folder."""
    sections = []
    tries, curve = several.read_tries(folder), several.read_curve(folder)
    if tries is not None:
        draw = cache(lambda is_dark: several_pictures.tries_png(tries, is_dark))
        write_png(folder / "tries.png", draw(False))
        image = picture(draw, "Scores of the tries")
        title = TITLES.get(str(tries.about.get("kind")), "Tries")
        content = f'{_summary(tries)}<div class="picture">{image}</div>{_tries_table(tries)}'
        sections.append(section(title, content))
    if curve is not None:
        draw = cache(lambda is_dark: several_pictures.curve_png(curve, is_dark))
        write_png(folder / "curve.png", draw(False))
        image = picture(draw, "Scores by number of labelled examples")
        sections.append(
            section("Score by number of labels", f'<div class="picture">{image}</div>{_curve_table(curve)}')
        )
    return sections


def _summary(tries: Scored) -> str:
    about, bad = tries.about, sum(bool(each.get("degenerate")) for each in tries.rows)
    parts = [f"best {about['best']}"] if about.get("best") else []
    if number(about.get("median")) == number(about.get("median")):
        parts.append(f"median {tries.format_score(about['median'])}")
    spread = about.get("spread")
    if isinstance(spread, list | tuple) and len(spread) == 2:
        parts.append(f"from {tries.format_score(spread[0])} to {tries.format_score(spread[1])}")
    elif number(spread) == number(spread):
        parts.append(f"spread {tries.format_score(spread)}")
    parts.append(f"{bad} of {len(tries.rows)} degenerate" if bad else "none degenerate")
    return f"<p>By {escape(wording.measure(tries.decided_by))} on dev: {escape('; '.join(parts))}.</p>"


def _tries_table(tries: Scored) -> str:
    rows = []
    for each in tries.rows:
        name = str(each.get("name", "")) + (" ★" if each.get("name") == tries.about.get("best") else "")
        seconds = number(each.get("seconds"))
        cells = [
            ("learning rate", f"{number(each.get('lr')):g}"),
            ("seed", str(each.get("seed", ""))),
            ("score", tries.interval_words(each)),
            ("time", wording.duration(seconds) if seconds == seconds else ""),
        ]
        note = f"degenerate: {each['degenerate']}" if each.get("degenerate") else ""
        rows.append(row(name, cells, note))
    return table(("try", "learning rate", "seed", "score, 95% interval", "time", ""), rows, amounts_from=1)


def _curve_table(curve: Scored) -> str:
    sizes = sorted({int(each["examples"]) for each in curve.rows})
    found = {(str(each.get("way")), int(each["examples"])): each for each in curve.rows}
    rows = []
    for method in dict.fromkeys(method for method, _ in found):
        cells = [
            (f"{size:,}", curve.interval_words(found[method, size]) if (method, size) in found else "")
            for size in sizes
        ]
        rows.append(row(several.METHODS.get(method, method), cells))
    return table(("method", *(f"{size:,}" for size in sizes)), rows, amounts_from=1)
