"""Exact search: every vector is compared with every query, by matrix products over blocks of rows.

Shapes: N rows, B rows of a block, D width, Q queries, K results per query.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch

from hornbook.inference.retrieval.index import Index

ROWS_AT_ONCE = 131_072  # of a block; 200 MB of float32 vectors of width 384, which are read in place
SCORES_AT_ONCE = 2**24  # of a block, over all queries
CANDIDATES = 5  # per result: rows whose score by int8 numbers alone is corrected by their residuals


def search_index(
    index: Index, queries_QD: np.ndarray, top_k: int, chosen: np.ndarray | None = None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each query the scores and the rows of the `top_k` nearest vectors, best first. int8 vectors are searched
    first without, then their best candidates with the residuals."""
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
        best = torch.topk(torch.from_numpy(scores_QB), min(top_k, scores_QB.shape[1]), sorted=False)
        top.add(best.values.numpy(), rows_B[best.indices.numpy()])
    return top.scores, top.rows


def _scores(queries_QD: np.ndarray, block_BD: np.ndarray, scales_B: np.ndarray | None) -> np.ndarray:
    """Dot products, Q x B."""
    if scales_B is None:
        # A single query is a matrix-vector product, which reads the block once and in order.
        return (block_BD @ queries_QD[0])[None] if len(queries_QD) == 1 else queries_QD @ block_BD.T
    if has_int8_kernel(block_BD.shape[1]):
        return _int8_product(queries_QD, block_BD, scales_B)
    return (queries_QD @ block_BD.astype(np.float32).T) * scales_B


def _int8_product(queries_QD: np.ndarray, block_BD: np.ndarray, scales_B: np.ndarray) -> np.ndarray:
    """The product with int8 rows by PyTorch's kernel for int8 weights, which converts them in registers."""
    queries, block, scales = (torch.from_numpy(np.asarray(each)) for each in (queries_QD, block_BD, scales_B))
    return torch.ops.aten._weight_int8pack_mm(queries, block, scales).numpy()


@cache
def has_int8_kernel(width: int) -> bool:
    """Whether PyTorch's kernel for int8 weights exists and is right for this width on this machine."""
    random = np.random.default_rng(0)
    queries = random.standard_normal((3, width)).astype(np.float32)
    block = random.integers(-127, 128, (7, width), np.int8)
    scales = random.random(7).astype(np.float32)
    try:
        products = _int8_product(queries, block, scales)
    except (RuntimeError, NotImplementedError, AttributeError):
        return False
    return bool(np.allclose(products, (queries @ block.astype(np.float32).T) * scales, rtol=1e-4, atol=1e-2))
