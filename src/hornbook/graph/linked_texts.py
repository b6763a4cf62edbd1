"""Texts to be linked, and texts that are linked already, read from files.

A .jsonl file is linked already if its rows are T-REx facts ({"sub_uri", "obj_uri", "evidences": [...]}, as LAMA
publishes them), T-REx documents ({"text", "entities": [{"uri", "boundaries", "surfaceform"}]}), or what
`hornbook graph link --to` wrote ({"text", "mentions": [{"start", "end", "entity"}]}). Their links are kept as they are.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from hornbook.data.problems import Problem, Problems
from hornbook.data.readers import JSON_LINE_BYTES, read_documents
from hornbook.data.sources import ByteReader, find_sources, format_of
from hornbook.graph.graph import Graph
from hornbook.graph.linking import LinkedText, Mention

MASK = "[MASK]"
BATCH = 1000  # texts that are linked together


@dataclass(frozen=True)
class Place:
    """A linked text and where it stands in its file."""

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
) -> Iterator[Place]:
    """Yields every text of the files with its mentions. A .txt file holds one text per line; rows that are linked
    already keep their links.

    >>> import hornbook
    >>> [len(each.linked.mentions) for each in link_files(hornbook.open_graph("graph"), "notes.txt")]
    [2, 0]
    """
    problems = Problems() if problems is None else problems
    sources, left_out = find_sources(paths)
    for problem in left_out:
        problems.add(problem)
    num_found = 0
    for source in sources:
        kind, _ = format_of(source.path)
        if kind == ".jsonl" and _is_linked(source.path):
            found = _linked_rows(source.path, graph, problems)
        else:
            found = _link_file(graph, source.path, kind, text_column, problems)
        for each in found:
            num_found += 1
            yield each
    if not num_found:
        raise ValueError(f"no text could be read from {', '.join(map(str, [each.path for each in sources]))}")


def _link_file(graph: Graph, path: str, kind: str, text_column: str | None, problems: Problems) -> Iterator[Place]:
    texts = _texts(path, kind, text_column, problems)
    while batch := list(islice(texts, BATCH)):
        for (place, _), linked in zip(batch, graph.link([text for _, text in batch]), strict=True):
            yield Place(path, place, linked, False)


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


def _is_linked(path: str) -> bool:
    first = next((row for _, row in _rows(path) if row is not None), {})
    return "evidences" in first or ("text" in first and ("entities" in first or "mentions" in first))


def _linked_rows(path: str, graph: Graph, problems: Problems) -> Iterator[Place]:
    for place, row in _rows(path):
        if row is None:
            problems.add(Problem("not_json", path, place))
            continue
        found = list(_facts(row) if "evidences" in row else _documents(row))
        for text, spans in found:
            mentions = []
            for start, end, entity in spans:
                if start < 0 or end > len(text) or start >= end:
                    problems.add(Problem("missing_surface", path, place, str(entity)))
                    continue
                number = next(iter(graph.candidates(entity)), None)
                label = entity if number is None else graph.label(number)
                mentions.append(Mention(start, end, text[start:end], entity, label, 1.0))
            yield Place(path, place, LinkedText(text, sorted(mentions)), True)


def _facts(row: dict) -> Iterator[tuple[str, list[tuple[int, int, str]]]]:
    """The sentences of a T-REx fact: [MASK] is replaced by the object, and the subject is looked for."""
    seen = set()
    for evidence in row["evidences"] if isinstance(row["evidences"], list) else ():
        subject, other, masked = (
            str(evidence.get(name) or "") for name in ("sub_surface", "obj_surface", "masked_sentence")
        )
        if not masked or masked in seen:
            continue
        seen.add(masked)
        start = masked.find(MASK)
        text = masked.replace(MASK, other)
        spans = [] if start < 0 else [(start, start + len(other), str(row.get("obj_uri")))]
        taken = range(start, start + len(other)) if start >= 0 else range(0)
        whole_word = rf"(?<!\w){re.escape(subject)}(?!\w)"
        places = [found.start() for found in re.finditer(whole_word, text) if found.start() not in taken]
        place = places[0] if subject and places else -1
        yield text, [*spans, (place, place + len(subject), str(row.get("sub_uri")))]


def _documents(row: dict) -> Iterator[tuple[str, list[tuple[int, int, str]]]]:
    spans = []
    for each in row.get("mentions") or row.get("entities") or ():
        if not isinstance(each, dict):
            continue
        bounds = each.get("boundaries") or (each.get("start", -1), each.get("end", -1))
        entity = str(each.get("entity") or each.get("uri") or "")
        is_whole = len(bounds) == 2 and all(isinstance(bound, int) for bound in bounds)
        spans.append((*(bounds if is_whole else (-1, -1)), entity.rpartition("/")[2] or entity))
    yield str(row["text"]), spans
