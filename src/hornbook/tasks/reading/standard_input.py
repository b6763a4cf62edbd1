"""Inputs from standard input: `predict --file -`."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from hornbook.tasks.reading.choices import CONTEXTS
from hornbook.tasks.reading.columns import WORDS
from hornbook.tasks.reading.infer_columns import PAIRS, TEXTS
from hornbook.tasks.reading.tables import PASSAGES, QUESTIONS

COLUMNS = {*TEXTS, *QUESTIONS, *PASSAGES, *CONTEXTS, *WORDS, *(name for pair in PAIRS for name in pair)}
DELIMITERS = {"\t": ".tsv", ",": ".csv", ";": ".csv"}


@contextlib.contextmanager
def spooled(stream: BinaryIO, text: str | None = None) -> Iterator[Path]:
    """Yields a temporary file with the content of the stream; its suffix is the inferred format. `text` is the text
    column, if the user named one."""
    data = stream.read()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"standard-input{suffix_of(data, text)}"
        path.write_bytes(data)
        yield path


def suffix_of(data: bytes, text: str | None = None) -> str:
    """The format of piped data: JSON if it starts like JSON, a table if the first line contains a usual column name (or
    `text`), otherwise one input per line.

    >>> suffix_of(b'{"text": "a"}'), suffix_of(b"id,review"), suffix_of(b"Well, a text")
    ('.jsonl', '.csv', '.txt')
    """
    first = data.decode("utf-8-sig", "replace").lstrip().partition("\n")[0]
    if first.startswith(("{", "[{")) or first.strip() == "[":
        return ".jsonl" if first.startswith("{") else ".json"
    names = COLUMNS if text is None else {text.lower()}
    for delimiter, suffix in DELIMITERS.items():
        fields = [field.strip().strip('"').lower() for field in first.split(delimiter)]
        if len(fields) > 1 and names & set(fields):
            return suffix
    return ".txt" if text is None else ".csv"
