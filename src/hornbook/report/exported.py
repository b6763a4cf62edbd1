"""Description of an exported model, from the `export.json` written by `hornbook export`."""

from pathlib import Path
from typing import Any

from hornbook.files import read_json, read_json_if_exists
from hornbook.report import formatting

EXPORT_FILE = "export.json"


def describe_exported(folder: Path) -> dict[str, Any]:
    record = read_json(folder / EXPORT_FILE)
    if "agreement" not in record or "memory_bytes" not in record:
        raise ValueError(f"{folder} was not fully measured: delete it and export the model again")
    return {"kind": "exported model", "task": read_json_if_exists(folder / "task.json").get("task"), **record}


def exported_lines(info: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        *(("family", info["family"]), ("task", info["task"] or ""), ("exported from", info["request"]["model"])),
        *(("format", info["request"]["format"]), ("inputs", ", ".join(info["input_names"]))),
        ("outputs", ", ".join(info["output_names"])),
        *measurement_rows(info),
    ]


def measurement_rows(record: dict[str, Any]) -> list[tuple[str, str]]:
    """The measurements as (label, text) rows of a table."""
    now, before = record["latency_ms"], record["latency_ms_before"]
    memory, agreement = record["memory_bytes"], record["agreement"]
    request = record["request"]
    timed = f"one input of {request['length']} tokens on {formatting.cores(request['threads'])}"
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
            rows.append((f"{name}, {where}", f"{score['value']:.4g}; before export {before_export:.4g}"))
    return rows + [("note", note) for note in record.get("notes", [])]
