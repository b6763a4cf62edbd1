"""Several runs: the tries of a search or of restarts (`tries.json`) and scores by number of labels (`curve.json`), with
their plots `tries.png` and `curve.png`, their page and their description."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from hornbook.files import read_json
from hornbook.report import wording
from hornbook.report.plots.drawing import (
    LIGHT,
    MORE_SHADES,
    Colours,
    as_png,
    new_plot,
    percent_axis,
    short_power,
    show_legend,
    write_png,
)
from hornbook.report.rendering import Table, picture, write_page
from hornbook.report.run import number

TRIES, CURVE = "tries.json", "curve.json"
METHODS = {
    "finetune": "fine-tuning",
    "features": "frozen features",
    "scratch": "random weights",
    "tfidf": "TF-IDF",
    "vectors": "averaged word vectors",
}
TITLES = {"search": "Search over learning rates", "restarts": "Restarts"}


@dataclass(frozen=True)
class Scored:
    """The contents of tries.json or curve.json; `rows` are the tries or points that have a score."""

    about: dict
    rows: list[dict]

    @property
    def decided_by(self) -> str:
        return str(self.about.get("decided_by") or "score")

    @property
    def in_percent(self) -> bool:
        """Whether scores are in percent, as those of span tasks are; the others are fractions."""
        return any(number(row.get("score")) > 1.5 for row in self.rows)

    def format_score(self, value: object) -> str:
        return wording.score(self.decided_by, number(value), self.in_percent)

    def interval_words(self, row: dict) -> str:
        known = {"value": number(row.get("score")), "low": number(row.get("low")), "high": number(row.get("high"))}
        return wording.score_with_interval(self.decided_by, known, self.in_percent)


def read_tries(folder: str | Path) -> Scored | None:
    return _read(Path(folder) / TRIES, "tries")


def read_curve(folder: str | Path) -> Scored | None:
    return _read(Path(folder) / CURVE, "points")


def _read(path: Path, name: str) -> Scored | None:
    if not path.is_file():
        return None
    about = read_json(path)
    rows = [row for row in about.get(name) or [] if math.isfinite(number(row.get("score")))]
    if not rows:
        raise ValueError(f"{path} has no {name} with a score: let the runs finish first")
    return Scored(about, rows)


def is_several(folder: str | Path) -> bool:
    """Whether a folder contains several runs and is not a run itself."""
    folder = Path(folder)
    has_several = (folder / TRIES).is_file() or (folder / CURVE).is_file()
    return has_several and not (folder / "run.json").is_file()


def about_several(folder: Path) -> dict:
    tries, curve = read_tries(folder), read_curve(folder)
    found: dict = {"kind": "several runs", "tries": None, "curve": None, "in_words": []}
    if tries is not None:
        found |= {"tries": tries.about}
        for row in tries.rows:
            mark = ", degenerate" if row.get("degenerate") else ""
            found["in_words"].append((str(row.get("name", "")), tries.interval_words(row) + mark))
        found["in_words"].append(("best", str(tries.about.get("best") or "")))
    if curve is not None:
        found |= {"curve": curve.about}
        for row in curve.rows:
            name = f"{METHODS.get(row.get('way'), row.get('way'))}, {row['examples']:,} labels"
            found["in_words"].append((name, curve.interval_words(row)))
    return found


# ---- page


def write_several_page(folder: Path) -> Path:
    """Writes `report.html`, and `tries.png` or `curve.png`, for a folder of several runs; returns the page's path."""
    return write_page(folder, "several.html", f"several runs in {folder}", **several_sections(folder))


def several_sections(folder: Path) -> dict[str, dict | None]:
    """What `several_sections.html` shows of `tries.json` and `curve.json`; also writes their plots into the folder."""
    tries, curve = read_tries(folder), read_curve(folder)
    return {
        "tries": tries
        and {
            "title": TITLES.get(str(tries.about.get("kind")), "Tries"),
            "summary": _summary(tries),
            "picture": picture(lambda how: tries_figure(tries, how), "Scores of the tries", folder / "tries.png"),
            "table": _tries_table(tries),
        },
        "curve": curve
        and {
            "picture": picture(
                lambda how: curve_figure(curve, how), "Scores by number of labelled examples", folder / "curve.png"
            ),
            "table": _curve_table(curve),
        },
    }


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
    return f"By {wording.measure(tries.decided_by)} on dev: {'; '.join(parts)}."


def _tries_table(tries: Scored) -> Table:
    rows = []
    for each in tries.rows:
        seconds = number(each.get("seconds"))
        rows.append(
            (
                str(each.get("name", "")) + (" ★" if each.get("name") == tries.about.get("best") else ""),
                f"{number(each.get('lr')):g}",
                str(each.get("seed", "")),
                tries.interval_words(each),
                wording.duration(seconds) if seconds == seconds else "",
                f"degenerate: {each['degenerate']}" if each.get("degenerate") else "",
            )
        )
    return Table(("try", "learning rate", "seed", "score, 95% interval", "time", ""), rows)


def _curve_table(curve: Scored) -> Table:
    sizes = sorted({int(each["examples"]) for each in curve.rows})
    found = {(str(each.get("way")), int(each["examples"])): curve.interval_words(each) for each in curve.rows}
    methods = dict.fromkeys(method for method, _ in found)
    rows = [(METHODS.get(method, method), *(found.get((method, size), "") for size in sizes)) for method in methods]
    return Table(("method", *(f"{size:,}" for size in sizes)), rows)


# ---- plots


def write_tries_picture(folder: str | Path) -> Path:
    """Draws `tries.png` from the `tries.json` of a folder."""
    return write_png(Path(folder) / "tries.png", as_png(tries_figure(_needed(read_tries(folder), folder, TRIES))))


def write_curve_picture(folder: str | Path) -> Path:
    """Draws `curve.png` from the `curve.json` of a folder."""
    return write_png(Path(folder) / "curve.png", as_png(curve_figure(_needed(read_curve(folder), folder, CURVE))))


def _needed(found: Scored | None, folder: str | Path, name: str) -> Scored:
    if found is None:
        raise ValueError(f"{folder} has no {name}: give the --out folder of a search, restarts or a label curve")
    return found


def tries_figure(found: Scored, colours: Colours = LIGHT) -> Figure:
    """Scores with intervals, by learning rate (search) or by seed (restarts); degenerate runs are marked with a
    cross."""
    is_search = found.about.get("kind") == "search"
    rows = sorted(found.rows, key=lambda row: number(row.get("lr"))) if is_search else found.rows
    places = np.arange(len(rows))
    measure, what = wording.capital(wording.measure(found.decided_by)), "learning rates" if is_search else "restarts"
    title = f"{measure} on dev, {len(rows)} {what}"
    figure, axes = new_plot(title, colours, max(4.6, 0.62 * len(rows) + 2.4), 3.4)
    for place, row in zip(places, rows, strict=True):
        _draw_try(axes, place, row, _is_best(row, found), colours)
    median = number(found.about.get("median"))
    if not is_search and math.isfinite(median):
        label = f"median {found.format_score(median)}"
        axes.axhline(median, color=colours.ink, linestyle=(0, (5, 4)), linewidth=1.0, alpha=0.75, label=label)
    if any(_is_best(row, found) for row in rows):
        axes.plot([], [], "*", color=colours.validation, markersize=11, label="best")
    if any(row.get("degenerate") for row in rows):
        axes.plot([], [], "x", color=colours.ink, markersize=8, markeredgewidth=2, label="degenerate")
    names = [
        short_power(number(row.get("lr")), 0) if is_search else str(row.get("seed", i)) for i, row in enumerate(rows)
    ]
    axes.set_xticks(places, names)
    axes.set_xlim(-0.6, len(rows) - 0.4)
    axes.set_xlabel("learning rate" if is_search else "seed")
    if found.decided_by not in wording.NOT_SHARES:
        percent_axis(axes, 1 if found.in_percent else 100)
    show_legend(axes, colours)
    return figure


def _is_best(row: dict, found: Scored) -> bool:
    return "name" in row and row["name"] == found.about.get("best")


def _draw_try(axes: Axes, place: int, row: dict, is_best: bool, colours: Colours) -> None:
    value, low, high = (number(row.get(name)) for name in ("score", "low", "high"))
    is_degenerate = bool(row.get("degenerate"))
    shade = colours.ink if is_degenerate else colours.validation if is_best else colours.train
    if math.isfinite(low) and math.isfinite(high):
        axes.plot([place, place], [low, high], color=shade, linewidth=2.2, alpha=0.45, solid_capstyle="round")
    marker, size = ("x", 8) if is_degenerate else ("*", 14) if is_best else ("o", 7)
    axes.plot(place, value, marker, color=shade, markersize=size, markeredgewidth=2 if is_degenerate else 0)


def curve_figure(found: Scored, colours: Colours = LIGHT) -> Figure:
    """One line per method with its interval as a band, over the number of labelled examples (log axis)."""
    measure = wording.capital(wording.measure(found.decided_by))
    figure, axes = new_plot(f"{measure} on dev by number of labelled examples", colours)
    shades = (colours.validation, colours.train, colours.third, *MORE_SHADES, colours.ink)
    methods = dict.fromkeys(str(row.get("way")) for row in found.rows)
    for place, method in enumerate(methods):
        shade = shades[place % len(shades)]
        rows = sorted((row for row in found.rows if str(row.get("way")) == method), key=lambda row: row["examples"])
        at, value, low, high = (
            np.array([number(row.get(name)) for row in rows]) for name in ("examples", "score", "low", "high")
        )
        axes.plot(at, value, "o-", color=shade, linewidth=1.8, markersize=5, label=METHODS.get(method, method))
        axes.fill_between(at, low, high, color=shade, alpha=0.15, linewidth=0)
    sizes = sorted({int(row["examples"]) for row in found.rows})
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(_without_overlaps(sizes)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_xlabel("labelled examples")
    if found.decided_by not in wording.NOT_SHARES:
        percent_axis(axes, 1 if found.in_percent else 100)
    show_legend(axes, colours)
    return figure


def _without_overlaps(sizes: list[int]) -> list[int]:
    """The sizes whose tick labels do not overlap on a log axis; the last one is always kept."""
    kept = [sizes[-1]]
    for size in sizes[-2::-1]:
        if kept[-1] / max(1, size) >= (sizes[-1] / max(1, sizes[0])) ** 0.09:
            kept.append(size)
    return kept[::-1]
