"""Plots of several runs: `tries.png` for a search or restarts, `curve.png` for scores by number of labels."""

import math
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from hornbook.report import wording
from hornbook.report.drawing import (
    DARK,
    LIGHT,
    Colours,
    as_png,
    new_figure,
    short_power,
    show_legend,
    style,
    write_png,
    write_title,
)
from hornbook.report.run import number
from hornbook.report.several import CURVE, METHODS, TRIES, Scored, read_curve, read_tries


def write_tries_picture(folder: str | Path) -> Path:
    """Draws `tries.png` from the `tries.json` of a folder."""
    return write_png(Path(folder) / "tries.png", tries_png(_needed(read_tries(folder), folder, TRIES)))


def write_curve_picture(folder: str | Path) -> Path:
    """Draws `curve.png` from the `curve.json` of a folder."""
    return write_png(Path(folder) / "curve.png", curve_png(_needed(read_curve(folder), folder, CURVE)))


def _needed(found: Scored | None, folder: str | Path, name: str) -> Scored:
    if found is None:
        raise ValueError(f"{folder} has no {name}: give the --out folder of a search, restarts or a label curve")
    return found


def tries_png(found: Scored, dark: bool = False) -> bytes:
    return as_png(tries_figure(found, DARK if dark else LIGHT))


def tries_figure(found: Scored, colours: Colours = LIGHT) -> Figure:
    """Scores with intervals, by learning rate (search) or by seed (restarts); degenerate runs are marked with a
    cross."""
    is_search = found.about.get("kind") == "search"
    rows = sorted(found.rows, key=lambda row: number(row.get("lr"))) if is_search else found.rows
    places = np.arange(len(rows))
    figure = new_figure(max(4.6, 0.62 * len(rows) + 2.4), 3.4, colours)
    axes = figure.add_subplot()
    style(axes, colours)
    what = "learning rates" if is_search else "restarts"
    write_title(axes, f"{_capital(wording.measure(found.decided_by))} on dev, {len(rows)} {what}", colours)
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
    _percent_axis(axes, found)
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


def curve_png(found: Scored, dark: bool = False) -> bytes:
    return as_png(curve_figure(found, DARK if dark else LIGHT))


def curve_figure(found: Scored, colours: Colours = LIGHT) -> Figure:
    """One line per method with its interval as a band, over the number of labelled examples (log axis)."""
    figure = new_figure(7.2, 4.2, colours)
    axes = figure.add_subplot()
    style(axes, colours)
    write_title(axes, f"{_capital(wording.measure(found.decided_by))} on dev by number of labelled examples", colours)
    shades = (colours.validation, colours.train, colours.third, "#9a63c4", "#b98a1d", "#3a9fb3", "#c2527f", colours.ink)
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
    _percent_axis(axes, found)
    show_legend(axes, colours)
    return figure


def _without_overlaps(sizes: list[int]) -> list[int]:
    """The sizes whose tick labels do not overlap on a log axis; the last one is always kept."""
    kept = [sizes[-1]]
    for size in sizes[-2::-1]:
        if kept[-1] / max(1, size) >= (sizes[-1] / max(1, sizes[0])) ** 0.09:
            kept.append(size)
    return kept[::-1]


def _percent_axis(axes: Axes, found: Scored) -> None:
    if found.decided_by not in wording.NOT_SHARES:
        unit = 1 if found.in_percent else 100
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{unit * value:g}%"))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
