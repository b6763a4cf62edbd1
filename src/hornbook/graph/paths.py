"""Paths between entities, for many pairs at once: everything is done with arrays over all pairs.

Shapes: N entities, Q queries, P paths, H nodes of a path. A path visits no entity twice and follows edges in either
direction. The last two hops are found by intersecting the neighbours of both ends, starting from the end with fewer.
"""

from dataclasses import dataclass

import numpy as np

from hornbook.data.hash_set import find_sorted

MAX_HOPS = 4
MAX_PARTIAL = 200_000  # partial paths of a query that are kept while it is extended
MAX_AT_ONCE = 4_000_000  # neighbours that are looked at together, which bounds the memory


@dataclass(frozen=True)
class Adjacency:
    """The neighbours of every entity: `pairs` holds entity * N + neighbour, sorted."""

    pairs: np.ndarray
    pair_offsets: np.ndarray

    @property
    def num_entities(self) -> int:
        return len(self.pair_offsets) - 1

    def degree(self, entities: np.ndarray) -> np.ndarray:
        return self.pair_offsets[entities + 1] - self.pair_offsets[entities]

    def expand(self, entities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(row, neighbour) for every neighbour of every row's entity."""
        counts = self.degree(entities)
        rows = np.repeat(np.arange(len(entities)), counts)
        first = self.pair_offsets[entities] - (np.cumsum(counts) - counts)
        places = np.arange(len(rows)) + first[rows]
        return rows, self.pairs[places] - entities[rows] * self.num_entities

    def find(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The index in `pairs` of each (a, b), or -1 where the two are not connected."""
        return find_sorted(self.pairs, a.astype(np.int64) * self.num_entities + b)


@dataclass(frozen=True)
class PathArrays:
    """The paths of Q queries, sorted by query, length and rank.

    nodes_PH       entities of each path, -1 after its end
    num_hops_P     its number of edges
    offsets_Q      where the paths of each query start (Q + 1)
    is_cut_Q       whether some paths of a query were not looked at (more than `MAX_PARTIAL` beginnings)
    """

    nodes_PH: np.ndarray
    num_hops_P: np.ndarray
    offsets_Q: np.ndarray
    is_cut_Q: np.ndarray


def find_paths(
    adjacency: Adjacency, heads_Q: np.ndarray, tails_Q: np.ndarray, hops: int, limit: int | None
) -> PathArrays:
    """All paths of at most `hops` edges between heads and tails, for each query the best `limit`: shorter paths first,
    then those through entities with few neighbours, which say more than hubs."""
    heads_Q, tails_Q = (np.asarray(each, np.int64) for each in (heads_Q, tails_Q))
    num_queries = len(heads_Q)
    is_cut_Q = np.zeros(num_queries, bool)
    found = []
    for length in range(1, hops + 1):
        for rows in _portions(adjacency, heads_Q, tails_Q, length):
            queries, nodes = _of_length(adjacency, heads_Q, tails_Q, rows, length, is_cut_Q)
            queries, nodes = _best(adjacency, queries, nodes, limit)
            padding = np.full((len(nodes), hops - length), -1, np.int64)
            found.append((queries, np.concatenate([nodes, padding], 1), np.full(len(nodes), length, np.int8)))
    queries = np.concatenate([each[0] for each in found])
    order = np.argsort(queries, kind="stable")  # shorter paths stay first, in the order of `_best`
    queries = queries[order]
    nodes, lengths = (np.concatenate([each[i] for each in found])[order] for i in (1, 2))
    if limit is not None:
        kept = position_in_group(queries) < limit
        queries, nodes, lengths = queries[kept], nodes[kept], lengths[kept]
    return PathArrays(nodes, lengths, np.searchsorted(queries, np.arange(num_queries + 1)), is_cut_Q)


def _portions(adjacency: Adjacency, heads_Q: np.ndarray, tails_Q: np.ndarray, length: int) -> list[np.ndarray]:
    """The queries, split so that a portion looks at a bounded number of neighbours; alone if it needs many hops."""
    rows = np.flatnonzero(heads_Q != tails_Q)
    if length == 1 or not len(rows):
        return [rows]
    if length > 2:
        return [rows[i : i + 1] for i in range(len(rows))]
    work = np.minimum(adjacency.degree(heads_Q[rows]), adjacency.degree(tails_Q[rows]))
    ends = np.flatnonzero(np.diff(np.cumsum(work) // MAX_AT_ONCE)) + 1
    return np.split(rows, ends)


def _of_length(
    adjacency: Adjacency,
    heads_Q: np.ndarray,
    tails_Q: np.ndarray,
    rows: np.ndarray,
    length: int,
    is_cut_Q: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """(query, nodes) of all paths of exactly `length` edges for the queries `rows`."""
    if length == 1:
        rows = rows[adjacency.find(heads_Q[rows], tails_Q[rows]) >= 0]
        return rows, np.stack([heads_Q[rows], tails_Q[rows]], 1)
    # Longer paths are extended from the end with fewer neighbours, and turned round at the end.
    turned = adjacency.degree(tails_Q) < adjacency.degree(heads_Q)
    starts_Q, ends_Q = np.where(turned, tails_Q, heads_Q), np.where(turned, heads_Q, tails_Q)
    nodes = starts_Q[rows][:, None]
    for _ in range(length - 2):
        places, neighbours = adjacency.expand(nodes[:, -1])
        is_new = (nodes[places] != neighbours[:, None]).all(1) & (neighbours != ends_Q[rows[places]])
        if is_new.sum() > MAX_PARTIAL:
            is_cut_Q[rows] = True
            candidates = np.flatnonzero(is_new)
            order = np.argsort(adjacency.degree(neighbours[candidates]), kind="stable")[:MAX_PARTIAL]
            is_new = np.zeros_like(is_new)
            is_new[candidates[order]] = True
        places, neighbours = places[is_new], neighbours[is_new]
        rows, nodes = rows[places], np.concatenate([nodes[places], neighbours[:, None]], 1)
    found = [_last_two_hops(adjacency, ends_Q, *portion) for portion in _split(adjacency, rows, nodes, ends_Q)]
    queries = np.concatenate([each[0] for each in found])
    nodes = np.concatenate([each[1] for each in found])
    return queries, np.where(turned[queries][:, None], nodes[:, ::-1], nodes)


def _split(adjacency: Adjacency, rows: np.ndarray, nodes: np.ndarray, ends_Q: np.ndarray) -> list[tuple]:
    work = np.minimum(adjacency.degree(nodes[:, -1]), adjacency.degree(ends_Q[rows]))
    ends = np.flatnonzero(np.diff(np.cumsum(work) // MAX_AT_ONCE)) + 1
    return list(zip(np.split(rows, ends), np.split(nodes, ends), strict=True))


def _last_two_hops(
    adjacency: Adjacency, ends_Q: np.ndarray, rows: np.ndarray, nodes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Extends partial paths by an entity between their last one and the end of the query, and by that end."""
    last, ends = nodes[:, -1], ends_Q[rows]
    from_end = adjacency.degree(ends) < adjacency.degree(last)
    places, middle = adjacency.expand(np.where(from_end, ends, last))
    other = np.where(from_end, last, ends)[places]
    is_between = (adjacency.find(other, middle) >= 0) & (middle != ends[places])
    places, middle = places[is_between], middle[is_between]
    is_simple = (nodes[places] != middle[:, None]).all(1)
    places, middle = places[is_simple], middle[is_simple]
    return rows[places], np.concatenate([nodes[places], middle[:, None], ends[places][:, None]], 1)


def _best(
    adjacency: Adjacency, queries: np.ndarray, nodes: np.ndarray, limit: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Sorts paths of one length by query and rank, and keeps `limit` for each query."""
    inner = nodes[:, 1:-1]
    cost = np.log1p(adjacency.degree(inner.ravel())).reshape(inner.shape).sum(1)
    order = np.lexsort((*inner.T[::-1], cost, queries))
    queries, nodes = queries[order], nodes[order]
    if limit is None:
        return queries, nodes
    kept = position_in_group(queries) < limit
    return queries[kept], nodes[kept]


def position_in_group(ordered: np.ndarray) -> np.ndarray:
    """The position of each element among equal ones in a sorted array: 0, 1, 0, 1, 2 for 4, 4, 7, 7, 7."""
    is_first = np.ones(len(ordered), bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    first = np.flatnonzero(is_first)
    return np.arange(len(ordered)) - np.repeat(first, np.diff([*first, len(ordered)]))
