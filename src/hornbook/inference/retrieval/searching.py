"""`hornbook.search`: the texts of an index that are most similar to queries.

hornbook.search("index", "how do I reset my password", top_k=5)[0][0].text

Exact search compares every vector with every query, by matrix products over blocks of rows. Approximate search follows
a navigable graph of neighbours (HNSW, Malkov and Yashunin 2016, arXiv 1603.09320) from faiss, in the file graph.faiss
with the float32 vectors of its rows; the scores of the rows that it proposes are computed as in exact search.

Shapes: N rows, B rows of a block, D width, Q queries, R = 2 Q rows of their parts, K results per query.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hornbook.config import checked
from hornbook.devices import fastest_seconds
from hornbook.extras import import_extra
from hornbook.files import replacing
from hornbook.inference.load import load
from hornbook.inference.loaded_model import LoadedModel, as_texts
from hornbook.inference.retrieval.index import ID, LARGEST_INT8, TEXT, Index
from hornbook.lifecycle.run_folder import ignore
from hornbook.nn.int8 import joined, low_and_high_parts

DEFAULT_TOP_K = 5
LARGEST_TOP = 100_000
ROWS_AT_ONCE = 131_072  # of a block; 200 MB of float32 vectors of width 384, which are read in place
SCORES_AT_ONCE = 2**24  # of a block, over all queries
CANDIDATES = 5  # per result: rows that int8 numbers alone, or the graph, propose, and whose scores are then computed
HNSW_FILE = "graph.faiss"
ADDED_AT_ONCE = 100_000  # rows added to the graph before it is saved
M = 32  # links of a row of the graph; the names are those of the paper
EF_CONSTRUCTION, EF_SEARCH = 64, 128  # rows looked at

Product = Callable[[Tensor, Tensor, Tensor], Tensor]  # of Q x D queries, B x D int8 rows and their scales, B


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
        log: Callable[[str], None] = ignore,
    ):
        self.index = Index(index)
        self.approximate = ApproximateIndex(self.index, log) if approximate else None
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
        manifest.refuse_other_model(model, self.index.folder)
        return model

    def search(
        self, queries: str | Sequence[str], top_k: int = DEFAULT_TOP_K, where: Mapping[str, Any] | None = None
    ) -> list[list[Hit]]:
        """The `top_k` most similar texts for each query, best first; see `hornbook.search`."""
        queries = as_texts(queries, "queries")
        if not all(query.strip() for query in queries):
            raise ValueError("the query is empty: give a few words to search for")
        top_k = checked(top_k, int, "top_k", low=1, high=LARGEST_TOP)
        chosen = self.index.matching(where) if where else None
        if chosen is not None and not len(chosen):
            several = {
                name: value if isinstance(value, list | tuple | set) else [value] for name, value in where.items()
            }
            values = " and ".join(f"{name} = {' or '.join(map(str, each))}" for name, each in several.items())
            raise ValueError(f"no row of the index has {values}: check the spelling, or leave out where=")
        if not queries:
            return []
        vectors = self.model.embed_for_similarity(queries, "query")
        if self.approximate is not None and chosen is None:
            results = self.approximate.search(vectors, top_k)
        else:
            results = search_index(self.index, vectors, top_k, chosen)
        return [[self._hit(int(row), float(score)) for score, row in zip(*each, strict=True)] for each in results]

    def _hit(self, row: int, score: float) -> Hit:
        values = self.index.row(row)
        return Hit(values.pop(ID), values.pop(TEXT), score, values)


def search(
    index: str | Path | SearchIndex,
    queries: str | Sequence[str],
    top_k: int = DEFAULT_TOP_K,
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


def search_index(
    index: Index, queries_QD: np.ndarray, top_k: int, chosen: np.ndarray | None = None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each query the scores and the rows of the `top_k` nearest vectors, best first. int8 vectors are first
    searched without their residuals; the best candidates are then ranked with them."""
    if index.residuals_ND is None:
        return list(zip(*top_rows(queries_QD, index.vectors_ND, None, top_k, chosen), strict=True))
    _, candidates = top_rows(queries_QD, index.vectors_ND, index.scales_N, CANDIDATES * top_k, chosen)
    return rank_candidates(index, queries_QD, candidates, top_k)


def rank_candidates(
    index: Index, queries_QD: np.ndarray, candidates: Sequence[np.ndarray], top_k: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each query the scores and the rows of the `top_k` best of its candidate rows, by the products with their full
    vectors."""
    ranked = []
    for query_D, rows in zip(queries_QD, candidates, strict=True):
        scores = index.vectors_of(rows) @ query_D
        order = np.lexsort((rows, -scores))[:top_k]
        ranked.append((scores[order], rows[order]))
    return ranked


class TopRows:
    """The `top_k` highest scores of each query and their rows, Q x K each, best first, over blocks of rows; equal
    scores are in the order of the rows."""

    def __init__(self, num_queries: int, top_k: int):
        self.top_k = top_k
        self.scores = np.zeros((num_queries, 0), np.float32)
        self.rows = np.zeros((num_queries, 0), np.int64)

    def add(self, scores_QB: np.ndarray, rows_QB: np.ndarray) -> None:
        """Merges the scores of a block."""
        scores, rows = np.concatenate([self.scores, scores_QB], 1), np.concatenate([self.rows, rows_QB], 1)
        order = np.lexsort((rows, -scores))[:, : self.top_k]
        self.scores, self.rows = np.take_along_axis(scores, order, 1), np.take_along_axis(rows, order, 1)


def top_rows(
    queries_QD: np.ndarray,
    vectors_ND: np.ndarray,
    scales_N: np.ndarray | None,
    top_k: int,
    chosen: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The `top_k` highest dot products with each query and their rows, Q x K each, best first; equal scores are in the
    order of the rows. K is smaller than `top_k` if there are fewer rows. `chosen`: numbers of the rows to search.
    Memory is bounded by one block, whatever the number of rows.

    >>> scores, rows = top_rows(np.eye(2, dtype=np.float32)[:1], np.eye(2, dtype=np.float32), None, 1)
    >>> scores.tolist(), rows.tolist()
    ([[1.0]], [[0]])
    """
    queries_QD = np.ascontiguousarray(queries_QD, np.float32)
    num_rows = len(vectors_ND) if chosen is None else len(chosen)
    step = max(1, min(ROWS_AT_ONCE, SCORES_AT_ONCE // max(1, len(queries_QD))))
    top = TopRows(len(queries_QD), top_k)
    for first in range(0, num_rows, step):
        where = slice(first, first + step) if chosen is None else chosen[first : first + step]
        scores_QB = _scores(queries_QD, vectors_ND[where], None if scales_N is None else scales_N[where])
        rows_B = np.arange(first, first + scores_QB.shape[1]) if chosen is None else where
        best_QK = _highest(torch.from_numpy(scores_QB), min(top_k, scores_QB.shape[1]))
        top.add(np.take_along_axis(scores_QB, best_QK, 1), rows_B[best_QK])
    return top.scores, top.rows


def _highest(scores_QB: torch.Tensor, num: int) -> np.ndarray:
    """The indices of the `num` highest scores of each query; of those that equal the lowest of them the first, where
    `topk` takes any."""
    best = torch.topk(scores_QB, min(num + 1, scores_QB.shape[1]))
    indices_QK, is_cut_Q1 = best.indices[:, :num], best.values[:, num - 1 : num] == best.values[:, num:]
    for query in is_cut_Q1.any(1).nonzero()[:, 0]:
        indices_QK[query] = scores_QB[query].sort(descending=True, stable=True).indices[:num]
    return indices_QK.numpy()


def _scores(queries_QD: np.ndarray, block_BD: np.ndarray, scales_B: np.ndarray | None) -> np.ndarray:
    """Dot products, Q x B."""
    if scales_B is None:
        # A single query is a matrix-vector product, which reads the block once and in order.
        return (block_BD @ queries_QD[0])[None] if len(queries_QD) == 1 else queries_QD @ block_BD.T
    product = fastest_product(block_BD.shape[1], len(queries_QD) == 1)
    return product(*(torch.from_numpy(np.asarray(each)) for each in (queries_QD, block_BD, scales_B))).numpy()


def float_product(queries_QD: Tensor, block_BD: Tensor, scales_B: Tensor) -> Tensor:
    """The product with int8 rows, Q x B, which are converted first."""
    return (queries_QD @ block_BD.float().T).mul_(scales_B)


def float_kernel(queries_QD: Tensor, block_BD: Tensor, scales_B: Tensor) -> Tensor:
    """The same by PyTorch's kernel for int8 weights, which converts them in registers."""
    return torch.ops.aten._weight_int8pack_mm(queries_QD, block_BD, scales_B)


def integer_kernel(queries_QD: Tensor, block_BD: Tensor, scales_B: Tensor) -> Tensor:
    """The same with queries that are rounded to 15 bits and a sign, by an integer product, as in `nn/int8.py`."""
    largest_Q1 = queries_QD.abs().amax(-1, keepdim=True)
    parts_RD = low_and_high_parts(queries_QD, largest_Q1).flatten(0, 1)
    return joined(torch._int_mm(block_BD, parts_RD.T).T.float(), largest_Q1).mul_(scales_B)


@cache
def fastest_product(width: int, is_single: bool) -> Product:
    """The fastest of the products with int8 rows that are right for this width on this machine, for one query or
    several. Which one that is depends on the processor, and another may take a hundred times as long."""
    products = [float_product, *(each for each in (float_kernel, integer_kernel) if is_right(each, width))]
    example = _example(1 if is_single else 8, 16_384, width)
    seconds = [fastest_seconds(partial(product, *example)) for product in products]
    return products[seconds.index(min(seconds))]


def is_right(product: Product, width: int) -> bool:
    """Whether the product exists on this machine and is right there for vectors of this width."""
    example = _example(8, 256, width)
    expected = float_product(*example)
    try:
        return bool((product(*example) - expected).abs().max() < 1e-3 * expected.abs().max())
    except (RuntimeError, NotImplementedError, AttributeError):
        return False


def _example(num_queries: int, num_rows: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Random queries, int8 rows and their scales."""
    random = torch.Generator().manual_seed(0)
    rows = torch.randint(-LARGEST_INT8, LARGEST_INT8 + 1, (num_rows, width), generator=random, dtype=torch.int8)
    return torch.randn(num_queries, width, generator=random), rows, torch.rand(num_rows, generator=random)


class ApproximateIndex:
    """The HNSW graph of an index, built on first use and extended by rows that were added since."""

    def __init__(self, index: Index, log: Callable[[str], None] = ignore):
        self.index, self.faiss = index, import_extra("faiss", "search", "approximate search needs")
        self.hnsw = self._open()
        if self.hnsw.ntotal < len(index):
            self._extend(log)

    def _open(self):
        """The saved HNSW graph, or an empty one if there is none that fits the index."""
        file = self.index.folder / HNSW_FILE
        if file.exists():
            try:
                hnsw = self.faiss.read_index(str(file))
            except RuntimeError:
                hnsw = None  # damaged: built again
            if hnsw is not None and hnsw.d == self.index.manifest.width and hnsw.ntotal <= len(self.index):
                return hnsw
        hnsw = self.faiss.IndexHNSWFlat(self.index.manifest.width, M, self.faiss.METRIC_INNER_PRODUCT)
        hnsw.hnsw.efConstruction = EF_CONSTRUCTION
        return hnsw

    def _extend(self, log: Callable[[str], None]) -> None:
        """Adds the rows of the index that the graph lacks, and saves it after each block."""
        total = len(self.index)
        for first in range(self.hnsw.ntotal, total, ADDED_AT_ONCE):
            log(f"building {self.index.folder / HNSW_FILE} for approximate search: {first:,} of {total:,} texts")
            block_BD = self.index.vectors_of(np.arange(first, min(first + ADDED_AT_ONCE, total)))
            self.hnsw.add(block_BD)
            with replacing(self.index.folder / HNSW_FILE) as file:
                self.faiss.write_index(self.hnsw, str(file))

    def search(self, queries_QD: np.ndarray, top_k: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each query the scores and the rows of about the `top_k` nearest vectors, best first."""
        num = min(CANDIDATES * top_k, len(self.index))
        self.hnsw.hnsw.efSearch = max(EF_SEARCH, 2 * num)
        _, candidates = self.hnsw.search(np.ascontiguousarray(queries_QD, np.float32), num)
        # The graph may propose fewer rows than requested, and pads them with -1.
        return rank_candidates(self.index, queries_QD, [rows[rows >= 0] for rows in candidates], top_k)
