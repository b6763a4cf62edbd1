"""Finds input files and reads their bytes, compressed or not."""

import codecs
import contextlib
import gzip
import hashlib
import json
import lzma
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from hornbook.data.problems import Problem, Problems
from hornbook.files import replacing

TEXT_SUFFIXES = (".txt", ".jsonl", ".csv", ".tsv", ".parquet")
COMPRESSIONS = (".gz", ".xz", ".zst")
KNOWN_EXTENSIONS = ".txt, .jsonl, .csv, .tsv (also followed by .gz, .xz or .zst) and .parquet"
BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """One input file: its path as the user gave it, and its size and modification time, to detect changes."""

    path: str
    bytes: int
    modified_ns: int

    @classmethod
    def from_path(cls, path: str) -> "Source":
        if not os.path.isfile(path) or path != path.encode("utf-8", "replace").decode():
            raise ValueError(f"{path!r} is not a regular file with a UTF-8 name: copy it to one")
        status = os.stat(path)
        return cls(path, status.st_size, status.st_mtime_ns)


def format_of(path: str, formats: Sequence[str] = TEXT_SUFFIXES) -> tuple[str, str] | None:
    """(format, compression or "") inferred from the extensions of a path, or None if the format is not in `formats`."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    compression = suffixes.pop() if suffixes and suffixes[-1] in COMPRESSIONS else ""
    if not suffixes or suffixes[-1] not in formats or (suffixes[-1] == ".parquet" and compression):
        return None
    return suffixes[-1], compression


def find_sources(paths: Sequence[str | Path] | str | Path, problems: Problems | None = None) -> Iterator[Source]:
    """Yields the given files, with folders replaced by the files of known formats in them (recursive, sorted by path).
    Files that are skipped are added to `problems`. There may be millions of files: they are never all in memory."""
    problems = Problems() if problems is None else problems
    paths = [os.path.normpath(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    if not paths:
        raise ValueError("no input files: give at least one text file or folder")
    for path in paths:
        if not os.path.exists(path):
            raise ValueError(f"{path} does not exist: check the spelling (patterns such as *.txt are for the shell)")
        if not os.path.isdir(path) and format_of(path) is None:
            raise ValueError(f"{path} has an unknown extension: rename it to one of {KNOWN_EXTENSIONS}")
    is_empty = True
    for path in paths:
        for file in _files_within(path, set()) if os.path.isdir(path) else [path]:
            if format_of(file) is None:
                problems.add(Problem("unknown_extension", file.encode("utf-8", "replace").decode()))
            elif not os.path.exists(file):
                problems.add(Problem("unreadable", file, detail="a link to a missing file"))
            else:
                is_empty = False
                yield Source.from_path(file)
    if is_empty:
        raise ValueError(f"no text files in {', '.join(paths)}: the known extensions are {KNOWN_EXTENSIONS}")


def _files_within(folder: str, visited: set[str]) -> Iterator[str]:
    """Yields the files in a folder and its folders, sorted by path, without hidden ones such as .git. No folder is
    visited twice."""
    real = os.path.realpath(folder)
    if real in visited:
        return
    visited.add(real)
    with contextlib.suppress(OSError):  # a folder that cannot be read
        for name in sorted(entry.name + os.sep * _is_folder(entry) for entry in os.scandir(folder)):
            if name.startswith("."):
                continue
            path = os.path.join(folder, name.removesuffix(os.sep))
            if name.endswith(os.sep):
                yield from _files_within(path, visited)
            else:
                yield path


def _is_folder(entry: os.DirEntry) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def summary_of(sources: Iterable[Source], file: BinaryIO | None = None) -> dict[str, int | str]:
    """Number and total bytes of the files, and a hash of their paths, sizes and modification times. With `file`, the
    list is also written to it."""
    num_files, num_bytes, digest = 0, 0, hashlib.sha256()
    for source in sources:
        line = json.dumps(asdict(source)).encode() + b"\n"
        num_files += 1
        num_bytes += source.bytes
        digest.update(line)
        if file is not None:
            file.write(line)
    return {"files": num_files, "bytes": num_bytes, "sha256": digest.hexdigest()}


def write_sources(path: Path, sources: Iterable[Source]) -> dict[str, int | str]:
    with replacing(path) as temporary, open(temporary, "wb") as file:
        return summary_of(sources, file)


def read_sources(path: Path) -> Iterator[Source]:
    with open(path, "rb") as file:
        for line in file:
            yield Source(**json.loads(line))


class ByteReader:
    """Reads a file in decompressed blocks.

    An error ends the blocks and is stored in `failure`, so that the data before it is not lost. `bytes_read` counts the
    bytes of the file as stored.
    """

    def __init__(self, path: str):
        self.path = path
        self.bytes_read = 0
        self.failure: Problem | None = None

    def blocks(self) -> Iterator[bytes]:
        try:
            with open(self.path, "rb") as raw, _decompressed(raw, Path(self.path).suffix.lower()) as stream:
                if start := self._start(stream):
                    self.bytes_read = raw.tell()
                    yield start
                # One read of the compressed stream at a time, so that all data of a truncated file is returned.
                while block := stream.read1(BLOCK_BYTES):
                    self.bytes_read = raw.tell()
                    yield block
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            self.failure = Problem("unreadable", self.path, detail=str(error) or type(error).__name__)

    def lines(self, max_length: int) -> Iterator[tuple[int, bytes | None]]:
        """Yields (line number, line without its line feed), with None for a line of more than `max_length` bytes."""
        line_number, pending, skipping = 1, b"", False
        blocks = self.blocks()
        first = next(blocks, b"")
        if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            self.failure = Problem("unreadable", self.path, detail="the text is UTF-16: convert it to UTF-8")
            return
        for block in chain([first], blocks):
            *lines, pending = (pending + block).split(b"\n")
            for line in lines:
                yield line_number, None if skipping else line
                line_number, skipping = line_number + 1, False
            if len(pending) > max_length:
                pending, skipping = b"", True
        if pending or skipping:
            yield line_number, None if skipping else pending

    def _start(self, stream: BinaryIO) -> bytes:
        """The first bytes, without a byte order mark."""
        start = b""
        while len(start) < 3 and (more := stream.read1(BLOCK_BYTES)):
            start += more
        return start.removeprefix(codecs.BOM_UTF8)


class _ArrowStream:
    """pyarrow's decompressor with small reads, because a failing read loses all of its data."""

    def __init__(self, raw: BinaryIO):
        import pyarrow

        self._errors = pyarrow.ArrowException
        self._stream = pyarrow.CompressedInputStream(raw, "zstd")

    def read1(self, size: int) -> bytes:
        try:
            return self._stream.read(min(size, 1 << 16))
        except self._errors as error:
            raise OSError(str(error)) from None


def _decompressed(raw: BinaryIO, suffix: str) -> contextlib.AbstractContextManager:
    if suffix == ".gz":
        return gzip.GzipFile(fileobj=raw)
    if suffix == ".xz":
        return lzma.LZMAFile(raw)
    if suffix == ".zst":
        return contextlib.nullcontext(_ArrowStream(raw))
    return contextlib.nullcontext(raw)
