"""Finds input files and reads their bytes, compressed or not."""

import codecs
import contextlib
import gzip
import lzma
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from hornbook.data.problems import Problem

FORMATS = (".txt", ".jsonl", ".csv", ".tsv", ".parquet")
COMPRESSIONS = (".gz", ".xz", ".zst")
KNOWN = ".txt, .jsonl, .csv, .tsv (also followed by .gz, .xz or .zst) and .parquet"
BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """One input file: its path as the user gave it, and its size and modification time, to detect changes."""

    path: str
    bytes: int
    modified_ns: int

    @classmethod
    def of(cls, path: str) -> "Source":
        if not os.path.isfile(path) or path != path.encode("utf-8", "replace").decode():
            raise ValueError(f"{path!r} is not a regular file with a UTF-8 name: copy it to one")
        status = os.stat(path)
        return cls(path, status.st_size, status.st_mtime_ns)


def format_of(path: str, formats: Sequence[str] = FORMATS) -> tuple[str, str] | None:
    """(format, compression or "") inferred from the extensions of a path, or None if the format is not in `formats`."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    compression = suffixes.pop() if suffixes and suffixes[-1] in COMPRESSIONS else ""
    if not suffixes or suffixes[-1] not in formats or (suffixes[-1] == ".parquet" and compression):
        return None
    return suffixes[-1], compression


def compression_of(path: str) -> str:
    """The extension of a compressed file, such as .gz, or an empty text."""
    suffix = Path(path).suffix.lower()
    return suffix if suffix in COMPRESSIONS else ""


def find_sources(paths: Sequence[str | Path] | str | Path) -> tuple[list[Source], list[Problem]]:
    """The given files, with folders replaced by the files of known formats in them (recursive, sorted), and a problem
    for each file that was skipped."""
    paths = [paths] if isinstance(paths, str | Path) else list(paths)
    if not paths:
        raise ValueError("no input files: give at least one text file or folder")
    sources, problems = [], []
    for path in (os.path.normpath(path) for path in paths):
        if os.path.isdir(path):
            for file in _files_within(path):
                if format_of(file) is None:
                    file = file.encode("utf-8", "replace").decode()
                    problems.append(Problem("unknown_extension", file))
                elif not os.path.exists(file):
                    problems.append(Problem("unreadable", file, detail="a link to a missing file"))
                else:
                    sources.append(Source.of(file))
        elif not os.path.exists(path):
            raise ValueError(f"{path} does not exist: check the spelling (patterns such as *.txt are for the shell)")
        elif format_of(path) is None:
            raise ValueError(f"{path} has an unknown extension: rename it to one of {KNOWN}")
        else:
            sources.append(Source.of(path))
    if not sources:
        raise ValueError(f"no text files in {', '.join(map(str, paths))}: the known extensions are {KNOWN}")
    return sources, problems


def _files_within(folder: str) -> list[str]:
    visited, found = set(), []
    for here, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(here)
        if real in visited:
            folders.clear()
            continue
        visited.add(real)
        folders.sort()
        found += [os.path.join(here, file) for file in files]
    return sorted(found)


class ByteReader:
    """Reads a file in decompressed blocks.

    An error ends the blocks and is stored in `failure`, so that the data before it is not lost. `bytes_read` counts the
    bytes of the file as stored.
    """

    def __init__(self, path: str):
        self.path = path
        self.bytes_read = 0
        self.byte_order_mark = False
        self.failure: Problem | None = None

    def blocks(self) -> Iterator[bytes]:
        try:
            with open(self.path, "rb") as raw, _decompressed(raw, compression_of(self.path)) as stream:
                start = self._start(stream)
                self.bytes_read = raw.tell()
                yield start
                # One read of the compressed stream at a time, so that all data of a truncated file is returned.
                while block := stream.read1(BLOCK_BYTES):
                    self.bytes_read = raw.tell()
                    yield block
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            self.failure = Problem("unreadable", self.path, detail=str(error) or type(error).__name__)

    def lines(self, longest: int) -> Iterator[tuple[int, bytes | None]]:
        """Yields (line number, line without its line feed), with None for a line of more than `longest` bytes."""
        number, pending, skipping = 1, b"", False
        for block in self.blocks():
            *lines, pending = (pending + block).split(b"\n")
            for line in lines:
                yield number, None if skipping else line
                number, skipping = number + 1, False
            if len(pending) > longest:
                pending, skipping = b"", True
        if pending or skipping:
            yield number, None if skipping else pending

    def _start(self, stream: BinaryIO) -> bytes:
        start = b""
        while len(start) < 3 and (more := stream.read1(BLOCK_BYTES)):
            start += more
        if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise OSError("the text is UTF-16: convert it to UTF-8")
        self.byte_order_mark = start.startswith(codecs.BOM_UTF8)
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


def _decompressed(raw: BinaryIO, compression: str) -> contextlib.AbstractContextManager:
    if compression == ".gz":
        return gzip.GzipFile(fileobj=raw)
    if compression == ".xz":
        return lzma.LZMAFile(raw)
    if compression == ".zst":
        return contextlib.nullcontext(_ArrowStream(raw))
    return contextlib.nullcontext(raw)
