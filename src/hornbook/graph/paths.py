"""Paths between entities, for many pairs at once: everything is done with arrays over all pairs.

Shapes: N entities, Q queries, K paths, H nodes of a path. A path visits no entity twice and follows edges in either
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
        rows, indices = expand(self.pair_offsets, entities)
        return rows, self.pairs[indices] - entities[rows] * self.num_entities

    def find(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The index in `pairs` of each (a, b), or -1 where the two are not connected."""
        return find_sorted(self.pairs, a.astype(np.int64) * self.num_entities + b)


@dataclass(frozen=True)
class PathArrays:
    """The paths of Q queries, sorted by query, length and rank.

    nodes_KH       entities of each path, -1 after its end
    num_hops_K     its number of edges
    offsets_Q      where the paths of each query start (Q + 1)
    is_cut_Q       whether some paths of a query were not looked at (more than `MAX_PARTIAL` beginnings)
    """

    nodes_KH: np.ndarray
    num_hops_K: np.ndarray
    offsets_Q: np.ndarray
    is_cut_Q: np.ndarray


def find_paths(
    adjacency: Adjacency, heads_Q: np.ndarray, tails_Q: np.ndarray, hops: int, limit: int | None
) -> PathArrays:
    """All paths of at most `hops` edges between heads and tails, for each query the best `limit`: shorter paths first,
    then those through entities with few neighbours, which say more than hubs."""
    num_queries = len(heads_Q)
    is_cut_Q = np.zeros(num_queries, bool)
    parts = []
    for length in range(1, hops + 1):
        for rows in _query_chunks(adjacency, heads_Q, tails_Q, length):
            queries, nodes = _of_length(adjacency, heads_Q, tails_Q, rows, length, is_cut_Q)
            queries, nodes = _best(adjacency, queries, nodes, limit)
            padding = np.full((len(nodes), hops - length), -1, np.int64)
            parts.append((queries, np.concatenate([nodes, padding], 1), np.full(len(nodes), length, np.int8)))
    queries, nodes, lengths = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    order = np.argsort(queries, kind="stable")  # shorter paths stay first, in the order of `_best`
    if limit is not None:
        order = order[position_in_group(queries[order]) < limit]
    offsets_Q = np.searchsorted(queries[order], np.arange(num_queries + 1))
    return PathArrays(nodes[order], lengths[order], offsets_Q, is_cut_Q)


def _query_chunks(adjacency: Adjacency, heads_Q: np.ndarray, tails_Q: np.ndarray, length: int) -> list[np.ndarray]:
    """The queries, split so that a chunk looks at a bounded number of neighbours; alone if it needs many hops."""
    rows = np.flatnonzero(heads_Q != tails_Q)
    if length == 1 or not len(rows):
        return [rows]
    if length > 2:
        return [rows[i : i + 1] for i in range(len(rows))]
    return np.split(rows, _split_points(adjacency, heads_Q[rows], tails_Q[rows]))


def _split_points(adjacency: Adjacency, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where to split pairs of entities into chunks of about `MAX_AT_ONCE` neighbours, counting for each pair those of
    the entity that has fewer."""
    work = np.minimum(adjacency.degree(a), adjacency.degree(b))
    return np.flatnonzero(np.diff(np.cumsum(work) // MAX_AT_ONCE)) + 1


def _of_length(
    adjacency: Adjacency, heads_Q: np.ndarray, tails_Q: np.ndarray, rows: np.ndarray, length: int, is_cut_Q: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(query, nodes) of all paths of exactly `length` edges for the queries `rows`."""
    if length == 1:
        rows = rows[adjacency.find(heads_Q[rows], tails_Q[rows]) >= 0]
        return rows, np.stack([heads_Q[rows], tails_Q[rows]], 1)
    # Longer paths are extended from the end with fewer neighbours, and reversed at last.
    is_reversed_Q = adjacency.degree(tails_Q) < adjacency.degree(heads_Q)
    starts_Q, ends_Q = np.where(is_reversed_Q, tails_Q, heads_Q), np.where(is_reversed_Q, heads_Q, tails_Q)
    nodes = starts_Q[rows][:, None]
    for _ in range(length - 2):
        partial, neighbours = adjacency.expand(nodes[:, -1])
        is_new = (nodes[partial] != neighbours[:, None]).all(1) & (neighbours != ends_Q[rows[partial]])
        chosen = np.flatnonzero(is_new)
        if len(chosen) > MAX_PARTIAL:
            is_cut_Q[rows] = True
            order = np.argsort(adjacency.degree(neighbours[chosen]), kind="stable")
            chosen = np.sort(chosen[order[:MAX_PARTIAL]])
        partial, neighbours = partial[chosen], neighbours[chosen]
        rows, nodes = rows[partial], np.concatenate([nodes[partial], neighbours[:, None]], 1)
    points = _split_points(adjacency, nodes[:, -1], ends_Q[rows])
    chunks = zip(np.split(rows, points), np.split(nodes, points), strict=True)
    extended = [_last_two_hops(adjacency, ends_Q, *chunk) for chunk in chunks]
    queries, nodes = (np.concatenate(arrays) for arrays in zip(*extended, strict=True))
    return queries, np.where(is_reversed_Q[queries][:, None], nodes[:, ::-1], nodes)


def _last_two_hops(
    adjacency: Adjacency, ends_Q: np.ndarray, rows: np.ndarray, nodes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Extends partial paths by an entity between their last one and the end of the query, and by that end."""
    last, ends = nodes[:, -1], ends_Q[rows]
    from_end = adjacency.degree(ends) < adjacency.degree(last)
    partial, middle = adjacency.expand(np.where(from_end, ends, last))
    other = np.where(from_end, last, ends)[partial]
    is_between = (adjacency.find(other, middle) >= 0) & (middle != ends[partial])
    partial, middle = partial[is_between], middle[is_between]
    is_new = (nodes[partial] != middle[:, None]).all(1)
    partial, middle = partial[is_new], middle[is_new]
    return rows[partial], np.concatenate([nodes[partial], middle[:, None], ends[partial][:, None]], 1)


def _best(
    adjacency: Adjacency, queries: np.ndarray, nodes: np.ndarray, limit: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Sorts paths of one length by query and rank, and keeps `limit` for each query."""
    inner = nodes[:, 1:-1]
    cost = np.log1p(adjacency.degree(inner.ravel())).reshape(inner.shape).sum(1)
    order = np.lexsort((*inner.T[::-1], cost, queries))
    if limit is not None:
        order = order[position_in_group(queries[order]) < limit]
    return queries[order], nodes[order]


def position_in_group(ordered: np.ndarray) -> np.ndarray:
    """The position of each element among equal ones in a sorted array: 0, 1, 0, 1, 2 for 4, 4, 7, 7, 7."""
    _, starts, sizes = np.unique(ordered, return_index=True, return_counts=True)
    return np.arange(len(ordered)) - np.repeat(starts, sizes)


def expand(offsets: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(row, index) for every entry of the `chosen` groups, which start at `offsets`; rows count the chosen groups."""
    return expand_ranges(offsets[chosen], offsets[chosen + 1])


def expand_ranges(starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(row, index) for every index of the ranges from `starts` to `ends` (exclusive), one range per row."""
    sizes = ends - starts
    rows = np.repeat(np.arange(len(sizes)), sizes)
    return rows, np.arange(len(rows)) + (starts - (np.cumsum(sizes) - sizes))[rows]
