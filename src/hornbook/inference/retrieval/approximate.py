"""Approximate search by a navigable graph of neighbours (HNSW, Malkov and Yashunin 2016, arXiv 1603.09320) from faiss.

graph.faiss    the graph and the float32 vectors of the first rows of the index; rows added later are added to it

The graph proposes candidates, whose scores are then computed from the index's own vectors, as in exact search.

Shapes: N rows, B rows of a block, D width, Q queries, K results per query.
"""

from collections.abc import Callable

import numpy as np

from hornbook.files import replacing
from hornbook.inference.retrieval.index import Index
from hornbook.inference.retrieval.scan import rank_candidates

HNSW_FILE = "graph.faiss"
NEIGHBOURS = 32  # links of a row
EFFORT_BUILDING, EFFORT_SEARCHING = 64, 128  # rows looked at (efConstruction and efSearch in the paper)
CANDIDATES = 5  # per result
ROWS_AT_ONCE = 100_000


class ApproximateIndex:
    """The graph of an index, built on first use and extended by rows that were added since."""

    def __init__(self, index: Index, log: Callable[[str], None] = lambda message: None):
        self.index = index
        self.faiss = _faiss()
        self.graph = self._open()
        if self.graph.ntotal < len(index):
            self._extend(log)

    def _open(self):
        """The saved graph, or an empty one if there is none that fits the index."""
        file = self.index.folder / HNSW_FILE
        if file.exists():
            try:
                graph = self.faiss.read_index(str(file))
            except RuntimeError:
                graph = None  # damaged: built again
            if graph is not None and graph.d == self.index.manifest.width and graph.ntotal <= len(self.index):
                return graph
        graph = self.faiss.IndexHNSWFlat(self.index.manifest.width, NEIGHBOURS, self.faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efConstruction = EFFORT_BUILDING
        return graph

    def _extend(self, log: Callable[[str], None]) -> None:
        """Adds the rows of the index that the graph lacks, and saves it after each block."""
        total = len(self.index)
        for first in range(self.graph.ntotal, total, ROWS_AT_ONCE):
            log(f"building {self.index.folder / HNSW_FILE} for approximate search: {first:,} of {total:,} texts")
            block_BD = self.index.vectors_of(np.arange(first, min(first + ROWS_AT_ONCE, total)))
            self.graph.add(block_BD)
            with replacing(self.index.folder / HNSW_FILE) as file:
                self.faiss.write_index(self.graph, str(file))

    def search(self, queries_QD: np.ndarray, top_k: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each query the scores and the rows of about the `top_k` nearest vectors, best first."""
        num = min(CANDIDATES * top_k, len(self.index))
        self.graph.hnsw.efSearch = max(EFFORT_SEARCHING, 2 * num)
        _, candidates = self.graph.search(np.ascontiguousarray(queries_QD, np.float32), num)
        # The graph may propose fewer rows than requested, and pads them with -1.
        return rank_candidates(self.index, queries_QD, [rows[rows >= 0] for rows in candidates], top_k)


def _faiss():
    try:
        import faiss
    except ImportError:
        raise ValueError(
            "approximate search needs the package faiss-cpu, which is not installed: pip install 'hornbook[search]'"
        ) from None
    return faiss
