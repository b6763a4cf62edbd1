"""`hornbook.search`: the texts of an index that are most similar to queries.

hornbook.search("index", "how do I reset my password", top_k=5)[0][0].text
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hornbook.config import checked
from hornbook.inference.loaded import LoadedModel
from hornbook.inference.opening import load
from hornbook.inference.retrieval.approximate import ApproximateIndex
from hornbook.inference.retrieval.building import model_fingerprint, refuse_other_model
from hornbook.inference.retrieval.index import ID, TEXT, Index
from hornbook.inference.retrieval.scan import search_index

TOP = 5
LARGEST_TOP = 100_000


@dataclass(frozen=True)
class Hit:
    """A text of the index: its similarity to the query, its id, and its other columns."""

    id: str
    text: str
    score: float
    columns: dict[str, str | None]


class SearchIndex:
    """An index with the model that built it. Opening it once serves many searches.

    >>> import hornbook
    >>> rows = ["a charming film", "a slow film"]
    >>> built = hornbook.build_index(rows, "two-texts", "runs/first", log=lambda message: None)
    >>> index = hornbook.SearchIndex("two-texts")
    >>> [hits[0].text for hits in index.search(rows)]
    ['a charming film', 'a slow film']
    """

    def __init__(
        self,
        index: str | Path,
        model: str | Path | LoadedModel | None = None,
        device: str = "auto",
        approximate: bool = False,
        log: Callable[[str], None] = lambda message: None,
    ):
        self.index = Index(index)
        self.graph = ApproximateIndex(self.index, log) if approximate else None
        self._model, self._device = model, device

    @cached_property
    def model(self) -> LoadedModel:
        """The model that embeds queries; a `ValueError` if it is not the one that built the index."""
        name, manifest = self._model, self.index.manifest
        if name is None:
            name = manifest.model
            if Path(name).is_absolute() and not Path(name).is_dir():
                raise ValueError(f"{name}, the model of the index, is gone: give its new folder with model=")
        model = name if isinstance(name, LoadedModel) else load(name, device=self._device)
        refuse_other_model(manifest, model, model_fingerprint(model), self.index.folder)
        return model

    def search(
        self, queries: str | Sequence[str], top_k: int = TOP, where: Mapping[str, Any] | None = None
    ) -> list[list[Hit]]:
        """The `top_k` most similar texts for each query, best first; see `hornbook.search`."""
        queries = [queries] if isinstance(queries, str) else list(queries)
        for query in queries:
            if not isinstance(query, str) or not query.strip():
                raise ValueError("the query is empty: give a few words to search for")
        top_k = checked(top_k, int, "top_k", low=1, high=LARGEST_TOP)
        chosen = self.index.matching(where) if where else None
        if chosen is not None and not len(chosen):
            values = " and ".join(f"{name} = {_one_of(value)}" for name, value in where.items())
            raise ValueError(f"no row of the index has {values}: check the spelling, or leave out where=")
        if not queries:
            return []
        vectors = self.model.embed(
            queries, normalize=self.index.manifest.similarity == "cosine" or None, prompt="query"
        )
        if self.graph is not None and chosen is None:
            results = self.graph.search(vectors, top_k)
        else:
            results = search_index(self.index, vectors, top_k, chosen)
        return [[self._hit(int(row), float(score)) for score, row in zip(*each, strict=True)] for each in results]

    def _hit(self, row: int, score: float) -> Hit:
        values = self.index.row(row)
        return Hit(values.pop(ID), values.pop(TEXT), score, values)


def _one_of(value: Any) -> str:
    return " or ".join(map(str, value)) if isinstance(value, list | tuple | set) else str(value)


def search(
    index: str | Path | SearchIndex,
    queries: str | Sequence[str],
    top_k: int = TOP,
    where: Mapping[str, Any] | None = None,
    model: str | Path | LoadedModel | None = None,
    device: str = "auto",
    approximate: bool = False,
) -> list[list[Hit]]:
    """Finds the texts of an index that are most similar to each query.

    Args:
        index: An index folder, or a `hornbook.SearchIndex`, which keeps its model loaded.
        queries: One query, or several.
        top_k: The number of results per query.
        where: Search only rows that have these values in these columns.
        model: The model that built the index, if it was moved; defaults to the recorded one.
        device: `cpu`, `cuda`, `cuda:1`; defaults to a GPU if there is one.
        approximate: Search a graph of neighbours, which is built on first use; it is much faster in large indexes and
            may miss a result. Needs the optional dependencies `hornbook[search]`. With `where` the search is exact.

    Returns:
        For each query a list of `Hit`: `score`, `id`, `text` and the other `columns`.

    >>> import hornbook
    >>> built = hornbook.build_index("reviews.csv", "my-index", "runs/first", log=lambda message: None)
    >>> len(hornbook.search("my-index", "a charming film", top_k=3)[0])
    3
    """
    opened = index if isinstance(index, SearchIndex) else SearchIndex(index, model, device, approximate)
    return opened.search(queries, top_k, where)
