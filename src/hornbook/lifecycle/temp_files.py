"""Names of temporary files and folders, and removal of those that a killed process left behind."""

import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

TEMPORARY = re.compile(r"\..+\.(\d+)\.tmp")  # the digits are the id of the process that writes it
SEARCHED_LEVELS = 4  # depth of the search: enough for RUN/trials/NAME/checkpoints, without walking a large foreign tree


def temporary_for(path: Path) -> Path:
    """The temporary path, in the same folder, that this process writes before renaming it to `path`."""
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def remove_stale_files(folder: Path) -> bool:
    """Removes the abandoned temporary files in a folder and its subfolders, and returns whether there were any. Only
    the process that holds the folder's lock may call this."""
    any_removed = False
    for parent, folders, files in os.walk(folder):
        any_removed |= _remove_abandoned(Path(parent), (*folders, *files))
        is_deepest = len(Path(parent).relative_to(folder).parts) + 1 >= SEARCHED_LEVELS
        folders[:] = [] if is_deepest else [name for name in folders if not TEMPORARY.fullmatch(name)]
    return any_removed


def remove_stale_files_of(path: Path) -> None:
    """Removes the temporary files that killed processes left of this one file or folder."""
    if path.parent.is_dir():
        prefix = f".{path.name}."
        _remove_abandoned(path.parent, (name for name in os.listdir(path.parent) if name.startswith(prefix)))


def _remove_abandoned(parent: Path, names: Iterable[str]) -> bool:
    any_removed = False
    for name in names:
        match = TEMPORARY.fullmatch(name)
        if match and not _is_another_process(int(match[1])):
            any_removed = True
            if (parent / name).is_dir():
                shutil.rmtree(parent / name, ignore_errors=True)
            else:
                (parent / name).unlink(missing_ok=True)
    return any_removed


def _is_another_process(process_id: int) -> bool:
    """Whether a running process other than this one has this id. Containers reuse process ids quickly, so a file with
    our own id may be left over from an earlier process."""
    if process_id == os.getpid():
        return False
    if os.name == "nt":  # `os.kill` would terminate the process there
        return True
    try:
        os.kill(process_id, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True
