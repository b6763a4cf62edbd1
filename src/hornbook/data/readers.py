"""Reads documents from text, JSON-lines, CSV, TSV and parquet files, streamed: memory is bounded for any file.

Input that cannot be read yields a `Problem` at its position among the documents instead of raising an error.
"""

import codecs
import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Literal

from hornbook.config import checked
from hornbook.data.csv_dialect import SAMPLE_LINES, csv_records, detected, excel_delimiter, is_plain, plain_records
from hornbook.data.linked_rows import is_linked, linked_texts
from hornbook.data.problems import DROPPED, Problem, Problems
from hornbook.data.sources import ByteReader, find_sources, format_of
from hornbook.data.text_encoding import UTF_8, encoding_of, is_text

DocumentBoundary = Literal["blank-line", "file"]
TEXT_COLUMNS = ("text", "content", "document", "body")
PART_CHARACTERS = 1_000_000
JSON_LINE_BYTES = 32 << 20
LINE_CHARACTERS = 32 << 20  # longest line of a table
PARQUET_BATCH_BYTES = 4 << 20
BLANK_LINES = re.compile(r"\n(?:[^\S\n]*\n)+")
SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Document:
    """A text and its place in a file. A document longer than the limit is split into parts, numbered from 0.
    `mentions` are the entities that the file links it to (start, end, identifier), None if it links none."""

    text: str
    file: str
    place: str
    part: int = 0
    mentions: tuple[tuple[int, int, str], ...] | None = None


def read_documents(
    paths: Sequence[str | Path] | str | Path,
    *,
    text_column: str | None = None,
    documents: DocumentBoundary = "blank-line",
    problems: Problems | None = None,
) -> Iterator[Document]:
    """Yields all documents of the given files and folders; problems with them are added to `problems`.

    >>> [document.text for document in read_documents("two_documents.txt")]  # doctest: +SKIP
    ['The first.', 'The second.']
    """
    problems = Problems() if problems is None else problems
    is_empty = True
    for source in find_sources(paths, problems):
        for item in FileReader(source.path, text_column=text_column, documents=documents):
            if isinstance(item, Problem):
                problems.add(item)
            else:
                is_empty = False
                yield item
    if is_empty:
        raise ValueError(no_documents(problems))


def no_documents(problems: Problems) -> str:
    """The error message for files without any readable document."""
    if num_excluded := problems.count("evaluation_text"):
        return (
            f"no document is left; {num_excluded:,} dropped for 13 consecutive words in common with exclude=: give "
            "other files, or leave it out"
        )
    reasons = ("no_text_column", "unreadable", "not_json", "text_not_string", "null_text", "no_tokens", "not_text")
    reason = problems.most_frequent(*reasons, "empty_file", "empty_document", "line_too_long")
    columns = sum(map(problems.count, ("text_not_string", "null_text")))
    fix = "check the files" + (", or give the text column with text_column=" if columns else "")
    return f"no document could be read ({reason}): {fix}"


@dataclass
class FileReader:
    """Iterates over the documents and problems of one file, always in the same order.

    `bytes_read` is the position in the file as stored. With `linked`, rows of JSON lines that are linked to entities
    keep their links (`linked_rows.py`).
    """

    path: str | Path
    text_column: str | None = None
    documents: DocumentBoundary = "blank-line"
    part_characters: int = PART_CHARACTERS
    linked: bool = False

    def __post_init__(self) -> None:
        checked(self.documents, DocumentBoundary, "documents")
        self.path = str(self.path)
        self._bytes = ByteReader(self.path)

    @property
    def bytes_read(self) -> int:
        return self._bytes.bytes_read

    def __iter__(self) -> Iterator[Document | Problem]:
        readers = {".txt": self._read_text, ".jsonl": self._read_json_lines, ".parquet": self._read_parquet}
        read = readers.get(format_of(self.path)[0], self._read_table)
        has_content = False
        try:
            for item in read():
                has_content = has_content or isinstance(item, Document) or item.kind in DROPPED
                yield item
        except _NotText:
            self._bytes.failure = Problem("not_text", self.path)
        if self._bytes.failure:
            yield self._bytes.failure
        elif not has_content:
            yield Problem("empty_file", self.path)

    def _read_text(self) -> Iterator[Document | Problem]:
        decoder = _Decoder(self.path)
        pending, line, part = "", 1, 0
        for text in decoder.texts(self._bytes.blocks()):
            yield from decoder.take_problems()
            pending += text
            start = 0
            if self.documents == "blank-line":
                for separator in BLANK_LINES.finditer(pending):
                    yield from self._parts(pending[start : separator.start()], f"line {line}", part)
                    line += pending.count("\n", start, separator.end())
                    start, part = separator.end(), 0
            pending = pending[start:]
            if part == 0:
                stripped = pending.lstrip()
                line += pending.count("\n", 0, len(pending) - len(stripped))
                pending = stripped
            while len(pending) > self.part_characters:
                split = _split_position(pending, self.part_characters)
                yield from self._part(pending[:split], f"line {line}", part)
                line += pending.count("\n", 0, split)
                pending, part = pending[split:], part + 1
        yield from decoder.take_problems()
        yield from self._parts(pending, f"line {line}", part)

    def _read_json_lines(self) -> Iterator[Document | Problem]:
        column = self.text_column
        encoding = encoding_of(next(ByteReader(self.path).blocks(), b""))
        if encoding.startswith(("utf-16", "utf-32")):
            detail = f"the text is {encoding.upper()}: convert it to UTF-8"
            self._bytes.failure = Problem("unreadable", self.path, detail=detail)
            return
        if encoding != UTF_8:
            yield Problem("other_encoding", self.path, detail=encoding)
        for line_number, line in self._bytes.lines(JSON_LINE_BYTES):
            place = f"line {line_number}"
            if line is None:
                limit = f"longer than {JSON_LINE_BYTES >> 20} MiB: split it into several lines"
                yield Problem("line_too_long", self.path, place, limit)
                continue
            text, num_invalid = _decode(line, encoding)
            if num_invalid:
                yield Problem("invalid_utf8", self.path, place, count=num_invalid)
            if not text.strip():
                continue
            try:
                row = json.loads(text)
            except (ValueError, RecursionError) as error:
                yield Problem("not_json", self.path, place, str(error)[:200])
                continue
            if not isinstance(row, dict):
                yield Problem("not_json", self.path, place, f"a {type(row).__name__}, not an object")
                continue
            if self.linked and is_linked(row):
                yield from self._linked_row(row, place)
                continue
            if column is None and (column := _guess_column(row)):
                yield from self._inferred(column)
            if column in row:
                yield from self._row(row[column], place)
            else:
                yield self._no_column(column, list(row), place)

    def _read_table(self) -> Iterator[Document | Problem]:
        """The text column of a .csv or .tsv, whose first row has the names of the columns. Delimiter and quotes are
        detected in the first lines, as in tables of labelled examples."""
        decoder, suffix = _Decoder(self.path), format_of(self.path)[0]
        bad_quotes: list[Problem] = []

        def note_bad_quotes(place: str, error: str) -> None:
            bad_quotes.append(Problem("bad_quotes", self.path, place, error))

        place = "the start"
        try:
            lines = _lines(decoder.texts(self._bytes.blocks()))
            first = _first_lines(lines)
            for_excel = excel_delimiter(first[0]) if first else ""
            sample, lines = "\n".join(first[bool(for_excel) :]), chain(first, lines)
            dialect = detected(sample, for_excel or ("\t" if suffix == ".tsv" else ","))
            is_unquoted = is_plain(sample, suffix, dialect, is_truncated=True)
            records = plain_records(lines) if is_unquoted else csv_records(lines, dialect, note_bad_quotes)
            if for_excel:
                next(records)
            _, names = next(records, ("", []))
            column = self.text_column or _guess_column(names)
            yield from self._inferred(column)
            index = names.index(column) if column in names else None
            for place, fields in records:
                yield from decoder.take_problems()
                yield from bad_quotes
                bad_quotes.clear()
                while len(fields) > len(names) and not fields[-1]:  # a delimiter at the end of each row
                    fields.pop()
                if surplus := max(0, len(fields) - len(names)):
                    detail = f"{len(fields)} fields, expected {len(names)}"
                    yield Problem("kept_bad_row", self.path, place, detail)
                if index is not None and len(fields) > index:
                    # Surplus delimiters are taken as part of the text, as `predict` takes them.
                    yield from self._row(dialect.delimiter.join(fields[index : index + surplus + 1]), place)
                elif fields:  # not a blank line
                    yield self._no_column(column, names, place)
        except _LineTooLong:
            detail = f"after {place}: a line is longer than {LINE_CHARACTERS >> 20} million characters"
            self._bytes.failure = Problem("unreadable", self.path, detail=detail)
        yield from decoder.take_problems()
        yield from bad_quotes

    def _linked_row(self, row: dict, place: str) -> Iterator[Document | Problem]:
        """The texts of a linked row as one document, a line each. Characters that are removed from other texts are
        replaced here, so that the offsets of mentions stay valid."""
        texts, mentions, offset = [], [], 0
        for text, spans in linked_texts(row):
            texts.append(SURROGATES.sub("\ufffd", text.replace("\0", " ").replace("\r", " ")))
            for start, end, entity in spans:
                if 0 <= start < end <= len(text):
                    mentions.append((offset + start, offset + end, entity))
                else:
                    yield Problem("missing_surface", self.path, place, entity)
            offset += len(text) + 1
        text = "\n".join(texts)
        if text.strip():
            yield Document(text, self.path, place, mentions=tuple(sorted(mentions)))
        else:
            yield Problem("empty_document", self.path, place)

    def _read_parquet(self) -> Iterator[Document | Problem]:
        import pyarrow
        from pyarrow import parquet

        row = 0
        try:
            # By default pyarrow holds the whole column of a row group: 201 MB instead of 31 MB for 300 MB of text.
            with parquet.ParquetFile(self.path, buffer_size=1 << 20, pre_buffer=False) as file:
                num_rows, names = file.metadata.num_rows, file.schema_arrow.names
                column = self.text_column or _guess_column(names)
                if column not in names:
                    yield self._no_column(column, names, "", num_rows)
                    return
                yield from self._inferred(column)
                total = Path(self.path).stat().st_size
                groups = [file.metadata.row_group(index) for index in range(file.num_row_groups)]
                row_bytes = sum(group.total_byte_size for group in groups) // max(1, num_rows)
                batch_rows = max(1, min(1000, PARQUET_BATCH_BYTES // max(1, row_bytes)))
                for batch in file.iter_batches(batch_rows, columns=[column], use_threads=False):
                    values = _as_bytes(batch.column(0), pyarrow)
                    self._bytes.bytes_read = total * (row + len(batch)) // num_rows
                    for value in values:
                        row += 1
                        yield from self._row(value, f"row {row}")
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            detail = f"after row {row}: {str(error).splitlines()[0][:200]}"
            self._bytes.failure = Problem("unreadable", self.path, detail=detail)

    def _row(self, value: object, place: str) -> Iterator[Document | Problem]:
        if value is None:
            yield Problem("null_text", self.path, place)
            return
        if isinstance(value, bytes):
            value, num_invalid = _decode(value)
            if num_invalid:
                yield Problem("invalid_utf8", self.path, place, count=num_invalid)
        if not isinstance(value, str):
            detail = f"a {type(value).__name__}"
            if isinstance(value, dict):
                detail = f"an object with {', '.join(value) or 'no keys'}: write its text at the top level of the row"
            yield Problem("text_not_string", self.path, place, detail[:200])
            return
        if surrogates := len(SURROGATES.findall(value)) if not value.isascii() else 0:
            yield Problem("lone_surrogate", self.path, place, count=surrogates)
            value = SURROGATES.sub("\ufffd", value)
        if nuls := value.count("\0"):
            yield Problem("nul_character", self.path, f"from {place}", count=nuls)
        value = value.replace("\0", "").replace("\r\n", "\n").replace("\r", "\n")
        if not value.strip():
            yield Problem("empty_document", self.path, place)
        else:
            yield from self._parts(value, place)

    def _inferred(self, column: str | None) -> Iterator[Problem]:
        """Notes a text column that the user did not name and that is not simply "text"."""
        if column not in (None, self.text_column, TEXT_COLUMNS[0]):
            yield Problem("inferred_column", self.path, detail=column)

    def _no_column(self, column: str | None, names: list[str], place: str, count: int = 1) -> Problem:
        missing = f'no column "{column}"' if column else f"none of the columns {', '.join(TEXT_COLUMNS)}"
        present = ", ".join(names[:20]) or "no columns at all"
        detail = f"{missing} (there are: {present}); give the text column with text_column="
        return Problem("no_text_column", self.path, place, detail, count)

    def _parts(self, text: str, place: str, part: int = 0) -> Iterator[Document | Problem]:
        text = text.lstrip() if part == 0 else text
        while len(text) > self.part_characters:
            split = _split_position(text, self.part_characters)
            yield from self._part(text[:split], place, part)
            text, part = text[split:], part + 1
        yield from self._part(text, place, part)

    def _part(self, text: str, place: str, part: int) -> Iterator[Document | Problem]:
        text = text.strip()
        if not text:
            return
        if part == 1:
            yield Problem("long_document", self.path, place)
        yield Document(text, self.path, place, part)


class _Decoder:
    """Decodes the bytes of a file to text with line feeds as line ends. Invalid bytes are replaced and NULs removed;
    both are counted. A file that is not UTF-8 from its first character beyond ASCII on is decoded as the encoding that
    its bytes look like, as files of labelled examples are."""

    def __init__(self, path: str):
        self._path = path
        self._line = 1
        self._problems: list[Problem] = []

    def take_problems(self) -> list[Problem]:
        problems, self._problems = self._problems, []
        return problems

    def texts(self, blocks: Iterator[bytes]) -> Iterator[str]:
        line_ends, other, pending, is_ascii = io.IncrementalNewlineDecoder(None, translate=True), None, b"", True
        for block in chain(blocks, [b""]):
            data, is_last = pending + block, not block
            if other is None:
                text, used = codecs.utf_8_decode(data, "replace", is_last)
                num_invalid = _num_replaced(text, data[:used])
                if num_invalid and is_ascii and (encoding := encoding_of(data[:used])) != UTF_8:
                    other = codecs.getincrementaldecoder(encoding)("replace")
                    self._problems.append(Problem("other_encoding", self._path, detail=encoding))
                elif num_invalid:
                    line = self._line + text.count("\n", 0, text.index("\ufffd"))
                    self._problems.append(Problem("invalid_utf8", self._path, f"line {line}", count=num_invalid))
                pending, is_ascii = data[used:], is_ascii and text.isascii()
            if other is not None:
                text, pending = other.decode(data, is_last), b""
            if nuls := text.count("\0"):
                self._problems.append(Problem("nul_character", self._path, f"from line {self._line}", count=nuls))
            text = line_ends.decode(text.replace("\0", ""), final=is_last)
            if self._line == 1 and not is_text(text):
                raise _NotText
            self._line += text.count("\n")
            yield text


class _NotText(Exception):
    """Raised for a file that starts like a picture, an archive or a program."""


class _LineTooLong(Exception):
    """Raised for a line of a table that is too long to be one."""


def _lines(texts: Iterator[str]) -> Iterator[str]:
    """The lines of a text that comes in blocks, without their line feeds."""
    pending = ""
    for text in texts:
        *lines, pending = (pending + text).split("\n")
        yield from lines
        if len(pending) > LINE_CHARACTERS:
            raise _LineTooLong
    if pending:
        yield pending


def _first_lines(lines: Iterator[str]) -> list[str]:
    """Enough lines to detect the dialect of a table."""
    first, num_characters = [], 0
    for line in islice(lines, SAMPLE_LINES):
        first.append(line)
        num_characters += len(line)
        if num_characters > PART_CHARACTERS:
            break
    return first


def _decode(data: bytes, encoding: str = UTF_8) -> tuple[str, int]:
    """(text, number of replacements of invalid bytes)."""
    text = data.decode(encoding, "replace")
    return text, _num_replaced(text, data)


def _num_replaced(text: str, data: bytes) -> int:
    return text.count("\ufffd") - data.count("\ufffd".encode())


def _guess_column(names: Sequence[str] | dict) -> str | None:
    by_name = {name.lower(): name for name in names}
    return next((by_name[name] for name in TEXT_COLUMNS if name in by_name), None)


def _split_position(text: str, limit: int) -> int:
    """Where to split a text that is too long: after the last line end before `limit`, else after the last space, else
    at `limit`."""
    for separator in ("\n", " "):
        if (index := text.rfind(separator, limit // 2, limit)) >= 0:
            return index + 1
    return limit


def _as_bytes(values, pyarrow) -> list:
    """A column as Python values, with strings as bytes: to_pylist raises an error for invalid UTF-8."""
    if pyarrow.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    binary = {pyarrow.string(): pyarrow.binary(), pyarrow.large_string(): pyarrow.large_binary()}.get(values.type)
    return (values.view(binary) if binary else values).to_pylist()
