"""Writing files so that a kill at any moment leaves the old one or the new one, never half of one."""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from hornbook.lifecycle.leftovers import sweep_beside, temporary_for
from hornbook.lifecycle.locking import check_folder


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`; when the block ends well, what was written there takes its name. What a
    killed process left of it is removed."""
    path = Path(path)
    check_folder(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep_beside(path)
    temporary = temporary_for(path)
    try:
        yield temporary
        check_folder(path)
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        temporary.chmod(0o666 & ~_umask())  # some writers make files that only their owner can read
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """Yields a temporary folder beside `folder`; when the block ends well, it takes its name. Where there is such a
    folder already, it is made in there and its files are moved up at the end. What a killed process left of it is
    removed."""
    folder = Path(folder).resolve()
    check_folder(folder)
    is_there = folder.is_dir()
    temporary = temporary_for(folder / folder.name if is_there else folder)
    sweep_beside(folder)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        check_folder(folder)
        if is_there:
            # The largest, such as a model's weights, last: a folder that has it is whole.
            for path in sorted(temporary.iterdir(), key=lambda path: path.stat().st_size):
                os.replace(path, folder / path.name)
        else:
            os.replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


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
    """The objects of a file with one per line; a last line cut short by a kill is skipped.

    Lines end at line feeds only: `str.splitlines` would also cut at U+2028, U+2029 and U+0085, which JSON allows within
    a string."""
    found = []
    text = Path(path).read_text(encoding="utf-8", errors="replace") if Path(path).exists() else ""
    for line in text.split("\n"):
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
