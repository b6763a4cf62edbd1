"""Atomic file writes (a kill at any moment leaves the old or the new file, never a partial one) and JSON helpers."""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import tempfile
import tomllib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from hornbook.config import did_you_mean
from hornbook.lifecycle.locking import check_folder, discards_writes
from hornbook.lifecycle.temp_files import remove_stale_files_of, temporary_for

INT8_SCALE = ".scale"  # ends the name of the scales of a stored int8 matrix, one per row
UMASK = os.umask(0)  # read once, as reading it changes it for a moment, which other threads would see
os.umask(UMASK)


@contextlib.contextmanager
def naming_full_disk(path: Path) -> Iterator[None]:
    """Context in which the error of a full disk names the file, which that of a write to an open file does not."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            error.filename = error.filename or str(path)
        raise


@contextlib.contextmanager
def replacing(path: Path, on_every_rank: bool = False) -> Iterator[Path]:
    """Yields a temporary path in the same folder and renames it to `path` when the block ends without an error.
    Temporary files of `path` that killed processes left are removed. Ranks other than the main one write nothing,
    except where each machine has a file of its own (`on_every_rank`)."""
    path = Path(path)
    if discards_writes() and not on_every_rank:
        with tempfile.TemporaryDirectory() as discarded:
            yield Path(discarded) / path.name
        return
    check_folder(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_stale_files_of(path)
    temporary = temporary_for(path)
    try:
        with naming_full_disk(path):
            yield temporary
            check_folder(path)
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
        temporary.chmod(0o666 & ~UMASK)  # some writers create files that only their owner can read
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def temporary_file(path: Path) -> Iterator[Path]:
    """Yields a temporary path next to `path` and removes the file at the end; leftovers of a killed process are removed
    later (`lifecycle/temp_files.py`)."""
    file = temporary_for(path)
    try:
        yield file
    finally:
        with contextlib.suppress(OSError):  # where a file that is memory-mapped cannot be removed
            file.unlink(missing_ok=True)


@contextlib.contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """Yields a temporary folder and renames it to `folder` when the block ends without an error. If `folder` exists
    already, the temporary folder is created inside it and its files are moved up at the end. Temporary folders that
    killed processes left are removed."""
    folder = Path(folder).resolve()
    if discards_writes():
        with tempfile.TemporaryDirectory() as discarded:
            yield Path(discarded)
        return
    check_folder(folder)
    exists = folder.is_dir()
    temporary = temporary_for(folder / folder.name if exists else folder)
    remove_stale_files_of(folder)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        check_folder(folder)
        if exists:
            # The largest file, such as the model weights, goes last: a folder that has it is complete.
            for path in sorted(temporary.iterdir(), key=lambda path: path.stat().st_size):
                os.replace(path, folder / path.name)
        else:
            os.replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def refuse_beyond_disk(folder: Path, num_bytes: int, subject: str, advice: str) -> None:
    """Raises a ValueError if `num_bytes` do not fit on the disk of the folder. `subject` must end with "need" or
    "needs"."""
    if num_bytes > (free := shutil.disk_usage(folder).free):
        raise ValueError(f"{subject} {num_bytes / 1e9:,.1f} GB, but {folder} has {free / 1e9:,.1f} GB free: {advice}")


def num_cores() -> int:
    """The number of cores that this process may use, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def is_file(text: str) -> bool:
    """Whether a text is the path of a file; also for texts that cannot be paths."""
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long, or with a null character
        return False


def absolute(path: str | Path) -> str:
    """The path as records hold it, which does not depend on the working directory."""
    return str(Path(path).expanduser().resolve())


def write_text(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: object) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_json_lines(path: Path, rows: Iterable[Any]) -> None:
    """Writes one row per line. `rows` may be an iterator: they are never all in memory."""
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def read_json(path: Path, kind: type = dict) -> Any:
    """The JSON object (or list, if `kind` is list) in a file; a `ValueError` that names the file if it holds none."""
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # ValueError also: not UTF-8, numbers with thousands of digits
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise ValueError(f"{path} is not valid JSON ({reason}): restore the file or write it again") from None
    if not isinstance(value, kind):
        name = "object" if kind is dict else "list"
        raise ValueError(f"{path} must hold a JSON {name}, found {type(value).__name__}")
    return value


def read_json_if_exists(path: Path) -> dict:
    return read_json(path) if Path(path).is_file() else {}


def read_toml(path: Path) -> dict:
    """The values in a TOML file; raises a `ValueError` that names the file if it is not valid."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from None


def shipped_names(folder: Path) -> list[str]:
    """The names of the TOML files that the package ships in a folder."""
    return sorted(file.stem for file in folder.glob("*.toml"))


def shipped_or_file(name: str | Path, folder: Path, what: str) -> Path:
    """The TOML file of a `what`, such as a task: a shipped one in `folder`, given its name, or a file, given its
    path."""
    path, names = Path(name), shipped_names(folder)
    if str(name) in names:
        return folder / f"{name}.toml"
    if path.suffix == ".toml" and not path.is_file():
        raise ValueError(f"there is no file {path}: check it, or use a shipped {what}: {', '.join(names)}")
    if not path.is_file():
        hint = did_you_mean(str(name), names, f"there are {', '.join(names)}", most=2)
        raise ValueError(f"there is no {what} '{name}': give a .toml file, or a shipped one; {hint}")
    return path


@contextlib.contextmanager
def refusing_damage(path: Path, repair: str = "restore the file") -> Iterator[None]:
    """Context for code that reads values out of the record in `path`: a missing or wrong value raises a
    `ValueError` that names the file and the fix (`repair`)."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        if isinstance(error, ValueError) and str(path) in str(error):
            raise
        first_line = next(iter(str(error).splitlines()), type(error).__name__)
        reason = f"it lacks {error}" if isinstance(error, KeyError) else first_line
        raise ValueError(f"{path} is damaged ({reason}): {repair}") from None


def read_json_lines(path: Path) -> list[dict]:
    """The JSON objects of a file with one per line; invalid lines, such as a truncated last one, are skipped.

    Lines end at line feeds only: `str.splitlines` would also split at U+2028, U+2029 and U+0085, which JSON allows
    within a string."""
    objects = []
    text = Path(path).read_text(encoding="utf-8", errors="replace") if Path(path).exists() else ""
    for line in text.split("\n"):
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(line)
            if isinstance(value, dict):
                objects.append(value)
    return objects


def write_tensors(path: Path, tensors: dict, metadata: dict[str, str] | None = None) -> None:
    """Writes a safetensors file; raises an `OSError` that names the file if the disk is full."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    with replacing(path) as temporary:
        try:
            save_file(tensors, temporary, metadata=metadata)
        except SafetensorError as error:
            raise OSError(f"{path} could not be written ({error}): free space on the disk and resume") from None


def sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_of(content: object) -> str:
    """The sha256 of a value that JSON can hold."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def hard_link_files(source: Path, target: Path, pattern: str = "*", excluded: Collection[str] = ()) -> None:
    """Links the files in the folder `source` into the folder `target` without copying, each one atomically. The pattern
    `**/*` includes subfolders; `excluded` are file names."""
    for file in source.glob(pattern):
        if file.is_file() and file.name not in excluded:
            with replacing(target / file.relative_to(source)) as temporary:
                link(file, temporary)


def link(source: Path, target: Path) -> None:
    """Hard-links `source` to `target`, or copies it where the file system has no hard links."""
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:  # no hard links
        shutil.copy(source, target)
