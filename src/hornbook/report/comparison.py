"""Comparison of several models, from the `comparison.json` written by `hornbook compare`: a table for the terminal, a
plot of score against latency, and an HTML page."""

from pathlib import Path

from hornbook.files import read_json
from hornbook.report import wording
from hornbook.report.rendering import Table, write_page

COMPARISON_FILE, PICTURE = "comparison.json", "comparison.png"
KINDS = {"torch": "Hornbook", "onnx": "ONNX", "onnx-int8": "ONNX, int8"}


def write_comparison_page(folder: Path) -> Path:
    """Writes `report.html` and `comparison.png` into the folder of a `comparison.json`; returns the page's path."""
    from hornbook.report.plots.drawing import picture
    from hornbook.report.plots.scores import comparison_figure

    found = read_json(folder / COMPARISON_FILE)
    if not found.get("rows"):
        raise ValueError(f"{folder / COMPARISON_FILE} has no rows: run the comparison again")
    return write_page(
        folder,
        "comparison.html",
        f"Comparison of {len(found['rows'])} models",
        notes=found.get("notes", []),
        picture=picture(comparison_figure(found), title(found), folder / PICTURE),
        table=Table(headings(found), cells(found)),
        how_measured=how_measured(found),
    )


def headings(found: dict) -> tuple[str, ...]:
    has_gpu = any("cuda" in each["throughput"] for each in found["rows"])
    score = (wording.metric_label(found["metric_for_best"]), "score kept") if has_scores(found) else ()
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
    if has_scores(found):
        score = each.get("score")
        values.append(wording.score_with_interval(found["metric_for_best"], score, in_percent(found)) if score else "–")
        values.append(wording.percent(each["kept"]) if "kept" in each else "–")
    return tuple(values)


def how_measured(found: dict) -> list[str]:
    timed = f"examples of {found['data']}" if found.get("data") else f"{found['length']} random tokens"
    devices = "; ".join(found["devices"].values())
    lines = [
        f"Latency: one input at a time on {wording.cores(found['threads'])}, {found['rounds']} interleaved rounds, "
        f"without tokenization. Throughput: batches of {found['batch_size']} inputs. Inputs: {timed}. {devices}.",
        "FLOPs: per input, two per multiply-add with a weight. Speedup and score kept: relative to the first model.",
    ]
    if has_scores(found):
        where = f"{found['task']}, {found['split']}"
        how = "computed for this comparison" if found.get("data") else "as recorded by the runs"
        lines.append(f"Scores: {wording.metric_label(found['metric_for_best'])} on {where}, with 95% intervals, {how}.")
    return lines


def _speed(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def has_scores(found: dict) -> bool:
    return any(each.get("score") for each in found["rows"])


def in_percent(found: dict) -> bool:
    """Whether scores are in percent, as those of span tasks are; the others are fractions."""
    return bool(found.get("in_percent"))


def describe_comparison(folder: Path) -> dict:
    found = read_json(folder / COMPARISON_FILE)
    _, *titles = headings(found)
    in_words = [
        (name, "; ".join(f"{title} {cell}" for title, cell in zip(titles, cells, strict=True)))
        for name, *cells in cells(found)
    ]
    return {"kind": "comparison", **found, "in_words": [*in_words, ("data", str(found["data"] or ""))]}


def title(found: dict) -> str:
    if not has_scores(found):
        return "Inputs per second on the CPU, against latency"
    return f"{wording.capital(wording.metric_label(found['metric_for_best']))} on {found['task']}, against latency"
