"""Measurements of models: the comparison of several, from the `comparison.json` written by `hornbook compare` (a table
for the terminal, a plot of score against latency, and an HTML page), and those of an exported model, from the
`export.json` written by `hornbook export`."""

from pathlib import Path
from typing import Any

from hornbook.files import read_json, read_json_if_exists, refusing_damage
from hornbook.report import formatting
from hornbook.report.rendering import Table, write_page

COMPARISON_FILE, PLOT_FILE, EXPORT_FILE = "comparison.json", "comparison.png", "export.json"
KINDS = {"torch": "Hornbook", "onnx": "ONNX", "onnx-int8": "ONNX, int8"}


def write_comparison_page(folder: Path) -> Path:
    """Writes `report.html` and `comparison.png` into the folder of a `comparison.json`; returns the page's path."""
    from hornbook.report.plots.drawing import render_png
    from hornbook.report.plots.scores import comparison_figure

    record = read_json(folder / COMPARISON_FILE)
    if not record.get("rows"):
        raise ValueError(f"{folder / COMPARISON_FILE} has no rows: run the comparison again")
    return write_page(
        folder,
        "comparison.html",
        f"Comparison of {len(record['rows'])} models",
        notes=record.get("notes", []),
        plot=render_png(comparison_figure(record), title(record), folder / PLOT_FILE),
        table=comparison_table(record),
        how_measured=how_measured(record),
    )


def comparison_table(record: dict) -> Table:
    """One row per model; unknown values are a dash."""
    rows = record["rows"]
    columns = {
        "model": [row["name"] for row in rows],
        "runtime": [KINDS.get(row["kind"], row["kind"]) for row in rows],
        "size": [formatting.size(row["bytes"]) for row in rows],
        "parameters": [formatting.amount(row["parameters"]) for row in rows],
        "FLOPs": [formatting.amount(row["flops"]) for row in rows],
        "p50, ms": [f"{row['latency_ms']['p50']:.2f}" for row in rows],
        "p99, ms": [f"{row['latency_ms']['p99']:.2f}" for row in rows],
        "speedup": [f"{row['times_faster']:.2f} x" for row in rows],
        "inputs/s, CPU": [format_speed(row["throughput"]["cpu"]) for row in rows],
    }
    if any("cuda" in row["throughput"] for row in rows):
        columns["inputs/s, GPU"] = [format_speed(row["throughput"].get("cuda")) for row in rows]
    if has_scores(record):
        metric = record["metric_for_best"]
        columns[formatting.metric_label(metric)] = [
            formatting.score_with_interval(metric, row["score"]) if row.get("score") else "–" for row in rows
        ]
        columns["score kept"] = [formatting.percent(row["kept"]) if "kept" in row else "–" for row in rows]
    return Table(tuple(columns), list(zip(*columns.values(), strict=True)))


def how_measured(record: dict) -> list[str]:
    timed = f"examples of {record['data']}" if record.get("data") else f"{record['length']} random tokens"
    devices, cores = "; ".join(record["devices"].values()), formatting.counted(record["threads"], "core")
    lines = [
        f"Latency: one input at a time on {cores}, {record['rounds']} interleaved rounds, without tokenization. "
        f"Throughput: batches of {record['batch_size']} inputs. Inputs: {timed}. {devices}.",
        "FLOPs: of the forward pass of an input, two per multiply-add. Speedup and score kept: relative to the first "
        "model.",
    ]
    if has_scores(record):
        where = f"{record['task']}, {formatting.split_label(record['split'], record.get('data'))}"
        how = "computed for this comparison" if record.get("data") else "as recorded by the runs"
        lines.append(
            f"Scores: {formatting.metric_label(record['metric_for_best'])} on {where}, with 95% intervals, {how}."
        )
    return lines


def format_speed(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def has_scores(record: dict) -> bool:
    return any(row.get("score") for row in record["rows"])


def describe_comparison(folder: Path) -> dict:
    with refusing_damage(folder / COMPARISON_FILE, "restore it, or create the folder again"):
        record = read_json(folder / COMPARISON_FILE)
        table = comparison_table(record)
        lines = [
            (name, "; ".join(f"{title} {cell}" for title, cell in zip(table.titles[1:], cells, strict=True)))
            for name, *cells in table.rows
        ]
        return {"kind": "comparison", **record, "lines": [*lines, ("data", str(record["data"] or ""))]}


def title(record: dict) -> str:
    if not has_scores(record):
        return "Inputs per second on the CPU, against latency"
    return (
        f"{formatting.capital(formatting.metric_label(record['metric_for_best']))} on {record['task']}, against latency"
    )


# ---- exported models


def describe_exported(folder: Path) -> dict[str, Any]:
    record, task = read_json(folder / EXPORT_FILE), read_json_if_exists(folder / "task.json").get("task")
    if "agreement" not in record or "memory_bytes" not in record:
        raise ValueError(f"{folder} was not fully measured: delete it and export the model again")
    lines = [
        *(("family", record["family"]), ("task", task or ""), ("exported from", record["request"]["model"])),
        *(("format", record["request"]["format"]), ("inputs", ", ".join(record["input_names"]))),
        ("outputs", ", ".join(record["output_names"])),
        *measurement_rows(record),
    ]
    return {"kind": "exported model", "task": task, **record, "lines": lines}


def measurement_rows(record: dict[str, Any]) -> list[tuple[str, str]]:
    """The measurements as (label, text) rows of a table."""
    now, before = record["latency_ms"], record["latency_ms_before"]
    memory, agreement = record["memory_bytes"], record["agreement"]
    request = record["request"]
    timed = f"one input of {request['length']} tokens on {formatting.counted(request['threads'], 'core')}"
    num_inputs, difference = f"{agreement['num_inputs']:,} inputs", f"{agreement['largest_difference']:.2g}"
    rows = [
        (
            "file",
            f"{formatting.size(record['bytes'])}; {formatting.size(record['inputs']['model']['bytes'])} before export",
        ),
        ("parameters", formatting.amount(record["parameters"])),
        (
            "peak memory",
            f"{formatting.size(memory['peak'])}, of which {formatting.size(memory['without_model'])} Python and "
            "onnxruntime",
        ),
        ("latency p50, p99", f"{now['p50']:.1f}, {now['p99']:.1f} ms: {timed}"),
        ("latency in PyTorch", f"{before['p50']:.1f}, {before['p99']:.1f} ms"),
        ("largest difference", f"{difference} in the outputs, on {num_inputs} of {agreement['on']}"),
    ]
    if "same" in agreement:
        rows.append(("same predictions", f"{100 * agreement['same']:.2f}% of {num_inputs}"))
    if "smallest_cosine" in agreement:
        cosine = f"{agreement['smallest_cosine']:.4f}"
        rows.append(("smallest cosine", f"{cosine} between mean-pooled vectors of the same input"))
    for split, scores in record.get("scores", {}).items():
        for name, score in scores.items():
            before_export = record["scores_before"][split][name]["value"]
            where = formatting.split_label(split, record.get("scored_on"))
            text = f"{formatting.score(name, score['value'])}; before export {formatting.score(name, before_export)}"
            rows.append((f"{formatting.metric_label(name)}, {where}", text))
    return rows + [("note", note) for note in record.get("notes", [])]
