"""The text and JSON of files; defects are repaired where possible and recorded as problems."""

import codecs
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hornbook.data.text_encoding import UTF_8, encoding_of, is_text
from hornbook.tasks.reading.reader import Reader

SURROGATES = re.compile("[\ud800-\udfff]")
ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
LIST_OF_DATA = re.compile(r'"[dD]ata"\s*:\s*\[')
SPACE = re.compile(r"[\s,]*")
DECODER = json.JSONDecoder()
WHOLE = -1  # the number of bytes to read a file in one piece
BLOCK_BYTES = 1 << 24  # in which the encoding is detected


def read_text(path: Path, reader: Reader) -> str:
    """The whole text of a file, with line feeds as line ends."""
    return "".join(text_pieces(path, reader))


def lines_of(path: Path, reader: Reader, num_bytes: int = WHOLE) -> Iterator[str]:
    """The lines of a text file, including empty ones."""
    for text in text_pieces(path, reader, num_bytes):
        yield from text.removesuffix("\n").split("\n")


def text_pieces(path: Path, reader: Reader, num_bytes: int = WHOLE) -> Iterator[str]:
    """The text of a file in pieces of whole lines, of about `num_bytes` each, with line feeds as line ends."""
    file, first_line, is_empty = str(path), 1, True
    reader.files.append(file)
    try:
        encoding = _encoding_of(path, reader)
    except OSError as error:
        raise ValueError(f"{file} cannot be read ({error.strerror}): check the file and its permissions") from None
    # A line end is one byte in other encodings.
    num_bytes = WHOLE if encoding.startswith(("utf-16", "utf-32")) else num_bytes
    for data in _blocks(path, num_bytes):
        text = cleaned_text(_decoded_as(encoding, data, file, reader, first_line), file, reader, first_line)
        if first_line == 1 and not is_text(text):
            raise ValueError(f"{file} is not a text file: check the path, or give the format of the file as its suffix")
        is_empty = is_empty and not text.strip()
        first_line += text.count("\n")
        if text:
            yield text
    if is_empty:
        reader.add_problem("empty_file", file)


def _blocks(path: Path, num_bytes: int) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while data := file.read(num_bytes):
            yield data + file.readline()


def _encoding_of(path: Path, reader: Reader) -> str:
    """The requested encoding, or the one that is detected in the first block that is not UTF-8."""
    detected = next((found for data in _blocks(path, BLOCK_BYTES) if (found := encoding_of(data)) != UTF_8), UTF_8)
    requested = reader.encoding
    if requested is None:
        if detected != UTF_8:
            reader.log(f"{path}: encoding {detected} (detected; encoding= overrides it)")
        return detected
    if codecs.lookup(requested).name == UTF_8 and detected != UTF_8:
        raise ValueError(
            f"the bytes of {path} are not UTF-8: leave out encoding=, or give encoding={detected!r}, which they look "
            "like"
        )
    return codecs.lookup(requested).name


def _decoded_as(encoding: str, data: bytes, file: str, reader: Reader, first_line: int) -> str:
    if encoding == UTF_8:
        data = data.removeprefix(codecs.BOM_UTF8) if first_line == 1 else data
        return decoded(data, file, "", reader, first_line)
    try:
        return data.decode(encoding).removeprefix("\ufeff")
    except UnicodeError as error:
        if reader.encoding is None:
            return decoded(data, file, "", reader, first_line)
        raise ValueError(
            f"{file} cannot be decoded as encoding={reader.encoding!r} ({error}): give the right one, or leave it out"
        ) from None


def cleaned_text(text: str, file: str, reader: Reader, first_line: int = 1) -> str:
    """The text, which starts at `first_line` of a file, without NUL characters and with line feeds as line ends."""
    if num_nul := text.count("\0"):
        reader.add_problem("nul_character", file, _line(text, text.index("\0"), first_line), count=num_nul)
        text = text.replace("\0", "")
    text = text.replace("\r\n", "\n")  # as CSV files are written
    # A carriage return inside a line would split a row in two, so it becomes a space.
    return text.replace("\r", " " if "\n" in text else "\n")


def decoded(data: bytes, file: str, place: str, reader: Reader, first_line: int = 1) -> str:
    """UTF-8 bytes as text, invalid bytes replaced. `place` locates the data in problems; if empty, the line of the
    first invalid byte is used, where the data starts at `first_line`."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        text = data.decode("utf-8", "replace")
        bad = text.count("\ufffd") - data.count("\ufffd".encode())
        line = data.count(b"\n", 0, error.start) + first_line
        reader.add_problem("invalid_utf8", file, place or f"line {line}", "bytes that are not UTF-8, replaced", bad)
        return text


def _line(text: str, position: int, first_line: int = 1) -> str:
    return f"line {text.count(chr(10), 0, position) + first_line}"


def json_value(text: str, file: str, reader: Reader) -> Any:
    """The value of a JSON text; raises `ValueError` if it is not JSON."""
    return _without_escaped_surrogates(json.loads(text), text, file, reader)


def read_json_list(path: Path, reader: Reader) -> list[Any]:
    """The elements of the JSON list in a file; see `json_elements`."""
    return json_elements(read_text(path, reader), str(path), reader)


def json_elements(text: str, file: str, reader: Reader) -> list[Any]:
    """The elements of a list, or of the list named "data" in an object, up to the first that cannot be parsed."""
    start = LIST_OF_DATA.search(text) if text.lstrip().startswith("{") else re.match(r"\s*\[", text)
    if start is None:
        raise ValueError(f'{file} is neither a JSON list nor an object with a list named "data": write it as one')
    elements, position = [], SPACE.match(text, start.end()).end()
    while not text.startswith("]", position):
        try:
            value, end = DECODER.raw_decode(text, position)
        except (json.JSONDecodeError, RecursionError) as error:
            detail = f"after element {len(elements)}: {str(error)[:150]}"
            reader.add_problem("unreadable", file, _line(text, position), detail)
            break
        elements.append(value)
        position = SPACE.match(text, end).end()
    return _without_escaped_surrogates(elements, text, file, reader)


def _without_escaped_surrogates(value: Any, text: str, file: str, reader: Reader) -> Any:
    return without_surrogates(value, file, reader) if ESCAPED_SURROGATE.search(text) else value


def without_surrogates(value: Any, file: str, reader: Reader) -> Any:
    """`value` with unpaired surrogates replaced, which tokenizers reject."""
    if isinstance(value, str):
        if value.isascii() or not (num_unpaired := len(SURROGATES.findall(value))):
            return value
        reader.add_problem("lone_surrogate", file, count=num_unpaired)
        return SURROGATES.sub("\ufffd", value)
    if isinstance(value, list):
        return [without_surrogates(each, file, reader) for each in value]
    if isinstance(value, dict):
        return {name: without_surrogates(each, file, reader) for name, each in value.items()}
    return value
