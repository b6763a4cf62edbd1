"""The run folders below a folder: kind, progress and size on disk of each."""

import time
from collections.abc import Iterator
from pathlib import Path

from hornbook.lifecycle.locking import is_locked
from hornbook.metrics.formatting import number
from hornbook.report import formatting
from hornbook.report.info import describe
from hornbook.report.trials import TRIALS, read_curve, read_trials

RECORD_FILES = ("run.json", "sweep.json")  # files that mark a run folder
HEADINGS = ("run", "what", "state", "result", "steps", "size", "age")


def find_runs(folder: str | Path) -> list[Path]:
    """Run folders at and below `folder`, sorted by name; folders inside a run belong to it."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder: give the folder that contains your runs")
    return list(_runs_below(folder))


def _runs_below(folder: Path) -> Iterator[Path]:
    if any((folder / name).is_file() for name in RECORD_FILES):
        yield folder
        return
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink() and not path.name.startswith("."):
            yield from _runs_below(path)


def summarize_run(run: Path) -> dict:
    """One row of `hornbook runs` as a dictionary. `state` is finished, running, stopped or unreadable."""
    files = [path for path in run.rglob("*") if path.is_file()]
    folder = {
        "folder": str(run),
        "bytes": disk_bytes(run),
        "modified": max((path.stat().st_mtime for path in files), default=run.stat().st_mtime),
    }
    try:
        summary = _summarize(run)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        summary = {"what": "", "state": "unreadable", "result": str(error), "step": None, "num_steps": None}
    if is_locked(run):
        summary["state"] = "running"
    return folder | summary


def _summarize(run: Path) -> dict:
    if (run / "sweep.json").is_file() and not (run / TRIALS).is_file():
        return _summary({"kind": "several runs"}, "learning rates or seeds", False, "")
    info = describe(run)
    kind = info["kind"]
    if kind == "run":
        loss = (info["best_validation"] or info["last_validation"] or {}).get("loss")
        return _summary(info, info["preset"], info["finished"], f"loss {formatting.loss(loss)}" if loss else "")
    if kind in ("fine-tuned run", "baseline", "probe"):
        model = info["model"] or info.get("method") or ""
        what = f"{info['task']}: {kind} of {model}" if kind != "fine-tuned run" else f"{info['task']} from {model}"
        return _summary(info, what, info["finished"], _dev_score(info["formatted_scores"]))
    if kind == "several runs":
        trials, curve = read_trials(run), read_curve(run)
        scored = trials or curve
        best = "" if scored is None else scored.format_score(max(number(row["score"]) for row in scored.rows))
        finished = trials is not None or bool(curve and curve.contents.get("finished"))
        name = "label curve" if curve else "learning rates or seeds"
        return _summary(info, name, finished, f"best {scored.metric_for_best} {best}" if best else "")
    if kind == "prompted task":
        return _summary(info, f"{info['task']}: prompts to {info['model']}", info["finished"], "")
    done = f"{info['num_done']} of {info['num_jobs'] or '?'} jobs"
    return _summary(info, info["title"], info["num_done"] == info["num_jobs"], done)


def _summary(info: dict, what: str, finished: bool, result: str) -> dict:
    return {
        "kind": info["kind"],
        "what": what,
        "state": "finished" if finished else "stopped",
        "result": result,
        "step": info.get("step"),
        "num_steps": info.get("num_steps"),
    }


def _dev_score(splits: dict) -> str:
    """The first score of the validation split, without its interval."""
    score = next(iter(splits.get("dev") or ()), "")
    return score.partition(" (")[0]


def row(summary: dict, root: Path) -> tuple[str, ...]:
    """The result of `summarize_run` in the columns of `HEADINGS`."""
    folder = Path(summary["folder"])
    steps = "" if summary["step"] is None else f"{summary['step']:,} of {summary['num_steps']:,}"
    age = formatting.duration(max(0.0, time.time() - summary["modified"]))
    name = str(folder if folder == root else folder.relative_to(root))
    return (name, summary["what"], summary["state"], summary["result"], steps, formatting.size(summary["bytes"]), age)


def disk_bytes(folder: Path, without: set[Path] = frozenset()) -> int:
    """Bytes of the files in a folder; hard links to the same file count once."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink() and path not in without]
    return sum({(stat.st_dev, stat.st_ino): stat.st_size for stat in (path.stat() for path in files)}.values())
