"""Texts to be linked, and texts that are linked already, read from files.

A .jsonl file is linked already if its first row is (`data/linked_rows.py` lists the forms); such links are kept.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from hornbook.data.linked_rows import is_linked, linked_texts
from hornbook.data.problems import Problem, Problems
from hornbook.data.readers import JSON_LINE_BYTES, read_documents
from hornbook.data.sources import ByteReader, find_sources, format_of
from hornbook.graph.graph import Graph
from hornbook.graph.linking import LinkedText, Mention

BATCH = 1000  # texts that are linked together


@dataclass(frozen=True)
class PlacedText:
    """A linked text, its file and its place there, such as `line 12`; `was_linked`: the file already had the links."""

    file: str
    place: str
    linked: LinkedText
    was_linked: bool

    def to_dict(self) -> dict:
        return {"file": self.file, "place": self.place, **self.linked.to_dict()}


def link_files(
    graph: Graph,
    paths: Sequence[str | Path] | str | Path,
    *,
    text_column: str | None = None,
    problems: Problems | None = None,
) -> Iterator[PlacedText]:
    """Yields every text of the files with its mentions. A .txt file holds one text per line; rows that are linked
    already keep their links.

    >>> import hornbook
    >>> [len(each.linked.mentions) for each in link_files(hornbook.open_graph("graph"), "notes.txt")]
    [2, 0]
    """
    problems = Problems() if problems is None else problems
    paths = [source.path for source in find_sources(paths, problems)]
    is_empty = True
    for path in paths:
        kind, _ = format_of(path)
        first_row = next((row for _, row in _rows(path) if row is not None), {}) if kind == ".jsonl" else {}
        if is_linked(first_row):
            texts = _linked_rows(path, graph, problems)
        else:
            texts = _link_file(graph, path, kind, text_column, problems)
        for text in texts:
            is_empty = False
            yield text
    if is_empty:
        raise ValueError(f"no text could be read from {', '.join(paths)}")


def _link_file(graph: Graph, path: str, kind: str, text_column: str | None, problems: Problems) -> Iterator[PlacedText]:
    texts = _texts(path, kind, text_column, problems)
    while batch := list(islice(texts, BATCH)):
        for (place, _), linked in zip(batch, graph.link([text for _, text in batch]), strict=True):
            yield PlacedText(path, place, linked, False)


def _texts(path: str, kind: str, text_column: str | None, problems: Problems) -> Iterator[tuple[str, str]]:
    for document in read_documents(path, text_column=text_column, problems=problems):
        if kind != ".txt":
            yield document.place, document.text
            continue
        first = int(document.place.rpartition(" ")[2])
        for number, line in enumerate(document.text.split("\n"), first):
            if line.strip():
                yield f"line {number}", line.strip()


def _rows(path: str) -> Iterator[tuple[str, dict | None]]:
    """Yields (place, object) for each line; None if the line is not a JSON object."""
    for number, line in ByteReader(path).lines(JSON_LINE_BYTES):
        if line is not None and not line.strip():
            continue
        try:
            value = json.loads(line.decode("utf-8")) if line else None
        except (ValueError, RecursionError):
            value = None
        yield f"line {number}", value if isinstance(value, dict) else None


def _linked_rows(path: str, graph: Graph, problems: Problems) -> Iterator[PlacedText]:
    for place, row in _rows(path):
        if row is None:
            problems.add(Problem("not_json", path, place))
            continue
        for text, spans in linked_texts(row):
            mentions = []
            for start, end, entity in spans:
                if start < 0 or end > len(text) or start >= end:
                    problems.add(Problem("missing_surface", path, place, str(entity)))
                    continue
                label = next(map(graph.label, graph.candidates(entity)), entity)
                mentions.append(Mention(start, end, text[start:end], entity, label, 1.0))
            yield PlacedText(path, place, LinkedText(text, sorted(mentions)), True)
