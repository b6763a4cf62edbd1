"""Where training examples start: each shard is cut into chunks at sentence boundaries, once for each length.

Three rules: `reach`, a chunk ends with the sentence that reaches the wanted length (a pair for next-sentence prediction
is cut to size later, as BERT published it); `even`, a document falls into chunks as equal as its sentences let them be,
and would be cut at the same places if it were read backwards (under `reach` the last sentence of a chunk is longer than
the others, because long ones are likelier to reach the length, and so the order of two segments shows in their
lengths); `fit`, a chunk holds the sentences that fit, and may run over the end of a document (as in RoBERTa). A
sentence that alone is far longer than the wanted length is cut, so no text is lost.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from hornbook.data.corpus import Corpus, find
from hornbook.data.shards import Shard
from hornbook.files import replacing

Rule = Literal["reach", "even", "fit"]
VERSION = 2  # of these rules: counted up when the same corpus would be cut otherwise, so that old files are not read
DOCUMENTS_A_RUN = 256  # what `fit` packs end to end before it starts anew: less than 0.2% stays part-filled
OVERFULL = 0.25  # of the length: what an `even` document may have beyond its last whole chunk without one more


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
    """The chunks of about `length` tokens of a corpus' training documents, or of those held out.

    They are kept in the corpus folder (a large corpus takes minutes to cut), under a name that says how they were cut.
    """
    part = "held-out" if held_out else "train"
    name = f"{rule}-{length}-{part}-{corpus.held_out_fraction!r}-v{VERSION}-{corpus.fingerprint[:12]}.npz"
    kept = corpus.folder / "chunks" / name
    pairs = _kept(kept, corpus)
    if pairs is None:
        pairs = [_cut_shard(corpus, i, length, rule, held_out) for i in range(len(corpus.shards))]
        _keep(kept, *zip(*pairs, strict=True))
    starts, stops = map(list, zip(*pairs, strict=True))
    return Chunks(starts, stops, np.concatenate([[0], np.cumsum([len(s) for s in starts])]).astype(np.int64))


def _kept(path: Path, corpus: Corpus) -> list[tuple[np.ndarray, np.ndarray]] | None:
    """(starts, stops) of each shard from an earlier cut; None where there is none, or what is there is damaged."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            pairs = [(arrays[f"starts_{i}"], arrays[f"stops_{i}"]) for i in range(len(corpus.shards))]
    except Exception:  # damage to an archive shows in a dozen kinds of errors, and this one is only a cache
        return None
    fits = all(_are_chunks(*pair, len(shard.tokens)) for pair, shard in zip(pairs, corpus.shards, strict=True))
    return pairs if fits else None


def _are_chunks(starts: np.ndarray, stops: np.ndarray, num_tokens: int) -> bool:
    if starts.dtype != np.uint32 or stops.dtype != np.uint32 or starts.ndim != 1 or starts.shape != stops.shape:
        return False
    is_sorted = (starts[1:] >= starts[:-1]).all() and (stops > starts).all()
    return bool(is_sorted) and (not len(stops) or int(stops.max()) <= num_tokens)


def _keep(path: Path, starts: Sequence[np.ndarray], stops: Sequence[np.ndarray]) -> None:
    arrays = {f"starts_{i}": s for i, s in enumerate(starts)} | {f"stops_{i}": s for i, s in enumerate(stops)}
    try:
        with replacing(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, **arrays)
    except OSError:
        return  # a corpus on a read-only disk is cut again each time


def _cut_shard(corpus: Corpus, number: int, length: int, rule: Rule, held_out: bool) -> tuple[np.ndarray, np.ndarray]:
    shard = corpus.shards[number]
    num_documents = len(shard.documents) - 1
    first = int(corpus.first_document[number])
    wanted = corpus.is_held_out(np.arange(first, first + num_documents)) == held_out
    sentences = np.asarray(shard.sentences, np.int64)
    documents = np.asarray(shard.documents, np.int64)
    runs = _runs(wanted, documents, DOCUMENTS_A_RUN if rule == "fit" else 1)
    return _even(sentences, runs, length) if rule == "even" else _follow(sentences, documents, runs, length, rule)


def _runs(wanted: np.ndarray, documents: np.ndarray, most: int) -> np.ndarray:
    """(first sentence, last sentence) of stretches of wanted documents, at most so many documents each."""
    numbers = np.flatnonzero(wanted)
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
    """Walks all runs at once, a chunk a turn. Chunks come out sorted by where they start."""
    # A separator stands between documents that share a chunk, so `fit` measures in tokens + documents begun: at a
    # document's first sentence, a chunk that starts there has begun it, one that stops there has not.
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
        if rule == "reach":
            end = np.minimum(np.searchsorted(sentences, at + length, side="left"), limit)
            stop = sentences[end]
            too_long = stop - at > 2 * length
        else:
            sentence = np.searchsorted(sentences, at, side="right") - 1
            base = as_start[sentence] + (at - sentences[sentence])  # we stand in mid-sentence after a cut
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
    # Places within a shard fit 32 bits, and a corpus of 50 GB has 100 million chunks.
    return all_starts[order].astype(np.uint32), all_stops[order].astype(np.uint32)


def _even(sentences: np.ndarray, runs: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Each run in equal parts, moved to the nearest sentence boundary unless that is half a part away or more."""
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
    """The number within the shard of the document that holds a token."""
    return find(shard.documents, find(shard.sentences, token, "right") - 1, "right") - 1
