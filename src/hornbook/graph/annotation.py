"""The entity ids of the entities that texts mention: for corpora, and for the examples of a task."""

from collections.abc import Sequence
from pathlib import Path

from hornbook.graph.graph import Graph, open_graph

MIN_SCORE = 0.3  # of a mention that is used, as published for ERNIE (there: of TagMe)

EntitySpans = list[tuple[int, int, int]]  # (start, end, entity id) of each mention of a text, in characters


class EntityLinker:
    """Links texts to entity ids, as model inputs: the best entity of each mention that a graph's `MentionLinker` finds,
    without uncertain ones (`MIN_SCORE`). It can be sent to a worker process, which opens the graph itself.

    >>> EntityLinker("graph").link(["Two trowels lay in the garden."])
    [[(4, 11, 2), (23, 29, 1)]]
    """

    def __init__(self, graph: str | Path | Graph):
        self.graph = graph if isinstance(graph, Graph) else open_graph(graph)

    def __reduce__(self):
        return EntityLinker, (self.graph.folder,)

    @property
    def fingerprint(self) -> str:
        return self.graph.fingerprint

    def link(
        self, texts: Sequence[str], known: Sequence[Sequence[tuple[int, int, str]] | None] | None = None
    ) -> list[EntitySpans]:
        """The mentions of each text. Where `known` has a text's mentions already (start, end, identifier), they are
        used as they are; entities that the graph does not have are left out."""
        known = [None] * len(texts) if known is None else known
        linked = iter(self.graph.link([text for text, mentions in zip(texts, known, strict=True) if mentions is None]))
        spans = []
        for mentions in known:
            if mentions is None:
                mentions = [(m.start, m.end, m.entity) for m in next(linked).mentions if m.score >= MIN_SCORE]
            entities = ((start, end, self.graph.candidates(entity)) for start, end, entity in mentions)
            spans.append([(start, end, candidates[0]) for start, end, candidates in entities if candidates])
        return spans
