"""The runs below a folder, with their curves, for the page; those that changed are read again at each request, so that
training is seen live."""

import contextlib
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from hornbook.files import read_json
from hornbook.lifecycle.locking import is_locked
from hornbook.lifecycle.run_folder import METRICS, RECORD, read_metrics
from hornbook.report.run_files import NOT_LOSSES, mask_token, read_samples, split_sample
from hornbook.report.run_list import find_runs, summarize_files

MAX_RUNS = 50
MAX_POINTS = 300  # per curve
CURVES = ("train", "validation")
Stamp = tuple[int, int] | None  # time of the last change and size of a file


def list_runs(folder: Path) -> list[dict[str, Any]]:
    """The runs that changed last, newest first: name, state, result, steps, objective, the points of their curves, each
    [step, loss, tokens per second], and their samples."""
    runs = sorted(find_runs(folder), key=lambda run: (_stamp(run / METRICS) or _stamp(run) or (0, 0))[0], reverse=True)
    listed = []
    for run in runs[:MAX_RUNS]:
        name = run.name if run == folder else str(run.relative_to(folder))
        with contextlib.suppress(OSError):  # it was just removed
            details = _details(run, _stamps(run))
            listed.append({"name": name, **details, **({"state": "running"} if is_locked(run) else {})})
    return listed


def _stamps(run: Path) -> tuple[tuple[str, Stamp], ...]:
    """Those of all files and folders in a run: of a folder, when something was last added to it."""
    return tuple((name, _stamp(run / name)) for name in sorted(os.listdir(run)))


def _stamp(path: Path) -> Stamp:
    try:
        stat = path.stat()
    except OSError:  # there is no such file, or no longer
        return None
    return stat.st_mtime_ns, stat.st_size


@lru_cache(maxsize=4 * MAX_RUNS)
def _details(run: Path, stamps: tuple[tuple[str, Stamp], ...]) -> dict[str, Any]:
    """The state, the objective, the curves of at most `MAX_POINTS` points each, and the samples, which are read again
    when a file changes. A line that is still being written is left out."""
    points: dict[str, dict[int, list]] = {kind: {} for kind in CURVES}
    terms: list[str] = []
    for row in read_metrics(run):
        if row["kind"] in CURVES and "loss" in row:
            points[row["kind"]][row["step"]] = [row["step"], row["loss"], row.get("tokens_per_second")]
            if row["kind"] == "train":
                terms = [name for name in row if name not in NOT_LOSSES | {"epoch"}]
    curves = {kind: _thinned([by_step[step] for step in sorted(by_step)]) for kind, by_step in points.items()}
    summary = summarize_files(run)
    state = {key: summary.get(key) for key in ("what", "state", "result", "step", "num_steps")}
    return {**state, "objective": _objective(run, terms), "curves": curves, "samples": _samples(run)}


def _objective(run: Path, terms: list[str]) -> str:
    """What the loss of a run is the sum of, such as `mlm + nsp`: losses of different objectives are not comparable."""
    try:
        record = read_json(run / RECORD)
    except (ValueError, OSError):
        record = {}
    task = str(record.get("task") or "task")
    return " + ".join(task if term == "task" else term for term in terms) or str(record.get("command") or "")


def _samples(run: Path) -> list[dict[str, Any]]:
    """The samples of a run; none if they cannot be read."""
    try:
        mask = mask_token(run)
        samples = [split_sample(sample, mask) for sample in read_samples(run)]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []
    names = ("token", "probability")
    return [
        sample | {"guesses": [dict(zip(names, guess, strict=True)) for guess in sample["guesses"]]}
        for sample in samples
    ]


def _thinned(points: list) -> list:
    """At most `MAX_POINTS` of the points, the last one included.

    >>> _thinned(list(range(1000)))[-1], len(_thinned(list(range(1000)))) <= MAX_POINTS
    (999, True)
    """
    every = -(-len(points) // MAX_POINTS)
    return points[::-1][::every][::-1] if every > 1 else points
