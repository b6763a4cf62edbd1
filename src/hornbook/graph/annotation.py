"""The entity ids of the entities that texts mention: for corpora, and for the examples of a task."""

from collections.abc import Sequence
from pathlib import Path

from hornbook.graph.graph import Graph, open_graph

MIN_SCORE = 0.3  # of a mention that is used, as published for ERNIE (there: of TagMe)

Numbered = list[tuple[int, int, int]]  # (start, end, number of the entity) of each mention, in characters


class EntityLinker:
    """Finds entities in texts by their numbers in the graph, sure ones only (`MIN_SCORE`). It can be sent to a worker
    process, which opens the graph itself.

    >>> EntityLinker("graph").numbers(["Two trowels lay in the garden."])
    [[(4, 11, 2), (23, 29, 1)]]
    """

    def __init__(self, graph: str | Path | Graph):
        self.graph = graph if isinstance(graph, Graph) else open_graph(graph)

    def __reduce__(self):
        return EntityLinker, (self.graph.folder,)

    @property
    def fingerprint(self) -> str:
        return self.graph.fingerprint

    def numbers(
        self, texts: Sequence[str], given: Sequence[Sequence[tuple[int, int, str]] | None] | None = None
    ) -> list[Numbered]:
        """The mentions of each text. Where `given` has a text's mentions already (start, end, identifier), they are
        used as they are; entities that the graph does not have are left out."""
        given = [None] * len(texts) if given is None else given
        linked = iter(self.graph.link([text for text, mentions in zip(texts, given, strict=True) if mentions is None]))
        found = []
        for mentions in given:
            if mentions is None:
                mentions = [(m.start, m.end, m.entity) for m in next(linked).mentions if m.score >= MIN_SCORE]
            entities = ((start, end, self.graph.candidates(entity)) for start, end, entity in mentions)
            found.append([(start, end, candidates[0]) for start, end, candidates in entities if candidates])
        return found
