"""Batches of numbered corpora, taken apart again."""

import numpy as np
from numbered import FIRST, is_word_start

from hornbook.batch import Batch
from hornbook.data.sequences import SequenceSampler


def sequences(batch: Batch) -> list[np.ndarray]:
    return np.split(batch.ids_T.numpy(), batch.offsets_host[1:-1])


def two_segments(batch: Batch, sampler: SequenceSampler) -> list[tuple[np.ndarray, np.ndarray, int]]:
    """(A, B, label) of each pair, after checking the special tokens, segments and positions around them."""
    found = []
    streams = (batch.ids_T, batch.segments_T, batch.positions_T, batch.word_starts_T)
    parts = zip(*(np.split(each.numpy(), batch.offsets_host[1:-1]) for each in streams), strict=True)
    for i, (ids, segments, positions, word_starts) in enumerate(parts):
        special = np.flatnonzero(ids < FIRST)
        first_sep = special[1]
        assert special.tolist() == [0, first_sep, len(ids) - 1]
        assert ids[special].tolist() == [sampler.cls_id, sampler.sep_id, sampler.sep_id]
        assert np.array_equal(segments, np.arange(len(ids)) > first_sep)
        assert np.array_equal(positions, np.arange(len(ids)))
        assert np.array_equal(word_starts, np.where(ids < FIRST, True, is_word_start(ids)))
        found.append((ids[1:first_sep], ids[first_sep + 1 : -1], int(batch.labels_N[i])))
    return found


def same(a: Batch, b: Batch) -> bool:
    names = ("ids_T", "positions_T", "segments_T", "word_starts_T", "offsets", "labels_N", "labels_T")
    both = [(getattr(a, name), getattr(b, name)) for name in names]
    equal = all(x.equal(y) if x is not None else y is None for x, y in both)
    return equal and np.array_equal(a.offsets_host, b.offsets_host) and a.max_length == b.max_length


def chunk_numbers(sampler: SequenceSampler, tokens: np.ndarray, which: int = 0, first: int = FIRST) -> np.ndarray:
    """The chunk that contains each token of a numbered corpus, or -1."""
    chunks, corpus = sampler.chunks[which], sampler.corpora[which]
    base = first + np.concatenate([[0], np.cumsum([len(shard.tokens) for shard in corpus.shards])])
    starts = np.concatenate([base[i] + s for i, s in enumerate(chunks.starts)])
    stops = np.concatenate([base[i] + s for i, s in enumerate(chunks.stops)])
    at = np.searchsorted(starts, tokens, side="right") - 1
    return np.where((at >= 0) & (tokens < stops[at]), at, -1)
