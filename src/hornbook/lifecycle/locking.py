"""Folder locks: one process at a time writes a folder. `filelock` locks the folder itself, not a lock file in it: the
operating system releases the lock when the process ends for any reason, and no file is left behind."""

import contextlib
import functools
import inspect
import os
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import ParamSpec, TypeVar

from filelock import lock_descriptor

from hornbook.lifecycle.temp_files import remove_stale_files

CAN_LOCK = os.name == "posix"  # Windows cannot open a folder: nothing is locked
WAIT_SECONDS = 3.0  # time for a process that is already stopping to release the lock

P = ParamSpec("P")
R = TypeVar("R")

_held: dict[Path, int] = {}  # folders locked by this process -> file descriptor
_discards_writes = False  # whether another process writes the folders of this one
_entered: ContextVar[frozenset[Path]] = ContextVar("_entered", default=frozenset())  # folders locked by this thread


def discard_writes() -> None:
    """Called in a process that computes together with another one, which writes for both: from here on this process
    locks nothing, and the files that it writes (`hornbook.files`) are discarded."""
    global _discards_writes
    _discards_writes = True


def discards_writes() -> bool:
    return _discards_writes


class FolderLost(RuntimeError):
    """The folder that this process writes was removed, moved or replaced."""


def _release_in_child() -> None:
    """Drops the inherited locks in a forked process, which may outlive its parent."""
    while _held:
        os.close(_held.popitem()[1])
    _entered.set(frozenset())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_child)


def run_lock(folder: str | Path) -> contextlib.AbstractContextManager[None]:
    """Context that locks a folder, creating it if needed, and removes the temporary files of killed processes in it.

    Raises a ValueError if another process or thread holds the lock. The lock is reentrant. A folder that was created
    here and is still empty at the end is removed. On a file system without locks nothing is locked.
    """
    return _locked(Path(folder), Path(folder))


def file_lock(path: str | Path) -> contextlib.AbstractContextManager[None]:
    """Like `run_lock`, for a single file: locks a hidden folder next to it, so its neighbours stay writable."""
    path = Path(path)
    return _locked(path.with_name(f".{path.name}.lock"), path)


def lock_output_folder(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator that holds the lock of the folder in the argument `out`, if it is not None, during the function."""
    return locking(run_lock, function)


def locking(lock: Callable, function: Callable[P, R], *options: str) -> Callable[P, R]:
    """The function inside the context `lock(out)`, where `out` is an argument of it. Its arguments that are named in
    `options` are passed to `lock` too, if they are given."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def locked(*args: P.args, **kwargs: P.kwargs) -> R:
        arguments = signature.bind(*args, **kwargs).arguments
        if arguments.get("out") is None:
            return function(*args, **kwargs)
        with lock(arguments["out"], **{name: arguments[name] for name in options if name in arguments}):
            return function(*args, **kwargs)

    return locked


@contextlib.contextmanager
def _locked(folder: Path, target: Path) -> Iterator[None]:
    key = folder.resolve()  # the folder that a link names, which is created if it does not exist
    if key.exists() and not key.is_dir():
        raise ValueError(f"{folder} is a file, not a folder: choose another folder")
    if not CAN_LOCK or _discards_writes or key in _entered.get():
        yield
        return
    descriptor, created = _acquire(key, target)
    _held[key] = descriptor
    before = _entered.get()
    _entered.set(before | {key})
    try:
        was_left_behind = folder != target or remove_stale_files(folder)  # by a process that was killed
        if was_left_behind and not created:
            created = [key]  # removed too, if it stays empty
        yield
    finally:
        _entered.set(before)
        if _held.get(key) == descriptor:  # False in a forked process
            with contextlib.suppress(OSError):  # a folder is not empty
                # Removed while still locked, so a waiting process sees that the folder is gone and recreates it.
                for created_folder in created if _is_at(descriptor, key) else ():
                    created_folder.rmdir()
            del _held[key]
            os.close(descriptor)


def _acquire(folder: Path, target: Path) -> tuple[int, list[Path]]:
    """(file descriptor that holds the lock, folders created for it, innermost first). Errors name `target`."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        created = [path for path in (folder, *folder.parents) if not path.exists()]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:  # removed by the process that held the lock
            if time.monotonic() > deadline:
                raise
            continue
        try:
            is_free = lock_descriptor(descriptor, blocking=False)
        except OSError:  # a file system without locks
            return descriptor, created
        if is_free and _is_at(descriptor, folder):
            return descriptor, created
        os.close(descriptor)
        if is_free:  # the folder was replaced in the meantime
            continue
        if time.monotonic() > deadline:
            raise ValueError(
                f"another process is writing to {target}: wait until it ends, stop it, or choose another folder"
            )
        time.sleep(0.1)


def _is_at(descriptor: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(folder))
    except OSError:
        return False


def is_locked(folder: Path) -> bool:
    if not CAN_LOCK:
        return False
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        return not lock_descriptor(descriptor, blocking=False)
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(descriptor)


def holds_a_lock() -> bool:
    return bool(_held)


def check_folder(path: Path) -> None:
    """Raises `FolderLost` if `path` is in a folder that this process locked and that was since removed or replaced."""
    if not _held:
        return
    path = Path(path).absolute()
    for folder, descriptor in list(_held.items()):
        if (path.is_relative_to(folder) or path.resolve().is_relative_to(folder)) and not _is_at(descriptor, folder):
            raise FolderLost(
                f"{folder} was removed, moved or replaced while it was being written, so the command stopped; if "
                "it was moved, resume it at its new path"
            )
