"""Description of an exported model, from the `export.json` written by `hornbook export`."""

from pathlib import Path
from typing import Any

from hornbook.files import read_json
from hornbook.report import wording

EXPORT_FILE = "export.json"


def describe_exported(folder: Path) -> dict[str, Any]:
    record = read_json(folder / EXPORT_FILE)
    if "agreement" not in record or "memory_bytes" not in record:
        raise ValueError(f"{folder} was not fully measured: delete it and export the model again")
    task = read_json(folder / "task.json").get("task") if (folder / "task.json").is_file() else None
    return {"kind": "exported model", "task": task, **record}


def exported_lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        *(("family", found["family"]), ("task", found["task"] or ""), ("exported from", found["request"]["model"])),
        *(("format", found["request"]["format"]), ("inputs", ", ".join(found["input_names"]))),
        ("outputs", ", ".join(found["output_names"])),
        *measurement_rows(found),
    ]


def measurement_rows(record: dict[str, Any]) -> list[tuple[str, str]]:
    """The measurements as (label, text) rows of a table."""
    now, before = record["latency_ms"], record["latency_ms_before"]
    memory, agreed = record["memory_bytes"], record["agreement"]
    request = record["request"]
    at = f"one input of {request['length']} tokens on {wording.cores(request['threads'])}"
    rows = [
        ("file", f"{wording.size(record['bytes'])}; {wording.size(record['inputs']['model']['bytes'])} before export"),
        ("parameters", wording.amount(record["parameters"])),
        (
            "peak memory",
            f"{wording.size(memory['peak'])}, of which {wording.size(memory['without_model'])} Python and onnxruntime",
        ),
        ("latency p50, p99", f"{now['p50']:.1f}, {now['p99']:.1f} ms: {at}"),
        ("latency in PyTorch", f"{before['p50']:.1f}, {before['p99']:.1f} ms"),
        ("largest difference", f"{agreed['largest_difference']:.2g} in the outputs, on {_inputs(agreed)}"),
    ]
    if "same" in agreed:
        rows.append(("same predictions", f"{100 * agreed['same']:.2f}% of {agreed['num_inputs']:,} inputs"))
    if "smallest_cosine" in agreed:
        rows.append(
            ("smallest cosine", f"{agreed['smallest_cosine']:.4f} between mean-pooled vectors of the same input")
        )
    for split, scores in record.get("scores", {}).items():
        for name, found in scores.items():
            before_export = record["scores_before"][split][name]["value"]
            rows.append((f"{name}, {split}", f"{found['value']:.4g}; before export {before_export:.4g}"))
    return rows + [("note", note) for note in record.get("notes", [])]


def _inputs(agreed: dict[str, Any]) -> str:
    return f"{agreed['num_inputs']:,} inputs of {agreed['on']}"
