"""The documents of a corpus as one stream of tokens, an end-of-text token before each, cut into chunks of equal length.

    <end> the first document <end> the second <end> ...

Every token has one after it, which a left-to-right model is to predict: after the last of a document it is the end of
text. So a document is begun from the end of text, and a text can be written from nothing. Nothing of this is stored:
where a document lies in the stream of its shard follows from the lengths of those before it.
"""

from typing import NamedTuple

import numpy as np

from hornbook.data.corpus import Corpus, find


class Stretch(NamedTuple):
    """Part of one document, or of several end to end, and the token after each of its tokens."""

    ids: np.ndarray
    next_ids: np.ndarray


class DocumentStream:
    """The chunks of `length` tokens of a corpus' training documents, or of those held out; the last of a shard may be
    shorter."""

    def __init__(self, corpus: Corpus, length: int, held_out: bool, end_id: int):
        self.corpus, self.length, self.end_id = corpus, length, end_id
        self.documents: list[np.ndarray] = []  # of each shard, by their number in it
        self.starts: list[np.ndarray] = []  # where each starts in the stream of its shard, and where the last ends
        for number, shard in enumerate(corpus.shards):
            bounds = np.asarray(shard.sentences, np.int64)[np.asarray(shard.documents, np.int64)]
            first = int(corpus.first_document[number])
            is_held_out = corpus.is_held_out(np.arange(first, first + len(bounds) - 1))
            documents = np.flatnonzero((is_held_out == held_out) & (np.diff(bounds) > 0))
            self.documents.append(documents)
            self.starts.append(np.concatenate([[0], np.cumsum(np.diff(bounds)[documents] + 1)]))
        num_chunks = [-(-int(starts[-1]) // length) for starts in self.starts]
        self.first = np.concatenate([[0], np.cumsum(num_chunks)]).astype(np.int64)

    @property
    def total(self) -> int:
        """The number of chunks."""
        return int(self.first[-1])

    def stretches(self, chunk: int) -> list[Stretch]:
        """The documents that a chunk holds a part of, in order."""
        number = find(self.first, chunk, "right") - 1
        starts = self.starts[number]
        begin = (chunk - int(self.first[number])) * self.length
        stop = min(begin + self.length, int(starts[-1]))
        first, last = find(starts, begin, "right") - 1, find(starts, stop, "left")
        return [self._stretch(number, place, begin, stop) for place in range(first, last)]

    def _stretch(self, number: int, place: int, begin: int, stop: int) -> Stretch:
        """What of a document lies between two places of the stream."""
        shard, starts = self.corpus.shards[number], self.starts[number]
        start, end = int(starts[place]), int(starts[place + 1])
        token = int(shard.sentences[shard.documents[self.documents[number][place]]])
        # With the end of text before it and behind it, token i of the document stands at i + 1.
        low, high = max(begin, start) - start, min(stop, end) - start
        inside = np.asarray(shard.tokens[token + max(low - 1, 0) : token + min(high, end - start - 1)], np.int64)
        around = [[self.end_id]] if low == 0 else []
        behind = [[self.end_id]] if high == end - start else []
        row = np.concatenate([*around, inside, *behind])
        return Stretch(row[:-1], row[1:])
