"""The runs below a folder, with their curves, for the page; read at each request, so that training is seen live."""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from hornbook.report.runs import about_run, find_runs

MAX_RUNS = 50
MAX_POINTS = 300  # per curve
CURVES = ("train", "validation")


def list_runs(folder: Path) -> list[dict[str, Any]]:
    """The runs that changed last, newest first: name, state, result, steps, and the points of their curves, each [step,
    loss, tokens per second]."""
    runs = sorted(find_runs(folder), key=_modified, reverse=True)[:MAX_RUNS]
    found = []
    for run in runs:
        about = about_run(run)
        kept = {name: about.get(name) for name in ("what", "state", "result", "step", "num_steps")}
        name = run.name if run == folder else str(run.relative_to(folder))
        found.append({"name": name, **kept, "curves": _curves(run)})
    return found


def _modified(run: Path) -> float:
    metrics = run / "metrics.jsonl"
    return (metrics if metrics.is_file() else run).stat().st_mtime


def _curves(run: Path) -> dict[str, list]:
    file = run / "metrics.jsonl"
    if not file.is_file():
        return {}
    state = file.stat()
    return _read(file, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=2 * MAX_RUNS)
def _read(file: Path, modified: int, size: int) -> dict[str, list]:
    """The points of each curve, at most `MAX_POINTS` each; a line that is still being written is left out."""
    points: dict[str, dict[int, list]] = {kind: {} for kind in CURVES}
    for line in file.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            row = json.loads(line)
            points[row["kind"]][row["step"]] = [row["step"], row["loss"], row.get("tokens_per_second")]
        except (ValueError, KeyError, TypeError):
            continue
    return {kind: _thinned([its[step] for step in sorted(its)]) for kind, its in points.items()}


def _thinned(points: list) -> list:
    """At most `MAX_POINTS` of the points, the last one included.

    >>> _thinned(list(range(1000)))[-1], len(_thinned(list(range(1000)))) <= MAX_POINTS
    (999, True)
    """
    every = -(-len(points) // MAX_POINTS)
    return points[::-1][::every][::-1] if every > 1 else points
