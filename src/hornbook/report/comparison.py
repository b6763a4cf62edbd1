"""Comparison of several models, from the `comparison.json` written by `hornbook compare`: a table for the terminal, a
plot of score against latency, and an HTML page."""

import math
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from hornbook.files import read_json
from hornbook.report import wording
from hornbook.report.plots.drawing import LIGHT, Colours, new_plot, percent_axis
from hornbook.report.rendering import Table, picture, write_page
from hornbook.report.run import number

FILE, PICTURE = "comparison.json", "comparison.png"
KINDS = {"torch": "Hornbook", "onnx": "ONNX", "onnx-int8": "ONNX, int8"}
SMALLEST_DOT, LARGEST_DOT = 40, 900  # in points squared


def is_comparison(folder: str | Path) -> bool:
    return (Path(folder) / FILE).is_file()


def write_comparison_page(folder: Path) -> Path:
    """Writes `report.html` and `comparison.png` into the folder of a `comparison.json`; returns the page's path."""
    found = read_json(folder / FILE)
    if not found.get("rows"):
        raise ValueError(f"{folder / FILE} has no rows: run the comparison again")
    return write_page(
        folder,
        "comparison.html",
        f"Comparison of {len(found['rows'])} models",
        notes=found.get("notes", []),
        picture=picture(lambda colours: figure(found, colours), _title(found), folder / PICTURE),
        table=Table(headings(found), cells(found)),
        how_measured=how_measured(found),
    )


def headings(found: dict) -> tuple[str, ...]:
    has_gpu = any("cuda" in each["throughput"] for each in found["rows"])
    score = (wording.measure(found["decided_by"]), "score kept") if _has_scores(found) else ()
    gpu = ("inputs/s, GPU",) if has_gpu else ()
    return (
        *("model", "runtime", "size", "parameters", "FLOPs", "p50, ms", "p99, ms", "speedup"),
        *("inputs/s, CPU", *gpu, *score),
    )


def cells(found: dict) -> list[tuple[str, ...]]:
    """One row per model, in the columns of `headings`; unknown values are a dash."""
    return [_cells(each, found) for each in found["rows"]]


def _cells(each: dict, found: dict) -> tuple[str, ...]:
    latency, speeds = each["latency_ms"], each["throughput"]
    values = [
        *(each["name"], KINDS.get(each["kind"], each["kind"]), wording.size(each["bytes"])),
        *(wording.amount(each["parameters"]), wording.amount(each["flops"])),
        *(f"{latency['p50']:.2f}", f"{latency['p99']:.2f}", f"{each['times_faster']:.2f} x", _speed(speeds["cpu"])),
    ]
    if any("cuda" in one["throughput"] for one in found["rows"]):
        values.append(_speed(speeds["cuda"]) if "cuda" in speeds else "–")
    if _has_scores(found):
        score = each.get("score")
        values.append(wording.score_with_interval(found["decided_by"], score, _in_percent(found)) if score else "–")
        values.append(wording.percent(each["kept"]) if "kept" in each else "–")
    return tuple(values)


def how_measured(found: dict) -> list[str]:
    timed = f"examples of {found['data']}" if found.get("data") else f"{found['length']} random tokens"
    cores = "one core" if found["threads"] == 1 else f"{found['threads']} cores"
    devices = "; ".join(found["devices"].values())
    lines = [
        f"Latency: one input at a time on {cores}, {found['rounds']} interleaved rounds, without "
        f"tokenization. Throughput: batches of {found['batch_size']} inputs. Inputs: {timed}. {devices}.",
        "FLOPs: per input, two per multiply-add with a weight. Speedup and score kept: relative to the first model.",
    ]
    if _has_scores(found):
        where = f"{found['task']}, {found['part']}"
        how = "computed for this comparison" if found.get("data") else "as recorded by the runs"
        lines.append(f"Scores: {wording.measure(found['decided_by'])} on {where}, with 95% intervals, {how}.")
    return lines


def _speed(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _has_scores(found: dict) -> bool:
    return any(each.get("score") for each in found["rows"])


def _in_percent(found: dict) -> bool:
    """Whether scores are in percent, as those of span tasks are; the others are fractions."""
    return any(number(each.get("score", {}).get("value")) > 1.5 for each in found["rows"])


def about_comparison(folder: Path) -> dict:
    found = read_json(folder / FILE)
    _, *titles = headings(found)
    in_words = [
        (name, "; ".join(f"{title} {cell}" for title, cell in zip(titles, cells, strict=True)))
        for name, *cells in cells(found)
    ]
    return {"kind": "comparison", **found, "in_words": [*in_words, ("data", str(found["data"] or ""))]}


# ---- plot


def figure(found: dict, colours: Colours = LIGHT) -> Figure:
    """Score (CPU throughput where there are no scores) against latency; the area of a dot is the file size."""
    drawn, axes = new_plot(_title(found), colours, height=4.4)
    rows = [each for each in found["rows"] if not _has_scores(found) or each.get("score")]
    most = max(each["bytes"] for each in rows)
    shades = {"torch": colours.train, "onnx": colours.third, "onnx-int8": colours.validation}
    for place, each in enumerate(rows):
        x, y = each["latency_ms"]["p50"], _height(each)
        area = max(SMALLEST_DOT, LARGEST_DOT * each["bytes"] / most)
        shade = shades.get(each["kind"], colours.ink)
        axes.scatter(x, y, s=area, color=shade, alpha=0.75, linewidths=0, zorder=3)
        if low_high := _interval(each):
            axes.plot([x, x], low_high, color=shade, linewidth=1.6, alpha=0.45, solid_capstyle="round")
        above = math.sqrt(area) / 2 + 3
        offset, anchor = ((0, above), "bottom") if place % 2 == 0 else ((0, -above), "top")
        exported = "" if each["kind"] == "torch" else f" ({KINDS[each['kind']]})"
        label = _short_name(each, found["rows"]) + exported
        look = {"textcoords": "offset points", "ha": "center", "va": anchor, "fontsize": 8, "color": colours.ink}
        rim = withStroke(linewidth=3, foreground=colours.paper)  # keeps the label readable over interval lines
        axes.annotate(label, (x, y), offset, path_effects=[rim], zorder=4, **look)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.margins(0.18, 0.22)
    cores = "one core" if found["threads"] == 1 else f"{found['threads']} cores"
    axes.set_xlabel(f"median latency of one input on {cores}, ms (dot area: file size)")
    if _has_scores(found) and found["decided_by"] not in wording.NOT_SHARES:
        percent_axis(axes, 1 if _in_percent(found) else 100)
    return drawn


def _title(found: dict) -> str:
    if not _has_scores(found):
        return "Inputs per second on the CPU, against latency"
    return f"{wording.capital(wording.measure(found['decided_by']))} on {found['task']}, against latency"


def _height(each: dict) -> float:
    return each["score"]["value"] if each.get("score") else each["throughput"]["cpu"]


def _interval(each: dict) -> list[float]:
    score = each.get("score") or {}
    ends = [number(score.get(name)) for name in ("low", "high")]
    return ends if np.isfinite(ends).all() else []


def _short_name(each: dict, rows: list[dict]) -> str:
    """The shortest suffix of the path that distinguishes this model from the others."""
    others = [Path(one["name"]).parts for one in rows if one["name"] != each["name"]]
    parts = Path(each["name"]).parts
    for num in range(1, len(parts) + 1):
        if all(other[-num:] != parts[-num:] for other in others):
            return "/".join(parts[-num:])
    return each["name"]
