"""The documents of a corpus as one token stream, with an end-of-text token before each, split into equal chunks.

    <end> the first document <end> the second <end> ...

A left-to-right model predicts the next token of every token; after the last token of a document it is the end of text.
A document starts after an end-of-text token, so the model can generate a text without a prompt. The stream is not
stored: the position of a document in the stream of its shard follows from the lengths of the documents before it.
"""

from typing import NamedTuple

import numpy as np

from hornbook.data.corpus import Corpus, find
from hornbook.data.shards import unpack_word_starts


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
            lengths = np.diff(np.asarray(shard.sentences, np.int64)[np.asarray(shard.documents, np.int64)])
            documents = np.flatnonzero((corpus.held_out_in(i) == held_out) & (lengths > 0))
            self.documents.append(documents)
            self.document_offsets.append(np.concatenate([[0], np.cumsum(lengths[documents] + 1)]))
        num_chunks = [-(-int(document_offsets[-1]) // length) for document_offsets in self.document_offsets]
        self.first = np.concatenate([[0], np.cumsum(num_chunks)]).astype(np.int64)

    @property
    def total(self) -> int:
        """The number of chunks."""
        return int(self.first[-1])

    def slices(self, chunk: int, offset: int = 0) -> list[DocumentSlice]:
        """The slice of each document in a chunk, in order. With an `offset` below the length, all chunks start
        `offset` tokens earlier: the first of a shard is shorter, and the end of the last may be lost."""
        shard_index = find(self.first, chunk, "right") - 1
        document_offsets = self.document_offsets[shard_index]
        begin = (chunk - int(self.first[shard_index])) * self.length - offset
        begin, stop = max(begin, 0), min(begin + self.length, int(document_offsets[-1]))
        first, last = find(document_offsets, begin, "right") - 1, find(document_offsets, stop, "left")
        return [self._slice(shard_index, i, begin, stop) for i in range(first, last)]

    def _slice(self, shard_index: int, i: int, begin: int, stop: int) -> DocumentSlice:
        """The tokens of the i-th selected document of a shard between two positions of the stream."""
        shard, document_offsets = self.corpus.shards[shard_index], self.document_offsets[shard_index]
        start, end = int(document_offsets[i]), int(document_offsets[i + 1])
        token = int(shard.sentences[shard.documents[self.documents[shard_index][i]]])
        # With an end-of-text token before it, token i of the document is at position i + 1.
        low, high = max(begin, start) - start, min(stop, end) - start
        first, last = token + max(low - 1, 0), token + min(high, end - start - 1)
        before = [[self.eos_id]] if low == 0 else []
        after = [[self.eos_id]] if high == end - start else []
        row = np.concatenate([*before, np.asarray(shard.tokens[first:last], np.int64), *after])
        word_starts = np.concatenate([np.ones(len(before), bool), unpack_word_starts(shard.word_starts, first, last)])
        return DocumentSlice(row[:-1], row[1:], word_starts[: len(row) - 1])
