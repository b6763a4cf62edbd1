"""Names of temporary files and folders, and the removal of those that a killed process left behind."""

import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

TEMPORARY = re.compile(r"\..+\.(\d+)\.tmp")  # of the process with this id
SWEPT_LEVELS = 4  # of folders, such as RUN/tries/NAME/checkpoints: a large tree of other files is not searched


def temporary_for(path: Path) -> Path:
    """The name beside `path` under which this process writes it, before it takes its place."""
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def sweep(folder: Path) -> bool:
    """Removes everything half-written in a folder and below it. Only for the process that holds the folder's lock.
    Returns whether there was anything."""
    found = False
    for parent, folders, files in os.walk(folder):
        found |= _remove_abandoned(Path(parent), (*folders, *files))
        is_last = len(Path(parent).relative_to(folder).parts) + 1 >= SWEPT_LEVELS
        folders[:] = [] if is_last else [name for name in folders if not TEMPORARY.fullmatch(name)]
    return found


def sweep_beside(path: Path) -> None:
    """Removes what killed processes left of this one file or folder."""
    if path.parent.is_dir():
        start = f".{path.name}."
        _remove_abandoned(path.parent, (name for name in os.listdir(path.parent) if name.startswith(start)))


def _remove_abandoned(parent: Path, names: Iterable[str]) -> bool:
    any_found = False
    for name in names:
        found = TEMPORARY.fullmatch(name)
        if found and not _is_another_process(int(found[1])):
            any_found = True
            if (parent / name).is_dir():
                shutil.rmtree(parent / name, ignore_errors=True)
            else:
                (parent / name).unlink(missing_ok=True)
    return any_found


def _is_another_process(number: int) -> bool:
    """Whether a process other than this one has this id. In a container an id soon comes again, also our own."""
    if number == os.getpid():
        return False
    if os.name == "nt":  # there `os.kill` would end it
        return True
    try:
        os.kill(number, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True
