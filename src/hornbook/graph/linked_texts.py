"""Texts of files with the entities that they mention.

Rows of JSON lines may be linked already (`data/linked_rows.py` lists the forms); such links are kept.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from hornbook.data.problems import Problem, Problems
from hornbook.data.readers import Document, FileReader, no_documents
from hornbook.data.sources import find_sources, format_of
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


@dataclass
class LinkCounts:
    """Counts of linked texts; those of `linked_before` had the links in their file."""

    texts: int = 0
    mentions: int = 0
    texts_without_mention: int = 0
    linked_before: int = 0

    def count(self, texts: Iterable[PlacedText], on_progress: Callable[[str, int], None]) -> Iterator[PlacedText]:
        """Yields the texts, and counts them on the way."""
        for text in texts:
            num_mentions = len(text.linked.mentions)
            self.texts += 1
            self.mentions += num_mentions
            self.texts_without_mention += not num_mentions
            self.linked_before += text.was_linked
            yield text
            if self.texts % BATCH == 0:
                on_progress("texts linked", self.texts)


def link_entities_in_files(
    graph: Graph,
    paths: Sequence[str | Path] | str | Path,
    *,
    text_column: str | None = None,
    problems: Problems | None = None,
) -> Iterator[PlacedText]:
    """Yields every text of the files with its mentions. A .txt file holds one text per line; rows that are linked
    already keep their links.

    >>> import hornbook
    >>> [len(each.linked.mentions) for each in link_entities_in_files(hornbook.Graph("graph"), "notes.txt")]
    [2, 0]
    """
    problems = Problems() if problems is None else problems
    paths = [source.path for source in find_sources(paths, problems)]
    is_empty = True
    for path in paths:
        documents = _documents(path, text_column, problems)
        while batch := list(islice(documents, BATCH)):
            is_empty = False
            linked = iter(graph.link([each.text for each in batch if each.mentions is None]))
            for document in batch:
                text = next(linked) if document.mentions is None else _with_links(document, graph)
                yield PlacedText(path, document.place, text, document.mentions is not None)
    if is_empty:
        raise ValueError(no_documents(problems))


def _documents(path: str, text_column: str | None, problems: Problems) -> Iterator[Document]:
    """The documents of a file; each line of a .txt file is one."""
    for item in FileReader(path, text_column=text_column, linked=True):
        if isinstance(item, Problem):
            problems.add(item)
        elif format_of(path)[0] != ".txt":
            yield item
        else:
            first = int(item.place.rpartition(" ")[2])
            for number, line in enumerate(item.text.split("\n"), first):
                if line.strip():
                    yield Document(line.strip(), path, f"line {number}")


def _with_links(document: Document, graph: Graph) -> LinkedText:
    mentions = []
    for start, end, entity in document.mentions:
        label = next(map(graph.label, graph.candidates(entity)), entity)
        mentions.append(Mention(start, end, document.text[start:end], entity, label, 1.0))
    return LinkedText(document.text, mentions)
