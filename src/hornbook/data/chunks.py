"""Splits each shard into chunks at sentence boundaries, once per length; a training example starts at each chunk.

Three rules:

- `at_least`: a chunk ends with the sentence that reaches the target length. A pair for next-sentence prediction is
  truncated later, as in the published BERT code.
- `balanced`: a document is split into chunks as equal as its sentences allow, at the same places if it were read
  backwards. (Under `at_least` the last sentence of a chunk is longer than the others on average, because long sentences
  are more likely to reach the length; the lengths of two segments would then reveal their order.)
- `at_most`: a chunk holds the sentences that fit, and may cross document boundaries, as in RoBERTa.

A sentence that alone is far longer than the target length is split, so no text is lost.

Left-to-right models read the documents as one token stream (`DocumentStream`), with an end-of-text token before each:

    <end> the first document <end> the second <end> ...

They predict the next token of every token; after the last token of a document it is the end of text. A document starts
after an end-of-text token, so the model can generate a text without a prompt. The stream is not stored: the position of
a document in the stream of its shard follows from the lengths of the documents before it.
"""

import contextlib
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from hornbook.data.corpus import Corpus
from hornbook.data.shards import find, load_arrays, write_arrays

Rule = Literal["at_least", "balanced", "at_most"]
VERSION = 2  # of these rules; a new version makes cached chunks of older rules unused
MAX_DOCUMENTS = 256  # that `at_most` concatenates before a new chunk starts: under 0.2% of the chunks is part-filled
OVERFULL = 0.25  # a document is split into n + 1 `balanced` chunks if it exceeds n by more than this fraction of one


@dataclass(frozen=True)
class Chunks:
    """The chunks of a corpus: chunk i is in the shard whose range holds i, tokens `starts[i]` to `stops[i]` there."""

    starts: list[np.ndarray]
    stops: list[np.ndarray]
    first: np.ndarray  # index of the first chunk of each shard, and the total

    @property
    def total(self) -> int:
        return int(self.first[-1])

    def locate(self, chunk: int) -> tuple[int, int, int]:
        """(shard, token start, token stop) of one chunk."""
        shard = find(self.first, chunk, "right") - 1
        within = chunk - int(self.first[shard])
        return shard, int(self.starts[shard][within]), int(self.stops[shard][within])


def cut_into_chunks(corpus: Corpus, length: int, rule: Rule, held_out: bool) -> Chunks:
    """The chunks of about `length` tokens of a corpus's training documents, or of its held-out documents.

    They are cached in the corpus folder, because splitting a large corpus takes minutes. The file name encodes the
    rule, the length, the split and the version.
    """
    split = "held-out" if held_out else "train"
    name = f"{rule}-{length}-{split}-{corpus.held_out_fraction!r}-v{VERSION}-{corpus.fingerprint[:12]}.npz"
    file = corpus.folder / "chunks" / name
    num_shards = len(corpus.shards)
    arrays: dict[str, np.ndarray] = {}
    with contextlib.suppress(ValueError):  # it does not exist, or is damaged
        arrays = load_arrays(file)
    if len(arrays) != 2 * num_shards:
        arrays = {}
        for i in range(num_shards):
            arrays[f"starts_{i}"], arrays[f"stops_{i}"] = _cut_shard(corpus, i, length, rule, held_out)
        with contextlib.suppress(OSError):  # on a read-only disk the chunks are computed each time
            write_arrays(file, arrays)
    starts, stops = ([arrays[f"{side}_{i}"] for i in range(num_shards)] for side in ("starts", "stops"))
    return Chunks(starts, stops, np.concatenate([[0], np.cumsum([len(s) for s in starts])]).astype(np.int64))


def _cut_shard(corpus: Corpus, index: int, length: int, rule: Rule, held_out: bool) -> tuple[np.ndarray, np.ndarray]:
    shard = corpus.shards[index]
    selected = corpus.held_out_in(index) == held_out
    sentences = np.asarray(shard.sentences, np.int64)
    documents = np.asarray(shard.documents, np.int64)
    stretches = _stretches(selected, documents, MAX_DOCUMENTS if rule == "at_most" else 1)
    if rule == "balanced":
        return _balanced(sentences, stretches, length)
    return _cut_sequentially(sentences, documents, stretches, length, rule)


def _stretches(selected: np.ndarray, documents: np.ndarray, max_documents: int) -> np.ndarray:
    """(first sentence, end of sentences) of each stretch of at most `max_documents` consecutive selected documents."""
    indices = np.flatnonzero(selected)
    if not len(indices):
        return np.zeros((0, 2), np.int64)
    is_after_gap = np.diff(indices, prepend=-2) != 1
    after_gap = np.flatnonzero(is_after_gap)
    since_gap = np.arange(len(indices)) - after_gap[np.cumsum(is_after_gap) - 1]
    begins = np.flatnonzero(since_gap % max_documents == 0)
    firsts, lasts = indices[begins], indices[np.append(begins[1:], len(indices)) - 1]
    return np.stack([documents[firsts], documents[lasts + 1]], axis=1)


def _cut_sequentially(
    sentences: np.ndarray, documents: np.ndarray, stretches: np.ndarray, length: int, rule: Rule
) -> tuple[np.ndarray, np.ndarray]:
    """Splits all stretches in parallel, one chunk per iteration. Returns (starts, stops), sorted by start."""
    # Documents that share a chunk are separated by one token, so `at_most` measures tokens + documents started: a chunk
    # that starts at the first sentence of a document includes that document, one that stops there does not.
    indices = np.arange(len(sentences))
    as_start = sentences + np.searchsorted(documents, indices, side="right")
    as_stop = sentences + np.searchsorted(documents, indices, side="left")
    start, last_sentence = sentences[stretches[:, 0]], stretches[:, 1]  # of the stretches that have text left
    starts, stops = [], []
    has_text = start < sentences[last_sentence]
    while has_text.any():
        start, last_sentence = start[has_text], last_sentence[has_text]
        if rule == "at_least":
            end = np.searchsorted(sentences, start + length, side="left")
            stop = sentences[np.minimum(end, last_sentence)]
            is_too_long = stop - start > 2 * length
        else:
            sentence = np.searchsorted(sentences, start, side="right") - 1
            base = as_start[sentence] + (start - sentences[sentence])  # after a split, it starts inside a sentence
            end = np.searchsorted(as_stop, base + length, side="right") - 1
            stop = sentences[np.minimum(end, last_sentence)]
            is_too_long = stop <= start
        stop = np.where(is_too_long, np.minimum(start + length, sentences[last_sentence]), stop)
        starts.append(start)
        stops.append(stop)
        start, has_text = stop, stop < sentences[last_sentence]
    if not starts:
        return np.zeros(0, np.uint32), np.zeros(0, np.uint32)
    all_starts, all_stops = np.concatenate(starts), np.concatenate(stops)
    order = np.argsort(all_starts, kind="stable")
    # Positions within a shard fit in 32 bits, and a corpus of 50 GB has 100 million chunks.
    return all_starts[order].astype(np.uint32), all_stops[order].astype(np.uint32)


def _balanced(sentences: np.ndarray, stretches: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Splits each stretch into equal parts, moved to the nearest sentence boundary if that is less than half a part
    away."""
    begins, ends = sentences[stretches[:, 0]], sentences[stretches[:, 1]]
    num_parts = np.maximum(1, np.ceil((ends - begins) / length - OVERFULL)).astype(np.int64)
    of_stretch = np.repeat(np.arange(len(stretches)), num_parts)
    part = np.arange(len(of_stretch)) - np.repeat(np.cumsum(num_parts) - num_parts, num_parts)
    begin, size, num_parts = begins[of_stretch], (ends - begins)[of_stretch], num_parts[of_stretch]
    # A part starts at a fraction of the stretch, so distances are counted in whole numbers of 1 / num_parts tokens.
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


class DocumentSlice(NamedTuple):
    """Tokens of one document, or of several concatenated ones, the next token of each, and whether a word starts."""

    ids: np.ndarray
    next_ids: np.ndarray
    word_starts: np.ndarray


class DocumentStream:
    """The chunks of `length` tokens of a corpus's training documents, or of its held-out documents. The last chunk of a
    shard may be shorter."""

    def __init__(self, corpus: Corpus, length: int, held_out: bool, eos_id: int):
        self.corpus, self.length, self.eos_id = corpus, length, eos_id
        self.documents: list[np.ndarray] = []  # per shard: indices of the selected documents
        self.document_offsets: list[np.ndarray] = []  # per shard: start of each document in the stream, and the end
        for i, shard in enumerate(corpus.shards):
            lengths = shard.document_lengths()
            documents = np.flatnonzero((corpus.held_out_in(i) == held_out) & (lengths > 0))
            self.documents.append(documents)
            self.document_offsets.append(np.concatenate([[0], np.cumsum(lengths[documents] + 1)]))
        num_chunks = [-(-int(document_offsets[-1]) // length) for document_offsets in self.document_offsets]
        self.first = np.concatenate([[0], np.cumsum(num_chunks)]).astype(np.int64)
        self.total = sum(num_chunks)  # number of chunks

    def slices(self, chunk: int, offset: int = 0) -> list[DocumentSlice]:
        """The slice of each document in a chunk, in order. With an `offset` below the length, all chunks start
        `offset` tokens earlier: the first of a shard is shorter, and the end of the last may be lost."""
        shard_index = find(self.first, chunk, "right") - 1
        document_offsets = self.document_offsets[shard_index]
        unclipped = (chunk - int(self.first[shard_index])) * self.length - offset
        stream_start, stream_end = max(unclipped, 0), min(unclipped + self.length, int(document_offsets[-1]))
        first = find(document_offsets, stream_start, "right") - 1
        end = find(document_offsets, stream_end, "left")
        return [self._slice(shard_index, i, stream_start, stream_end) for i in range(first, end)]

    def _slice(self, shard_index: int, i: int, stream_start: int, stream_end: int) -> DocumentSlice:
        """The tokens of the i-th selected document of a shard between two positions of the stream."""
        shard, document_offsets = self.corpus.shards[shard_index], self.document_offsets[shard_index]
        document_start, document_end = int(document_offsets[i]), int(document_offsets[i + 1])
        first_token = int(shard.sentences[shard.documents[self.documents[shard_index][i]]])
        # With an end-of-text token before it, token i of the document is at position i + 1.
        start, end = max(stream_start, document_start) - document_start, min(stream_end, document_end) - document_start
        length = document_end - document_start
        token_start, token_end = first_token + max(start - 1, 0), first_token + min(end, length - 1)
        before = [[self.eos_id]] if start == 0 else []
        after = [[self.eos_id]] if end == length else []
        row = np.concatenate([*before, np.asarray(shard.tokens[token_start:token_end], np.int64), *after])
        word_starts = np.concatenate([np.ones(len(before), bool), shard.word_starts_in(token_start, token_end)])
        return DocumentSlice(row[:-1], row[1:], word_starts[: len(row) - 1])
