"""The run folders below a folder: kind, progress and size on disk of each."""

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from hornbook.lifecycle.locking import is_locked
from hornbook.report import formatting
from hornbook.report.info import describe
from hornbook.report.trials import SWEEP

RECORD_FILES = ("run.json", SWEEP)  # files that mark a run folder
REPORT_SUFFIXES = (".html", ".png")
HEADINGS = ("run", "what", "state", "result", "steps", "size", "age")


def find_runs(folder: str | Path) -> list[Path]:
    """Run folders at and below `folder`, sorted by name; folders inside a run belong to it."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder: give the folder that contains your runs")
    return list(_runs_below(folder))


def _runs_below(folder: Path) -> Iterator[Path]:
    try:
        is_run = any((folder / name).is_file() for name in RECORD_FILES)
        paths = [] if is_run else sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
    except OSError:  # it cannot be read, such as lost+found, or it was just removed
        return
    if is_run:
        yield folder
    for path in paths:
        if not path.name.startswith("."):
            yield from _runs_below(path)


def summarize_run(run: Path) -> dict:
    """Kind, progress and result of a run. `state` is finished, running, stopped or unreadable."""
    return {"folder": str(run), **summarize_files(run), **({"state": "running"} if is_locked(run) else {})}


def summarize_files(run: Path) -> dict:
    """What the files of a run say of it: `summarize_run` without whether it is running."""
    try:
        return _summarize(run)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return {"what": "", "state": "unreadable", "result": str(error), "step": None, "num_steps": None}


def _summarize(run: Path) -> dict:
    info = describe(run)
    return {
        "kind": info["kind"],
        "what": info["title"],
        "state": "finished" if info["finished"] else "stopped",
        **{name: info.get(name) for name in ("result", "step", "num_steps")},
    }


def row(summary: dict, root: Path) -> tuple[str, ...]:
    """The results of `summarize_run` and `disk_usage` in the columns of `HEADINGS`."""
    folder = Path(summary["folder"])
    steps = "" if summary["step"] is None else f"{summary['step']:,} of {summary['num_steps']:,}"
    age = formatting.duration(max(0.0, time.time() - summary["modified"]))
    name = str(folder if folder == root else folder.relative_to(root))
    return (name, summary["what"], summary["state"], summary["result"], steps, formatting.size(summary["bytes"]), age)


def disk_usage(folder: Path, without: set[Path] = frozenset()) -> dict:
    """The `bytes` of the files in a folder, where hard links to the same file count once, and when one was last
    `modified`, besides reports and their plots, which may be written at any time. Files that are removed meanwhile, as
    by a run, are left out."""
    sizes, modified = {}, []
    for parent, _, names in os.walk(folder):
        for path in {Path(parent, name) for name in names} - without:
            with contextlib.suppress(OSError):
                info = path.lstat()
                if stat.S_ISREG(info.st_mode):
                    sizes[info.st_dev, info.st_ino] = info.st_size
                    if path.suffix not in REPORT_SUFFIXES:
                        modified.append(info.st_mtime)
    return {"bytes": sum(sizes.values()), "modified": max(modified, default=0.0)}
