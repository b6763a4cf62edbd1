"""The run folders below a folder: kind, progress and size on disk of each."""

import time
from collections.abc import Iterator
from pathlib import Path

from hornbook.lifecycle.locking import is_locked
from hornbook.metrics.words import number
from hornbook.report import wording
from hornbook.report.info import describe
from hornbook.report.trials import TRIALS, read_curve, read_trials

RECORD_FILES = ("run.json", "sweep.json")  # files that mark a run folder
HEADINGS = ("run", "what", "state", "result", "steps", "size", "age")


def find_runs(folder: str | Path) -> list[Path]:
    """Run folders at and below `folder`, sorted by name; folders inside a run belong to it."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder: give the folder that contains your runs")
    return list(_found(folder))


def _found(folder: Path) -> Iterator[Path]:
    if any((folder / name).is_file() for name in RECORD_FILES):
        yield folder
        return
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink() and not path.name.startswith("."):
            yield from _found(path)


def summarize_run(run: Path) -> dict:
    """One row of `hornbook runs` as a dictionary. `state` is finished, running, stopped or unreadable."""
    files = [path for path in run.rglob("*") if path.is_file()]
    found = {
        "folder": str(run),
        "bytes": disk_bytes(run),
        "modified": max((path.stat().st_mtime for path in files), default=run.stat().st_mtime),
    }
    try:
        about = _of_kind(run)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        about = {"what": "", "state": "unreadable", "result": str(error), "step": None, "num_steps": None}
    if is_locked(run):
        about["state"] = "running"
    return found | about


def _of_kind(run: Path) -> dict:
    if (run / "sweep.json").is_file() and not (run / TRIALS).is_file():
        return _about({"kind": "several runs"}, "learning rates or seeds", False, "")
    found = describe(run)
    kind = found["kind"]
    if kind == "run":
        loss = (found["best_validation"] or found["last_validation"] or {}).get("loss")
        return _about(found, found["preset"], found["finished"], f"loss {wording.loss(loss)}" if loss else "")
    if kind in ("fine-tuned run", "baseline", "probe"):
        model = found["model"] or found.get("method") or ""
        what = f"{found['task']}: {kind} of {model}" if kind != "fine-tuned run" else f"{found['task']} from {model}"
        return _about(found, what, found["finished"], _scores(found["scores_in_words"]))
    if kind == "several runs":
        trials, curve = read_trials(run), read_curve(run)
        scored = trials or curve
        best = "" if scored is None else scored.format_score(max(number(row["score"]) for row in scored.rows))
        finished = trials is not None or bool(curve and curve.about.get("finished"))
        name = "label curve" if curve else "learning rates or seeds"
        return _about(found, name, finished, f"best {scored.metric_for_best} {best}" if best else "")
    if kind == "prompted task":
        return _about(found, f"{found['task']}: prompts to {found['model']}", found["finished"], "")
    done = f"{found['num_done']} of {found['num_jobs'] or '?'} jobs"
    return _about(found, found["title"], found["num_done"] == found["num_jobs"], done)


def _about(found: dict, what: str, finished: bool, result: str) -> dict:
    return {
        "kind": found["kind"],
        "what": what,
        "state": "finished" if finished else "stopped",
        "result": result,
        "step": found.get("step"),
        "num_steps": found.get("num_steps"),
    }


def _scores(splits: dict) -> str:
    """The first score of the validation split, without its interval."""
    score = next(iter(splits.get("dev") or ()), "")
    return score.partition(" (")[0]


def row(about: dict, root: Path) -> tuple[str, ...]:
    folder = Path(about["folder"])
    steps = "" if about["step"] is None else f"{about['step']:,} of {about['num_steps']:,}"
    age = wording.duration(max(0.0, time.time() - about["modified"]))
    name = str(folder if folder == root else folder.relative_to(root))
    return (name, about["what"], about["state"], about["result"], steps, wording.size(about["bytes"]), age)


def disk_bytes(folder: Path, without: set[Path] = frozenset()) -> int:
    """Bytes of the files in a folder; hard links to the same file count once."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink() and path not in without]
    return sum({(stat.st_dev, stat.st_ino): stat.st_size for stat in (path.stat() for path in files)}.values())
