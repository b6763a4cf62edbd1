"""Training sequences out of a corpus. Batch k is a pure function of (corpus, settings, seed, k): nothing is remembered
between batches, so any worker can make any batch and a run resumes at once.

Five layouts. Three are pairs, `[CLS] A [SEP] B [SEP]`, filled up to the length limit, and 10% of the time a shorter one
is aimed at:

`nsp`, next-sentence prediction (Devlin et al. 2018 and its published code): half of the time B is what follows A
(label 0), half of the time it starts at a random sentence of another document (label 1). One difference from that
code, which reads a document front to back: our A always starts at a chunk of the corpus, each chunk once an epoch in
random order, so that batch k needs no history. A chunk of one sentence is paired with the text after it or, at the end
of its document, with the sentence before it, so that both labels stay equally likely; only a document of one sentence
has no next text, and always gets label 1, as in that code (`not_next_share`).

`sop`, sentence-order prediction (Lan et al. 2019): two segments of one document, one after the other (label 0) or
swapped (label 1). Only their order may tell the label, so all else is decided by rules that treat front and back alike:
chunks are `even`, the split is any sentence boundary in them, a shorter pair keeps the sentences around the split, and
a pair that is too long is cut after the swap. A chunk of one sentence is split at the word start nearest to its middle,
so that short documents are learned from too and both labels stay equally likely; the published code sets text of
another document beside it and calls that swapped. A single token, which has no order, stands on both sides.

`segments`, no sentence task (Clark et al. 2020 and its published code): A is about the first half of a chunk's
sentences and B the rest of them, cut at its end. 10% of the time, and wherever there is only one sentence, all is A:
`[CLS] A [SEP]`.

`packed`, no sentence task: `[CLS]` whole sentences up to the limit `[SEP]`, over the ends of documents, with a `[SEP]`
more between them (Liu et al. 2019, "full sentences").

`documents`, for models that read from left to right (Radford et al. 2018): chunks of the stream of documents
(`data/stream.py`), each token labelled with the one after it. What a chunk holds of each document is a sequence of its
own, its positions counted from 0, so that none attends to another; or, as published, a chunk is one sequence.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from hornbook.batch import Batch, pack
from hornbook.config import Typed, setting
from hornbook.data.chunks import Chunks, cut, document_of
from hornbook.data.corpus import Corpus, find, shuffled
from hornbook.data.shards import Shard, unpack_word_starts
from hornbook.data.stream import DocumentStream
from hornbook.text.tokenizer import Tokenizer

Layout = Literal["packed", "segments", "nsp", "sop", "documents"]
CHUNK_RULES = {"packed": "fit", "segments": "reach", "nsp": "reach", "sop": "even"}
LABELLED = ("nsp", "sop")
MIX_PERIOD = 1000  # corpora are mixed in a fixed pattern of this length, so weights hold to 0.1%


@dataclass(frozen=True)
class DataSettings(Typed, group="data"):
    length: int = setting(512, "tokens in a sequence, at most", low=8, high=2**20)
    short_length: int = setting(128, "tokens in a sequence in the first part of training, at most", low=8, high=2**20)
    short_fraction: float = setting(0.9, "share of the steps that train on short sequences", low=0, high=1)
    layout: Literal["packed", "pairs"] | None = setting(
        None, "full sentences over document ends, or two segments of one; none: pairs where sentences are judged"
    )
    short_sequence_probability: float = setting(
        0.1, "chance that a pair aims at a random shorter length (ELECTRA: 0.05)", low=0, high=1
    )
    single_segment_probability: float = setting(
        0.1, "chance that a pair without a sentence task is one segment instead", low=0, high=1
    )
    crosses_documents: bool = setting(
        False, "GPT: attend over the ends of documents in a chunk, as published; no: within each"
    )
    held_out_fraction: float = setting(0.01, "share of the documents kept for validation", low=0, high=1)

    def uses(self, length: int) -> bool:
        """Whether any step has this length limit."""
        return (length == self.short_length and self.short_fraction > 0) or (
            length == self.length and self.short_fraction < 1
        )

    def length_at(self, step: int, num_steps: int) -> tuple[int, int]:
        """(length limit, steps already done at this limit) for a step of a run."""
        if self.short_length == self.length:
            return self.length, step
        switch = round(self.short_fraction * num_steps)
        return (self.short_length, step) if step < switch else (self.length, step - switch)


class Examples:
    """Sequences of one length limit from weighted corpora. `batch(k, n)` gives the k-th batch of n sequences."""

    def __init__(
        self,
        corpora: list[tuple[Corpus, float]],
        length: int,
        seed: int,
        layout: Layout,
        short_sequence_probability: float = 0.1,
        single_segment_probability: float = 0.1,
        held_out: bool = False,
        crosses_documents: bool = False,
    ):
        self.corpora = [corpus for corpus, _ in corpora]
        self.length = length
        self.seed = seed
        self.layout = layout
        self.short_sequence_probability = short_sequence_probability
        self.single_segment_probability = single_segment_probability
        self.held_out = held_out
        self.crosses_documents = crosses_documents
        tokenizer: Tokenizer = self.corpora[0].tokenizer
        self.cls_id, self.sep_id = tokenizer.cls_id, tokenizer.sep_id
        self.is_segmented = not tokenizer.is_unsegmented
        self.between = (
            [self.sep_id] if self.is_segmented else [self.sep_id, self.sep_id]
        )  # as the tokenizer joins texts
        self.room = length - (2 if layout == "packed" else 2 + len(self.between))
        self.chunks = [self._cut(corpus) for corpus in self.corpora]
        self.pattern, self.rank, self.share = _mixing_pattern([weight for _, weight in corpora], seed)
        # The documents of this part (training or held out), fewer than its chunks: random segments come from them.
        self.documents = [
            np.flatnonzero(corpus.is_held_out(np.arange(corpus.num_documents)) == held_out) for corpus in self.corpora
        ]
        for corpus, chunks, documents in zip(self.corpora, self.chunks, self.documents, strict=True):
            self._check(corpus, chunks.total, len(documents))

    def _cut(self, corpus: Corpus) -> Chunks | DocumentStream:
        if self.layout == "documents":
            return DocumentStream(corpus, self.length, self.held_out, corpus.tokenizer.end_id)
        return cut(corpus, self.room, CHUNK_RULES[self.layout], self.held_out)

    def _check(self, corpus: Corpus, num_chunks: int, num_documents: int) -> None:
        which = "held out for validation" if self.held_out else "to train on"
        if not num_chunks:
            raise ValueError(
                f"{corpus.folder} has no documents {which} ({corpus.num_documents} in all): "
                "add text, or set data.held_out_fraction=0 to train without validation"
            )
        if self.layout == "nsp" and not self.held_out and num_documents < 2:
            raise ValueError(
                f"{corpus.folder} has fewer than two documents to train on, and next-sentence prediction takes its "
                "wrong sentences from another document: separate documents by blank lines, or set "
                "objective.sentence=sop or none"
            )

    def batch(self, number: int, num_sequences: int, first: int | None = None) -> Batch:
        """`first` is the number of sequences before it, where batches are not all of one size."""
        first = number * num_sequences if first is None else first
        if self.layout == "documents":
            return self._of_documents(np.arange(first, first + num_sequences))
        made = [example for example, _ in self._made(number, np.arange(first, first + num_sequences))]
        sequences, segments, word_starts, labels = zip(*made, strict=True)
        has_labels = self.layout in LABELLED
        return pack(sequences, segments, word_starts, np.array(labels) if has_labels else None, self.length)

    def documents_of(self, number: int, num_sequences: int) -> list[tuple[int, int]]:
        """(corpus, document) that each sequence of that batch starts in, in its order."""
        found = []
        for _, (which, chunk) in self._made(number, number * num_sequences + np.arange(num_sequences)):
            shard, start, _ = self.chunks[which].locate(chunk)
            corpus = self.corpora[which]
            found.append((which, int(corpus.first_document[shard]) + document_of(corpus.shards[shard], start)))
        return found

    def _made(self, number: int, examples: np.ndarray) -> list[tuple[tuple, tuple[int, int]]]:
        """The sequences of a batch, short ones first, each with its (corpus, chunk)."""
        random = np.random.default_rng([self.seed, number, self.length, self.held_out])
        makers = {"packed": self._packed, "segments": self._halves, "nsp": self._next, "sop": self._ordered}
        make = makers[self.layout]
        made = [(make(which, chunk, random), (which, chunk)) for which, chunk in self._chunks_of(examples)]
        # Neighbours of equal length go through attention together on a CPU.
        made.sort(key=lambda each: len(each[0][0]))
        return made

    def _of_documents(self, examples: np.ndarray) -> Batch:
        """Sequences without special tokens around them, labelled by token."""
        made = []
        for which, chunk in self._chunks_of(examples):
            stretches = self.chunks[which].stretches(chunk)
            if self.crosses_documents:
                stretches = [tuple(map(np.concatenate, zip(*stretches, strict=True)))]
            made += stretches
        made.sort(key=lambda stretch: len(stretch[0]))
        sequences, next_ids = zip(*made, strict=True)
        return pack(sequences, longest=self.length, token_labels=next_ids)

    def _chunks_of(self, examples: np.ndarray) -> list[tuple[int, int]]:
        """(corpus, chunk) of each example: the fixed pattern says which corpus, a shuffle of each epoch which chunk."""
        slot, period = examples % MIX_PERIOD, examples // MIX_PERIOD
        which = self.pattern[slot]
        out = np.zeros(len(examples), np.int64)
        for number, chunks in enumerate(self.chunks):
            mine = which == number
            place = period[mine] * self.share[number] + self.rank[slot[mine]]
            epoch = place // chunks.total
            found = np.zeros(len(place), np.int64)
            for each in np.unique(epoch):
                now = epoch == each
                key = int(
                    np.random.SeedSequence([self.seed, number, int(each), self.length]).generate_state(1, np.uint64)[0]
                )
                found[now] = shuffled(place[now] % chunks.total, chunks.total, key)
            out[mine] = found
        return list(zip(which.tolist(), out.tolist(), strict=True))

    def _next(self, which: int, chunk: int, random: np.random.Generator) -> tuple[np.ndarray, ...]:
        corpus = self.corpora[which]
        shard_number, start, stop = self.chunks[which].locate(chunk)
        shard = corpus.shards[shard_number]
        room = self.room
        if random.random() < self.short_sequence_probability:
            room = int(random.integers(2, self.room + 1))
            stop = min(stop, max(_boundary_from(shard, start + room), start + 1))
        bounds = _boundaries_inside(shard, start, stop)
        if len(bounds):
            split = int(bounds[random.integers(len(bounds))])  # A is one or more of the chunk's sentences, but not all
        else:
            start, split, stop = _with_neighbour(shard, start, stop, room)
        is_random = split == stop or random.random() < 0.5
        if is_random:
            mine = int(corpus.first_document[shard_number]) + document_of(shard, start)
            other = _other(self.documents[which], mine, random)
            b_shard, b_start, b_stop = self._random_stretch(corpus, other, room - (split - start), random)
        else:
            b_shard, b_start, b_stop = shard, split, stop
        a_start, a_stop, b_start, b_stop = _cut_to(self.room, start, split, b_start, b_stop, random)
        return *self._joined((shard, a_start, a_stop), (b_shard, b_start, b_stop)), int(is_random)

    def not_next_share(self) -> float:
        """The expected share of pairs with label 1: half, and of documents of one sentence all."""
        shares = []
        for corpus, chunks in zip(self.corpora, self.chunks, strict=True):
            of_shards = zip(chunks.starts, chunks.stops, corpus.shards, strict=True)
            shares.append(np.concatenate([_are_lone_sentences(*each) for each in of_shards]).mean())
        return float(0.5 + 0.5 * np.average(shares, weights=self.share))

    def _random_stretch(
        self, corpus: Corpus, document: int, room: int, random: np.random.Generator
    ) -> tuple[Shard, int, int]:
        """From a random sentence of a document on, until there are enough tokens or the document ends."""
        shard, first, last = corpus.document(document)
        sentence = int(random.integers(first, last))
        start, document_stop = int(shard.sentences[sentence]), int(shard.sentences[last])
        stop = min(_boundary_from(shard, start + max(room, 1)), document_stop)
        return shard, start, stop

    def _ordered(self, which: int, chunk: int, random: np.random.Generator) -> tuple[np.ndarray, ...]:
        shard_number, start, stop = self.chunks[which].locate(chunk)
        shard = self.corpora[which].shards[shard_number]
        bounds = _boundaries_inside(shard, start, stop)
        split = int(bounds[random.integers(len(bounds))]) if len(bounds) else _middle(shard, start, stop, random)
        if random.random() < self.short_sequence_probability:
            room = int(random.integers(2, self.room + 1))
            num_before = int(random.integers(1, room))
            start = max(start, _boundary_to(shard, split - num_before))
            stop = min(stop, _boundary_from(shard, split + room - num_before))
        first, second = ((start, split), (split, stop)) if stop - start > 1 else ((start, stop), (start, stop))
        is_swapped = random.random() < 0.5
        if is_swapped:
            first, second = second, first
        # After the swap: an odd token is always taken off the second, which would otherwise be B or A by the label.
        a_start, a_stop, b_start, b_stop = _cut_to(self.room, *first, *second, random)
        return *self._joined((shard, a_start, a_stop), (shard, b_start, b_stop)), int(is_swapped)

    def _halves(self, which: int, chunk: int, random: np.random.Generator) -> tuple[np.ndarray, ...]:
        shard_number, start, stop = self.chunks[which].locate(chunk)
        shard = self.corpora[which].shards[shard_number]
        room = self.room
        if random.random() < self.short_sequence_probability:
            room = int(random.integers(2, self.room + 1))
            stop = min(stop, max(_boundary_from(shard, start + room), start + 1))
        bounds = _boundaries_inside(shard, start, stop)
        if len(bounds) == 0 or random.random() < self.single_segment_probability:
            # No [SEP] between two segments to make room for.
            return *self._joined((shard, start, min(stop, start + self.room + len(self.between)))), 0
        # A holds the sentences that fit in half, at least one; the next is A's or B's by a coin, unless it is the last.
        num_fitting = find(bounds, start + room // 2, "left")
        place = num_fitting if num_fitting == 0 or random.random() < 0.5 else num_fitting - 1
        split = int(bounds[min(place, len(bounds) - 1)])
        return *self._joined((shard, start, split), (shard, split, min(stop, start + self.room))), 0

    def _joined(self, *stretches: tuple[Shard, int, int]) -> tuple[np.ndarray, ...]:
        """(ids, segments, word starts) of `[CLS]` and each stretch with a `[SEP]` after it, or two between them."""
        ids, segments, word_starts = [[self.cls_id]], [[0]], [[True]]
        for number, (shard, start, stop) in enumerate(stretches):
            after = self.between if number + 1 < len(stretches) else [self.sep_id]
            ids += [shard.tokens[start:stop], after]
            segments.append(np.full(stop - start + len(after), number if self.is_segmented else 0))
            word_starts += [unpack_word_starts(shard.word_starts, start, stop), [True] * len(after)]
        return np.concatenate(ids), np.concatenate(segments), np.concatenate(word_starts)

    def _packed(self, which: int, chunk: int, random: np.random.Generator) -> tuple[np.ndarray, ...]:
        shard_number, start, stop = self.chunks[which].locate(chunk)
        shard = self.corpora[which].shards[shard_number]
        ids = np.asarray(shard.tokens[start:stop], np.int64)
        word_starts = unpack_word_starts(shard.word_starts, start, stop)
        first, last = document_of(shard, start), document_of(shard, stop - 1)
        if last > first:
            begins = np.asarray(shard.sentences[shard.documents[first + 1 : last + 1]], np.int64) - start
            ids = np.insert(ids, begins, self.sep_id)
            word_starts = np.insert(word_starts, begins, True)
        ids = np.concatenate([[self.cls_id], ids, [self.sep_id]])
        word_starts = np.concatenate([[True], word_starts, [True]])
        return ids, np.zeros(len(ids), np.int64), word_starts, 0


def _other(documents: np.ndarray, mine: int, random: np.random.Generator) -> int:
    """Another of these documents, each as likely as the next; the same one only when there is no other."""
    if len(documents) == 1:
        return mine
    place = int(random.integers(len(documents) - 1))
    return int(documents[place + (place >= find(documents, mine, "left"))])


def _boundary_from(shard: Shard, token: int) -> int:
    """The first sentence boundary at or after a token."""
    return int(shard.sentences[min(find(shard.sentences, token, "left"), len(shard.sentences) - 1)])


def _boundary_to(shard: Shard, token: int) -> int:
    """The last sentence boundary at or before a token."""
    return int(shard.sentences[find(shard.sentences, max(0, token), "right") - 1])


def _boundaries_inside(shard: Shard, start: int, stop: int) -> np.ndarray:
    """Sentence boundaries strictly between two tokens."""
    return shard.sentences[find(shard.sentences, start, "right") : find(shard.sentences, stop, "left")]


def _with_neighbour(shard: Shard, start: int, stop: int, room: int) -> tuple[int, int, int]:
    """(start, split, stop) of a chunk without a sentence boundary inside, extended by the text after it or, where its
    document ends, by the sentence before it; where there is neither, the split is its end."""
    document = document_of(shard, start)
    first, last = (int(shard.sentences[shard.documents[number]]) for number in (document, document + 1))
    if stop < last:
        return start, stop, min(_boundary_from(shard, stop + max(1, room - (stop - start))), last)
    if start > first:
        return _boundary_to(shard, start - 1), start, stop
    return start, stop, stop


def _are_lone_sentences(starts: np.ndarray, stops: np.ndarray, shard: Shard) -> np.ndarray:
    """Of each chunk, whether it is a whole document of one sentence."""
    is_single = np.diff(np.asarray(shard.documents, np.int64)) == 1
    firsts = np.asarray(shard.sentences[shard.documents[:-1][is_single]])
    lasts = np.asarray(shard.sentences[shard.documents[1:][is_single]])
    return np.isin(starts, firsts) & np.isin(stops, lasts)


def _middle(shard: Shard, start: int, stop: int, random: np.random.Generator) -> int:
    """The word start nearest to the middle, the earlier or the later of two by chance; without one, the middle."""
    middle = (start + stop + random.random() - 0.5) / 2
    inside = start + 1 + np.flatnonzero(unpack_word_starts(shard.word_starts, start + 1, stop))
    return int(inside[np.abs(inside - middle).argmin()]) if len(inside) else round(middle)


def _cut_to(
    room: int, a_start: int, a_stop: int, b_start: int, b_stop: int, random: np.random.Generator
) -> tuple[int, int, int, int]:
    """Takes tokens off the longer segment, front or back by a coin for each, until both fit."""
    num_a, num_b = a_stop - a_start, b_stop - b_start
    excess = num_a + num_b - room
    if excess <= 0:
        return a_start, a_stop, b_start, b_stop
    from_longer = min(excess, abs(num_a - num_b))
    rest = excess - from_longer
    cut_a = rest // 2 + (from_longer if num_a > num_b else 0)
    cut_b = rest - rest // 2 + (from_longer if num_b > num_a else 0)
    front_a, front_b = int(random.binomial(cut_a, 0.5)), int(random.binomial(cut_b, 0.5))
    return a_start + front_a, a_stop - (cut_a - front_a), b_start + front_b, b_stop - (cut_b - front_b)


def _mixing_pattern(weights: list[float], seed: int) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """(corpus at each slot, how many slots of that corpus come before it, slots of each corpus)."""
    for weight in weights:
        if not 0 < weight < float("inf"):
            raise ValueError(f"the weight of a corpus must be above 0, not {weight}")
    exact = np.array(weights) / sum(weights) * MIX_PERIOD
    share = np.floor(exact).astype(np.int64)
    for number in np.argsort(share - exact, kind="stable")[: MIX_PERIOD - share.sum()]:
        share[number] += 1
    if not share.all():
        raise ValueError(
            f"a corpus weighs less than 1/{MIX_PERIOD} of all and would never be read: raise its weight or leave it out"
        )
    pattern = np.repeat(np.arange(len(weights)), share)
    np.random.default_rng([seed, 7]).shuffle(pattern)
    rank = np.zeros(MIX_PERIOD, np.int64)
    for number in range(len(weights)):
        rank[pattern == number] = np.arange(share[number])
    return pattern, rank, share.tolist()
