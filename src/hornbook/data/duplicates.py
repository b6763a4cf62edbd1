"""Finds duplicate documents, near duplicates and frequently repeated lines in bounded memory.

Near duplicates are found by MinHash (Broder 1997): documents are compared as sets of sequences of 5 words. Of 112
random orders of all sequences, the first one in each set is kept, which two documents share with the probability of
their Jaccard similarity; documents that agree in all 8 of one of 14 bands are near duplicates. Of pairs with 90% of
their sequences in common more than 99.9% are found, with 80% 92%, with 50% 5%.
"""

import hashlib
import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from hornbook.data.hash_set import contains_sorted

LINE_CHARACTERS = 20
SAMPLED_LINES = 1 << 17
FREQUENT_LINES = 1 << 16
REPORTED_LINES = 20
SHOWN_CHARACTERS = 200
SHINGLE_WORDS, NUM_BANDS, BAND_ROWS = 5, 14, 8
SHINGLES_AT_ONCE = 4096
WORD = re.compile(r"\w+")
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio
_orders = np.random.default_rng(1997).integers(0, 2**64, (2, NUM_BANDS * BAND_ROWS), np.uint64)


def hash_text(text: str) -> int:
    """A 64-bit hash that ignores differences in white space and in the form of accents and Hangul (NFC or NFD), and is
    the same in every process."""
    return hash_words(text.split())


def hash_words(words: list[str]) -> int:
    return _hash(unicodedata.normalize("NFC", " ".join(words)))


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


_word_hash = lru_cache(1 << 18)(_hash)


def _compared_words(text: str) -> list[str]:
    return WORD.findall(unicodedata.normalize("NFC", text).lower())


def sequence_hashes(text: str, num_words: int) -> np.ndarray:
    """A 64-bit hash of each sequence of `num_words` words, ignoring case and punctuation; the same in every process.

    >>> sequence_hashes("One two, three", 2).tolist() == sequence_hashes("one TWO three!", 2).tolist()
    True
    """
    words = np.array([_word_hash(word) for word in _compared_words(text)], np.uint64)
    num_sequences = max(0, len(words) - num_words + 1)
    hashes = np.zeros(num_sequences, np.uint64)
    for i in range(num_words):
        hashes = hashes * GOLDEN + words[i : i + num_sequences]
    return hashes


def min_hashes(text: str) -> np.ndarray:
    """For each of 112 random orders, the first of the text's sequences of 5 words: uint64. The fraction of equal
    entries of two texts estimates their Jaccard similarity."""
    shingles = sequence_hashes(text, SHINGLE_WORDS)
    if not len(shingles):
        shingles = np.array([hash_words(_compared_words(text) or text.split())], np.uint64)
    minima = np.full(_orders.shape[1], np.uint64(2**64 - 1))
    for start in range(0, len(shingles), SHINGLES_AT_ONCE):
        hashes = shingles[start : start + SHINGLES_AT_ONCE, None] * (_orders[0] | np.uint64(1)) + _orders[1]
        minima = np.minimum(minima, hashes.min(0))
    return minima


def band_hashes(text: str) -> np.ndarray:
    """A hash of each of the 14 bands of a text: uint64. Near duplicates have one in common."""
    bands = min_hashes(text).reshape(NUM_BANDS, BAND_ROWS)
    hashes = np.arange(NUM_BANDS, dtype=np.uint64)
    for row in bands.T:
        hashes = (hashes ^ row) * GOLDEN
        hashes ^= hashes >> np.uint64(29)
    return hashes


def counted_lines(text: str) -> list[str]:
    """The lines of a document that the report on repeated lines counts: those of 20 characters or more."""
    return [line for line in text.split("\n") if len(line) >= LINE_CHARACTERS]


def hash_lines(lines: list[str]) -> np.ndarray:
    digests = b"".join(hashlib.blake2b(line.strip().encode(), digest_size=8).digest() for line in lines)
    return np.frombuffer(digests, np.uint64)


class RepeatedLines:
    """The fraction of repeated lines and the most repeated lines, in 3 MB of memory for any corpus.

    The fraction is computed from a sample of the distinct lines with their exact counts: those whose hash is below a
    threshold, which is halved whenever the sample exceeds its capacity. Up to 131,072 distinct lines it is exact.
    The most frequent lines come from a Misra-Gries summary: of N lines, a count is too low by at most N / 65,536.
    """

    def __init__(self, arrays: dict[str, np.ndarray] | None = None, texts: dict[int, str] | None = None):
        empty = {"hashes": np.empty(0, np.uint64), "counts": np.empty(0, np.int64)}
        arrays = arrays or {f"{part}_{name}": array for part in ("sample", "frequent") for name, array in empty.items()}
        self._sample = arrays["sample_hashes"], arrays["sample_counts"]
        self._frequent = arrays["frequent_hashes"], arrays["frequent_counts"]
        self._halvings, self._lines, self._underestimate = map(int, arrays.get("scalars", (0, 0, 0)))
        self._texts = dict(texts or {})

    def add(self, hashes: np.ndarray, text_of: Callable[[int], str]) -> None:
        """Counts lines by their hashes; `text_of(i)` returns the text of line i and is called for few lines."""
        if not len(hashes):
            return
        self._lines += len(hashes)
        distinct, first, counts = np.unique(hashes, return_index=True, return_counts=True)
        self._sample = _merged(self._sample, self._sampled(distinct, counts))
        while len(self._sample[0]) > SAMPLED_LINES:
            self._halvings += 1
            self._sample = self._sampled(*self._sample)
        self._frequent = _merged(self._frequent, (distinct, counts))
        self._shrink()
        # A line enters the top list only when it is counted, so its text is available then.
        top = self._top()
        self._texts = {line: self._texts[line] for line, _ in top if line in self._texts}
        for line, _ in top:
            if line not in self._texts:
                index = np.searchsorted(distinct, np.uint64(line))
                self._texts[line] = text_of(int(first[index])).strip()[:SHOWN_CHARACTERS]

    def report(self) -> dict:
        counts = self._sample[1]
        sampled = int(counts.sum())
        return {
            "lines": self._lines,
            "line_characters_at_least": LINE_CHARACTERS,
            "repeated_share": round(float((counts - 1).sum() / sampled), 6) if sampled else 0.0,
            "exact": self._halvings == 0,
            "counts_too_low_by_at_most": self._underestimate,
            "most_repeated": [{"line": self._texts[line], "count": count} for line, count in self._top()],
        }

    def arrays(self) -> dict[str, np.ndarray]:
        return {
            "sample_hashes": self._sample[0],
            "sample_counts": self._sample[1],
            "frequent_hashes": self._frequent[0],
            "frequent_counts": self._frequent[1],
            "scalars": np.array([self._halvings, self._lines, self._underestimate], np.int64),
        }

    def texts(self) -> dict[int, str]:
        return self._texts

    def _sampled(self, hashes: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The entries whose hash is below the threshold."""
        is_below = hashes <= np.uint64((1 << (64 - self._halvings)) - 1)
        return hashes[is_below], counts[is_below]

    def _shrink(self) -> None:
        hashes, counts = self._frequent
        if len(hashes) > FREQUENT_LINES:
            subtracted = int(np.partition(counts, -FREQUENT_LINES - 1)[-FREQUENT_LINES - 1])
            is_kept = counts > subtracted
            self._frequent = hashes[is_kept], counts[is_kept] - subtracted
            self._underestimate += subtracted

    def _top(self) -> list[tuple[int, int]]:
        hashes, counts = self._frequent
        repeated = np.flatnonzero(counts > 1)
        if len(repeated) > REPORTED_LINES:
            least = np.partition(counts[repeated], -REPORTED_LINES)[-REPORTED_LINES]
            repeated = repeated[counts[repeated] >= least]
        order = np.lexsort((hashes[repeated], -counts[repeated]))[:REPORTED_LINES]
        return [(int(hashes[i]), int(counts[i])) for i in repeated[order]]


def _merged(old: tuple[np.ndarray, np.ndarray], new: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The sum of two tables of sorted hashes and counts."""
    (hashes, counts), (new_hashes, new_counts) = old, new
    indices, is_known = np.searchsorted(hashes, new_hashes), contains_sorted(hashes, new_hashes)
    counts = counts.copy()
    counts[indices[is_known]] += new_counts[is_known]
    at, is_new = indices[~is_known], ~is_known
    return np.insert(hashes, at, new_hashes[is_new]), np.insert(counts, at, new_counts[is_new])
