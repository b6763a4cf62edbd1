"""Faults at file operations, from within the process that makes them.

A file operation is an opening for writing, a write, a close, a sync, a rename, a removal, a new folder or a link
under one folder. Each is a point before it happens; a write is one more after it, with what was written on the disk.
(After any other operation is the same as before the next one, and the end of the command is the last point.)
"""

import builtins
import errno
import io
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

FILLING = ("open", "write", "written", "close", "fsync", "mkdir", "link", "tensors")
NAMING = ("open", "mkdir", "link")  # whose errors name the path; those of open files do not
IGNORED = "tensorboard"  # its own thread writes there, at other moments in each run


class Operations:
    """Counts the points under `root`, and at number `at` does what `kind` says: `crash`, or `full`, which lets every
    operation from there on that takes room on the disk fail."""

    def __init__(self, root: str, kind: str = "count", at: int = -1):
        self.root, self.kind, self.at = os.path.realpath(root), kind, at
        self.seen: list[str] = []

    def point(self, what: str, path: Any, before_crash: Callable[[], None] | None = None) -> None:
        path = self._path_of(path)
        if not path or not (path + "/").startswith(self.root + "/") or IGNORED in path:
            return
        number = len(self.seen)
        self.seen.append(f"{what} {os.path.relpath(path, self.root)}")
        if self.kind == "crash" and number == self.at:
            if before_crash:
                before_crash()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.kind == "full" and number >= self.at and what in FILLING and what != "written":
            names = (path,) if what in NAMING else ()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *names)

    def _path_of(self, path: Any) -> str:
        if isinstance(path, int):
            try:
                path = os.readlink(f"/proc/self/fd/{path}")
            except OSError:
                return ""
        path = os.fsdecode(path)
        return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


class Watched:
    """A file opened for writing whose writes and close are points."""

    def __init__(self, file: Any, operations: Operations, path: Any):
        self.__dict__.update(_file=file, _operations=operations, _path=path)

    def write(self, data: Any) -> int:
        self._operations.point("write", self._path)
        number = self._file.write(data)
        self._operations.point("written", self._path, self._file.flush)
        return number

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def close(self) -> None:
        if not self._file.closed:
            try:
                self._operations.point("close", self._path)
            finally:
                self._file.close()

    def __enter__(self) -> "Watched":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self):
        return iter(self._file)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._file, name, value)


def install(operations: Operations) -> None:
    """Puts the points into this process."""
    plain_open = builtins.open

    def opened(file, mode="r", *more, **options):
        if not set(mode) & set("wax+"):
            return plain_open(file, mode, *more, **options)
        operations.point("open", file)
        return Watched(plain_open(file, mode, *more, **options), operations, file)

    builtins.open = io.open = opened

    def on_progress(module: Any, name: str, what: str, which: int = 0) -> None:
        plain = getattr(module, name)

        def watched(*given, **options):
            operations.point(what, _within(given[which], options.get("dir_fd")))
            return plain(*given, **options)

        setattr(module, name, watched)

    for name, what in (
        *(("replace", "rename"), ("rename", "rename"), ("unlink", "remove"), ("remove", "remove")),
        *(("rmdir", "remove"), ("mkdir", "mkdir"), ("fsync", "fsync"), ("truncate", "truncate")),
    ):
        on_progress(os, name, what)
    on_progress(os, "link", "link", which=1)
    import safetensors.torch

    on_progress(safetensors.torch, "save_file", "tensors", which=1)  # written by a library that is not Python


def _within(path: Any, folder: int | None) -> Any:
    return path if folder is None else Path(os.readlink(f"/proc/self/fd/{folder}")) / os.fsdecode(path)
