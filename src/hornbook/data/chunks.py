"""Splits each shard into chunks at sentence boundaries, once per length; a training example starts at each chunk.

Three rules:

- `at_least`: a chunk ends with the sentence that reaches the target length. A pair for next-sentence prediction is
  truncated later, as in the published BERT code.
- `balanced`: a document is split into chunks as equal as its sentences allow, at the same places if it were read
  backwards. (Under `at_least` the last sentence of a chunk is longer than the others on average, because long sentences
  are more likely to reach the length; the lengths of two segments would then reveal their order.)
- `at_most`: a chunk holds the sentences that fit, and may cross document boundaries, as in RoBERTa.

A sentence that alone is far longer than the target length is split, so no text is lost.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from hornbook.data.corpus import Corpus, find
from hornbook.data.shards import Shard, load_arrays
from hornbook.files import replacing

Rule = Literal["at_least", "balanced", "at_most"]
VERSION = 2  # of these rules; a new version makes cached chunks of older rules unused
DOCUMENTS_PER_RUN = 256  # documents that `at_most` concatenates before a new chunk starts: under 0.2% is part-filled
OVERFULL = 0.25  # share of the length by which a document may exceed n `balanced` chunks before it is split into n + 1


@dataclass(frozen=True)
class Chunks:
    """The chunks of a corpus: chunk i is in the shard whose range holds i, tokens `starts[i]` to `stops[i]` there."""

    starts: list[np.ndarray]
    stops: list[np.ndarray]
    first: np.ndarray  # number of the first chunk of each shard, and the total

    @property
    def total(self) -> int:
        return int(self.first[-1])

    def locate(self, chunk: int) -> tuple[int, int, int]:
        """(shard, token start, token stop) of one chunk."""
        shard = find(self.first, chunk, "right") - 1
        within = chunk - int(self.first[shard])
        return shard, int(self.starts[shard][within]), int(self.stops[shard][within])


def cut(corpus: Corpus, length: int, rule: Rule, held_out: bool) -> Chunks:
    """The chunks of about `length` tokens of a corpus's training documents, or of its held-out documents.

    They are cached in the corpus folder, because splitting a large corpus takes minutes. The file name encodes the
    rule, the length, the split and the version.
    """
    split = "held-out" if held_out else "train"
    name = f"{rule}-{length}-{split}-{corpus.held_out_fraction!r}-v{VERSION}-{corpus.fingerprint[:12]}.npz"
    file = corpus.folder / "chunks" / name
    pairs = _read_cached(file, len(corpus.shards))
    if pairs is None:
        pairs = [_cut_shard(corpus, i, length, rule, held_out) for i in range(len(corpus.shards))]
        _write_cache(file, *zip(*pairs, strict=True))
    starts, stops = map(list, zip(*pairs, strict=True))
    return Chunks(starts, stops, np.concatenate([[0], np.cumsum([len(s) for s in starts])]).astype(np.int64))


def _read_cached(path: Path, num_shards: int) -> list[tuple[np.ndarray, np.ndarray]] | None:
    """(starts, stops) of each shard from the cache; None if there is no such file or it is damaged."""
    try:
        arrays = load_arrays(path)
        return [(arrays[f"starts_{i}"], arrays[f"stops_{i}"]) for i in range(num_shards)]
    except (ValueError, KeyError):
        return None


def _write_cache(path: Path, starts: Sequence[np.ndarray], stops: Sequence[np.ndarray]) -> None:
    arrays = {f"starts_{i}": s for i, s in enumerate(starts)} | {f"stops_{i}": s for i, s in enumerate(stops)}
    # On a read-only disk the chunks are computed each time.
    with contextlib.suppress(OSError), replacing(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **arrays)


def _cut_shard(corpus: Corpus, number: int, length: int, rule: Rule, held_out: bool) -> tuple[np.ndarray, np.ndarray]:
    shard = corpus.shards[number]
    selected = corpus.held_out_in(number) == held_out
    sentences = np.asarray(shard.sentences, np.int64)
    documents = np.asarray(shard.documents, np.int64)
    runs = _runs(selected, documents, DOCUMENTS_PER_RUN if rule == "at_most" else 1)
    if rule == "balanced":
        return _balanced(sentences, runs, length)
    return _follow(sentences, documents, runs, length, rule)


def _runs(selected: np.ndarray, documents: np.ndarray, most: int) -> np.ndarray:
    """(first sentence, end of sentences) of each run of at most `most` consecutive selected documents."""
    numbers = np.flatnonzero(selected)
    if not len(numbers):
        return np.zeros((0, 2), np.int64)
    stretch = np.concatenate([[0], np.cumsum(np.diff(numbers) != 1)])
    within = np.arange(len(numbers)) - np.flatnonzero(np.diff(stretch, prepend=-1))[stretch]
    breaks = np.flatnonzero((np.diff(stretch, prepend=-1) != 0) | (within % most == 0))
    firsts = numbers[breaks]
    lasts = numbers[np.concatenate([breaks[1:] - 1, [len(numbers) - 1]])] + 1
    return np.stack([documents[firsts], documents[lasts]], axis=1)


def _follow(
    sentences: np.ndarray, documents: np.ndarray, runs: np.ndarray, length: int, rule: Rule
) -> tuple[np.ndarray, np.ndarray]:
    """Splits all runs in parallel, one chunk per iteration. Returns (starts, stops), sorted by start."""
    # Documents that share a chunk are separated by one token, so `at_most` measures tokens + documents started: a chunk
    # that starts at the first sentence of a document includes that document, one that stops there does not.
    numbers = np.arange(len(sentences))
    as_start = sentences + np.searchsorted(documents, numbers, side="right")
    as_stop = sentences + np.searchsorted(documents, numbers, side="left")
    here = sentences[runs[:, 0]]
    run_stop_sentence = runs[:, 1]
    starts, stops = [], []
    active = np.flatnonzero(here < sentences[run_stop_sentence])
    while len(active):
        at = here[active]
        limit = run_stop_sentence[active]
        if rule == "at_least":
            end = np.minimum(np.searchsorted(sentences, at + length, side="left"), limit)
            stop = sentences[end]
            too_long = stop - at > 2 * length
        else:
            sentence = np.searchsorted(sentences, at, side="right") - 1
            base = as_start[sentence] + (at - sentences[sentence])  # after a split, `at` is inside a sentence
            end = np.minimum(np.searchsorted(as_stop, base + length, side="right") - 1, limit)
            stop = sentences[end]
            too_long = stop <= at
        stop = np.where(too_long, np.minimum(at + length, sentences[limit]), stop)
        starts.append(at)
        stops.append(stop)
        here[active] = stop
        active = active[stop < sentences[limit]]
    if not starts:
        return np.zeros(0, np.uint32), np.zeros(0, np.uint32)
    all_starts, all_stops = np.concatenate(starts), np.concatenate(stops)
    order = np.argsort(all_starts, kind="stable")
    # Positions within a shard fit in 32 bits, and a corpus of 50 GB has 100 million chunks.
    return all_starts[order].astype(np.uint32), all_stops[order].astype(np.uint32)


def _balanced(sentences: np.ndarray, runs: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Splits each run into equal parts, moved to the nearest sentence boundary if it is less than half a part away."""
    begins, ends = sentences[runs[:, 0]], sentences[runs[:, 1]]
    num_parts = np.maximum(1, np.ceil((ends - begins) / length - OVERFULL)).astype(np.int64)
    of_run = np.repeat(np.arange(len(runs)), num_parts)
    part = np.arange(len(of_run)) - np.repeat(np.cumsum(num_parts) - num_parts, num_parts)
    begin, size, num_parts = begins[of_run], (ends - begins)[of_run], num_parts[of_run]
    # A part starts at a fraction of the run, so distances are counted in whole numbers of 1 / num_parts tokens.
    ideal = part * size
    after = np.searchsorted(sentences, begin - (-ideal // num_parts)).clip(1)
    to_before = ideal - (sentences[after - 1] - begin) * num_parts
    to_after = (sentences[after] - begin) * num_parts - ideal
    nearest = sentences[np.where(to_before < to_after, after - 1, after)]
    is_near = 2 * np.minimum(to_before, to_after) < size
    starts = np.where(part == 0, begin, np.where(is_near, nearest, begin + ideal // num_parts))
    stops = np.where(part == num_parts - 1, begin + size, np.append(starts[1:], 0))
    holds_text = stops > starts
    return starts[holds_text].astype(np.uint32), stops[holds_text].astype(np.uint32)


def document_of(shard: Shard, token: int) -> int:
    """The index, within the shard, of the document that contains a token."""
    return find(shard.documents, find(shard.sentences, token, "right") - 1, "right") - 1
