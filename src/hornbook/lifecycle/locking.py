"""One process at a time writes a folder. The lock is an advisory lock (flock) on the folder itself, so a process that
ends, however it ends, holds nothing and leaves no lock file behind."""

import contextlib
import functools
import inspect
import os
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import ParamSpec, TypeVar

from hornbook.lifecycle.leftovers import sweep

try:
    import fcntl
except ImportError:  # Windows: nothing is refused there
    fcntl = None

WAIT_SECONDS = 3.0  # that a process which was asked to stop may take to end

P = ParamSpec("P")
R = TypeVar("R")

_held: dict[Path, int] = {}  # locked folders of this process, each with its file descriptor
_entered: ContextVar[frozenset[Path]] = ContextVar("_entered", default=frozenset())  # those of this thread


class FolderLost(RuntimeError):
    """The folder that this process writes was removed, moved or replaced."""


def _release_in_child() -> None:
    """A forked process may outlive its parent, and must not hold the parent's locks."""
    while _held:
        os.close(_held.popitem()[1])
    _entered.set(frozenset())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_child)


@contextlib.contextmanager
def run_lock(folder: str | Path) -> Iterator[None]:
    """Locks a folder, which is created if needed, and removes what a killed process left half-written in it.

    Raises a ValueError where another process, or another thread, holds the lock. The holder may enter again. A folder
    that was created here and is still empty at the end is removed. On a file system without locks nothing is refused.
    """
    with _locked(Path(folder), Path(folder)):
        yield


@contextlib.contextmanager
def file_lock(path: str | Path) -> Iterator[None]:
    """The same for a single file: locks a hidden folder beside it, so that other files there can be written."""
    path = Path(path)
    with _locked(path.with_name(f".{path.name}.lock"), path):
        yield


def locks_out(function: Callable[P, R]) -> Callable[P, R]:
    """Decorates a function that writes the folder `out`, one of its arguments: the lock is held from its first line to
    its last. Where `out` is None, nothing is locked."""
    return _locking(run_lock, function)


def locks_file(function: Callable[P, R]) -> Callable[P, R]:
    """The same for a function whose `out` is a single file."""
    return _locking(file_lock, function)


def _locking(lock: Callable, function: Callable[P, R]) -> Callable[P, R]:
    signature = inspect.signature(function)

    @functools.wraps(function)
    def locked(*args: P.args, **kwargs: P.kwargs) -> R:
        out = signature.bind(*args, **kwargs).arguments.get("out")
        with contextlib.nullcontext() if out is None else lock(out):
            return function(*args, **kwargs)

    return locked


@contextlib.contextmanager
def _locked(folder: Path, shown: Path) -> Iterator[None]:
    key = folder.resolve()
    if key.exists() and not key.is_dir():
        raise ValueError(f"{folder} is a file and no folder: choose another --out")
    if fcntl is None or key in _entered.get():
        yield
        return
    opened, created = _acquire(folder, shown)
    _held[key] = opened
    before = _entered.get()
    _entered.set(before | {key})
    try:
        if sweep(folder) and not created:
            created = [folder]  # by the process that was killed: removed too where it stays empty
        yield
    finally:
        _entered.set(before)
        if _held.get(key) == opened:  # not in a forked process
            with contextlib.suppress(OSError):  # one of them is not empty
                # While the lock is held: whoever waits for it then sees that the folder is gone, and makes it again.
                for each in created if _is_at(opened, folder) else ():
                    each.rmdir()
            del _held[key]
            os.close(opened)


def _acquire(folder: Path, shown: Path) -> tuple[int, list[Path]]:
    """(file descriptor with the lock, folders that were created for it, the innermost first)."""
    until = time.monotonic() + WAIT_SECONDS
    while True:
        created = [each for each in (folder, *folder.parents) if not each.exists()]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            opened = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:  # removed by the process that held it
            if time.monotonic() > until:
                raise
            continue
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(opened)
            if time.monotonic() > until:
                raise ValueError(
                    f"another process is writing to {shown}: wait until it ends, stop it, or choose another --out"
                ) from None
            time.sleep(0.1)
            continue
        except OSError:  # a file system without locks
            return opened, created
        if _is_at(opened, folder):
            return opened, created
        os.close(opened)


def _is_at(opened: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(opened), os.stat(folder))
    except OSError:
        return False


def is_locked(folder: Path) -> bool:
    """Whether a process holds the lock of this folder."""
    if fcntl is None:
        return False
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(opened)
    return False


def holds_a_lock() -> bool:
    return bool(_held)


def check_folder(path: Path) -> None:
    """Raises `FolderLost` where `path` is in a folder that this process locked and that is no longer there."""
    if not _held:
        return
    path = Path(path).absolute()
    for folder, opened in list(_held.items()):
        if (path.is_relative_to(folder) or path.resolve().is_relative_to(folder)) and not _is_at(opened, folder):
            raise FolderLost(
                f"{folder} was removed, moved or replaced while it was being written: stopped, and nothing more is "
                "written there; if it was moved, resume it in its new place"
            )
