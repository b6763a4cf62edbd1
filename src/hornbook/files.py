"""Writing files so that a kill at any moment leaves the old one or the new one, never half of one, and folders that one
process writes at a time."""

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType

SECONDS_TO_LEAVE = 3.0  # that a process which was told to stop may take to do so


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`; when the block ends well, what was written there takes its name."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        temporary.chmod(0o666 & ~_umask())  # some writers make files that only their owner can read
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """Yields a temporary folder beside `folder`; when the block ends well, it takes its name. Where there is such a
    folder already, it is made in there and its files go up into it at the end. What a kill left of it is removed."""
    folder = Path(folder).resolve()
    is_there = folder.is_dir()
    temporary = (folder if is_there else folder.parent) / f".{folder.name}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        if is_there:
            # The largest, such as a model's weights, last: a folder that has it is whole.
            for path in sorted(temporary.iterdir(), key=lambda path: path.stat().st_size):
                os.replace(path, folder / path.name)
        else:
            os.replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


_held: set[int] = set()  # folders that this process is alone in, opened
_within: ContextVar[frozenset[Path]] = ContextVar("_within", default=frozenset())  # those of this thread


def _leave_to_parent() -> None:
    """In a process that was forked off: it may outlive its parent, and must not hold what that one held."""
    while _held:
        os.close(_held.pop())
    _within.set(frozenset())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Refuses where another process is within this for the same folder: two that go on with one run would spoil it. Who
    is within may enter again. A process that ends, however it ends, is no longer within. Where a file system has no
    locks, nothing is refused."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    folder = Path(folder)
    if folder.resolve() in _within.get():
        yield
        return
    new = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    opened = os.open(folder, os.O_RDONLY)
    _held.add(opened)
    before = _within.get()
    try:
        _lock(opened, folder, fcntl)
        _within.set(before | {folder.resolve()})
        yield
    finally:
        _within.set(before)
        if opened in _held:
            _held.discard(opened)
            os.close(opened)
        with contextlib.suppress(OSError):  # it holds something
            for each in new:
                each.rmdir()


def _lock(opened: int, folder: Path, fcntl: ModuleType) -> None:
    until = time.monotonic() + SECONDS_TO_LEAVE
    while True:
        try:
            return fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                ways = "wait until it ends, or stop it, or choose another --out"
                raise ValueError(f"another process is writing to {folder}: {ways}") from None
            time.sleep(0.1)
        except OSError:
            return None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def num_cores() -> int:
    """The cores that this process may use, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def write_text(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: object) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> dict:
    """The JSON object in a file; a `ValueError` that names the file when it is not one."""
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # ValueError: also not UTF-8, and numbers of thousands of digits
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise ValueError(f"{path} is not valid JSON ({reason}): restore the file or make it again") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path} must hold a JSON object, found {type(value).__name__}")
    return value


@contextlib.contextmanager
def refusing_damage(path: Path, repair: str = "restore the file") -> Iterator[None]:
    """Around code that takes values out of a record: one that lacks them, or has others in their place, is a
    `ValueError` that names the file and what to do."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        reason = (
            f"it lacks {error}" if isinstance(error, KeyError) else str(error).splitlines()[0] if str(error) else ""
        )
        raise ValueError(f"{path} is damaged ({reason or type(error).__name__}): {repair}") from None


def read_json_lines(path: Path) -> list[dict]:
    """The objects of a file with one a line; a last line cut short by a kill is passed over."""
    found = []
    for line in Path(path).read_text(encoding="utf-8", errors="replace").splitlines() if Path(path).exists() else []:
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(line)
            if isinstance(value, dict):
                found.append(value)
    return found


def write_tensors(path: Path, tensors: dict, metadata: dict[str, str] | None = None) -> None:
    """Writes a safetensors file; a full disk is an `OSError` that names it."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    with replacing(path) as temporary:
        try:
            save_file(tensors, temporary, metadata=metadata)
        except SafetensorError as error:
            raise OSError(f"{path} could not be written ({error}): make room on the disk and go on") from None


def sweep(folder: Path) -> None:
    """Removes what a kill left half-written in a folder."""
    for path in Path(folder).glob(".*.tmp"):
        if path.is_file():
            path.unlink()


def sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def link(source: Path, target: Path) -> None:
    """The same bytes under another name, without a copy where the file system can."""
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:  # no hard links there
        shutil.copy(source, target)
