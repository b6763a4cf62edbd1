"""Descriptions of graph folders and of trained vectors, for `hornbook info`."""

from pathlib import Path

from hornbook.files import read_json, read_json_if_exists
from hornbook.report import formatting


def is_graph(folder: Path) -> bool:
    return read_json_if_exists(folder / "manifest.json").get("kind") == "graph"


def describe_graph(folder: Path) -> dict:
    manifest = read_json(folder / "manifest.json")
    return {
        "kind": "graph",
        **{name: manifest.get(name) for name in ("fingerprint", "totals", "problems", "settings", "seconds")},
        "bytes_on_disk": sum(file.stat().st_size for file in folder.iterdir() if file.is_file()),
    }


def graph_lines(info: dict) -> list[tuple[str, str]]:
    totals = info["totals"]
    names = ("entities", "relations", "edges", "names", "entities_without_name", "isolated_entities")
    out = [(name.replace("_", " "), f"{totals[name]:,}") for name in names]
    out += [(f"{name} edges", f"{count:,}") for name, count in (totals.get("splits") or {}).items()]
    out.append(("size", formatting.size(info["bytes_on_disk"])))
    return out + formatting.problem_rows(info["problems"])


def describe_vectors(folder: Path) -> dict:
    record = read_json(folder / "run.json")
    scores = read_json_if_exists(folder / "scores.json")
    return {"kind": "graph vectors", "request": record["request"], "settings": record["settings"], "scores": scores}


def vector_lines(info: dict) -> list[tuple[str, str]]:
    scores, settings = info["scores"], info["settings"]
    out = [("graph", info["request"]["graph"]), ("model", f"{settings['model']}, width {settings['width']}")]
    if not scores:
        return [*out, ("state", "not finished: resume with 'hornbook graph embed ... --resume'")]
    out.append(("trained", f"{scores['epochs']:g} epochs, {formatting.duration(scores['seconds'])}"))
    out += [(name, f"{scores['test'][name]:.4g}") for name in ("mrr", "hits@1", "hits@3", "hits@10") if scores["test"]]
    return [*out, ("entities without a vector", f"{scores['entities_without_vector']:,}")]
