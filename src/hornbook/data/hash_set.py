"""The set of hashes that a corpus build has seen, in bounded memory: what does not fit is kept in files, sorted."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

MAX_IN_MEMORY = 8_000_000  # hashes of a run in memory: 64 MB
MERGED_AT_ONCE = 1 << 20  # hashes of each run that are merged at once


class SeenHashes:
    """A set of 64-bit hashes with 8 bytes per hash: sorted runs, where adjacent runs of similar length are merged.

    With a `folder`, runs of more than 8 million hashes are memory maps of files in it, which vanish with the process:
    the system keeps of them what fits into memory. Among 10 million documents, the probability that any two different
    ones share a hash is 3 in a million.
    """

    def __init__(self, folder: Path | None = None):
        self.folder = folder
        self._runs: list[np.ndarray] = []

    def __len__(self) -> int:
        return sum(len(run) for run in self._runs)

    def add(self, hashes: np.ndarray) -> np.ndarray:
        """Adds the hashes; returns True for each hash that was neither in the set nor occurs earlier in `hashes`."""
        distinct, first = np.unique(hashes, return_index=True)
        unknown = np.ones(len(distinct), bool)
        for run in self._runs:
            candidates = np.flatnonzero(unknown)
            unknown[candidates] = ~contains_sorted(run, distinct[candidates])
        is_new = np.zeros(len(hashes), bool)
        is_new[first[unknown]] = True
        if unknown.any():
            self._runs.append(distinct[unknown])
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            last = self._runs.pop()
            self._runs[-1] = self._merged(self._runs[-1], last)
        return is_new

    def _merged(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if self.folder is None or len(a) + len(b) <= MAX_IN_MEMORY:
            return _sorted_union(a, b)
        with tempfile.TemporaryFile(dir=self.folder) as file:  # without a name; it exists as long as it is mapped
            for part in _merge(_parts(a), _parts(b)):
                file.write(part.data)
            file.flush()
            return np.asarray(np.memmap(file, np.uint64, "r"))


def contains_sorted(ordered: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Whether each value is in a sorted array.

    >>> contains_sorted(np.array([2, 4, 7]), np.array([1, 4, 9])).tolist()
    [False, True, False]
    """
    return find_sorted(ordered, values) >= 0


def find_sorted(ordered: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The index of each value in a sorted array, -1 where it is not there.

    >>> find_sorted(np.array([2, 4, 7]), np.array([1, 4, 9])).tolist()
    [-1, 1, -1]
    """
    if not len(ordered):
        return np.full(np.shape(values), -1)
    indices = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    return np.where(ordered[indices] == values, indices, -1)


def _sorted_union(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    merged = np.concatenate([a, b])
    merged.sort(kind="stable")
    return merged


def _parts(run: np.ndarray) -> Iterator[np.ndarray]:
    return (run[start : start + MERGED_AT_ONCE] for start in range(0, len(run), MERGED_AT_ONCE))


def _merge(a_parts: Iterator[np.ndarray], b_parts: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    """The parts of the sorted union of two sorted runs."""
    empty = np.empty(0, np.uint64)
    a, b = next(a_parts, empty), next(b_parts, empty)
    while len(a) and len(b):
        least = min(a[-1], b[-1])
        num_a, num_b = np.searchsorted(a, least, side="right"), np.searchsorted(b, least, side="right")
        yield _sorted_union(a[:num_a], b[:num_b])
        a, b = a[num_a:], b[num_b:]
        a = a if len(a) else next(a_parts, empty)
        b = b if len(b) else next(b_parts, empty)
    for rest, more in ((a, a_parts), (b, b_parts)):
        if len(rest):
            yield rest
            yield from more
