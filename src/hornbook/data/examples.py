"""Training sequences out of a corpus. Batch k is a pure function of (corpus, settings, seed, k): nothing is remembered
between batches, so any worker can make any batch and a run resumes at once.

Pairs, for next-sentence prediction (Devlin et al. 2018 and its published code): `[CLS] A [SEP] B [SEP]`, half of the
time B is what follows A, half of the time it starts at a random sentence of another document; filled up to the length
limit, and 10% of the time a shorter one is aimed at. One difference from that code, which reads a document front to
back: our A always starts at a chunk of the corpus, each chunk once an epoch in random order, so that batch k needs no
history.

Packed, without a sentence task: `[CLS]` whole sentences up to the limit `[SEP]`, over the ends of documents, with a
`[SEP]` more between them (Liu et al. 2019, "full sentences").
"""

from dataclasses import dataclass

import numpy as np

from hornbook.batch import Batch, pack
from hornbook.config import setting
from hornbook.data.chunks import cut, document_of
from hornbook.data.corpus import Corpus, find, shuffled
from hornbook.data.shards import Shard, unpack_word_starts
from hornbook.text.tokenizer import Tokenizer

MIX_PERIOD = 1000  # corpora are mixed in a fixed pattern of this length, so weights hold to 0.1%


@dataclass(frozen=True)
class DataSettings:
    length: int = setting(512, "tokens in a sequence, at most")
    short_length: int = setting(128, "tokens in a sequence in the first part of training, at most")
    short_share: float = setting(0.9, "share of the steps that train on short sequences")
    shorter_chance: float = setting(0.1, "chance that a pair aims at a random shorter length")
    held_out_share: float = setting(0.01, "share of the documents kept for validation")

    def __post_init__(self) -> None:
        if min(self.length, self.short_length) < 8:
            raise ValueError("data.length and data.short_length must be at least 8 tokens")
        for name in ("short_share", "shorter_chance", "held_out_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"data.{name} must lie between 0 and 1, not {getattr(self, name)}")

    def uses(self, length: int) -> bool:
        """Whether any step has this length limit."""
        return (length == self.short_length and self.short_share > 0) or (
            length == self.length and self.short_share < 1
        )

    def length_at(self, step: int, num_steps: int) -> tuple[int, int]:
        """(length limit, steps already done at this limit) for a step of a run."""
        if self.short_length == self.length:
            return self.length, step
        switch = round(self.short_share * num_steps)
        return (self.short_length, step) if step < switch else (self.length, step - switch)


class Examples:
    """Sequences of one length limit from weighted corpora. `batch(k, n)` gives the k-th batch of n sequences."""

    def __init__(
        self,
        corpora: list[tuple[Corpus, float]],
        length: int,
        seed: int,
        pairs: bool,
        shorter_chance: float = 0.1,
        held_out: bool = False,
    ):
        self.corpora = [corpus for corpus, _ in corpora]
        self.length = length
        self.seed = seed
        self.pairs = pairs
        self.shorter_chance = shorter_chance
        self.held_out = held_out
        tokenizer: Tokenizer = self.corpora[0].tokenizer
        self.cls_id, self.sep_id = tokenizer.cls_id, tokenizer.sep_id
        self.room = length - (3 if pairs else 2)
        self.chunks = [cut(corpus, self.room, "reach" if pairs else "fit", held_out) for corpus in self.corpora]
        self.pattern, self.rank, self.share = _mixing_pattern([weight for _, weight in corpora], seed)
        # The documents of this part (training or held out), fewer than its chunks: random segments come from them.
        self.documents = [
            np.flatnonzero(corpus.is_held_out(np.arange(corpus.num_documents)) == held_out) for corpus in self.corpora
        ]
        for corpus, chunks, documents in zip(self.corpora, self.chunks, self.documents, strict=True):
            self._check(corpus, chunks.total, len(documents))

    def _check(self, corpus: Corpus, num_chunks: int, num_documents: int) -> None:
        which = "held out for validation" if self.held_out else "to train on"
        if not num_chunks:
            raise ValueError(
                f"{corpus.folder} has no documents {which} ({corpus.num_documents} in all): "
                "add text, or set data.held_out_share=0 to train without validation"
            )
        if self.pairs and not self.held_out and num_documents < 2:
            raise ValueError(
                f"{corpus.folder} has fewer than two documents to train on, and next-sentence prediction takes its "
                "wrong sentences from another document: separate documents by blank lines, or set objective.nsp=false"
            )

    def batch(self, number: int, num_sequences: int) -> Batch:
        random = np.random.default_rng([self.seed, number, self.length, self.held_out])
        first = number * num_sequences
        make = self._pair if self.pairs else self._packed
        made = [make(which, chunk, random) for which, chunk in self._chunks_of(np.arange(first, first + num_sequences))]
        # Neighbours of equal length go through attention together on a CPU.
        made.sort(key=lambda example: len(example[0]))
        sequences, segments, word_starts, labels = zip(*made, strict=True)
        return pack(sequences, segments, word_starts, np.array(labels) if self.pairs else None, self.length)

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

    def _pair(self, which: int, chunk: int, random: np.random.Generator) -> tuple[np.ndarray, ...]:
        corpus = self.corpora[which]
        shard_number, start, stop = self.chunks[which].locate(chunk)
        shard = corpus.shards[shard_number]
        room = self.room
        if random.random() < self.shorter_chance:
            room = int(random.integers(2, self.room + 1))
            stop = min(stop, max(_boundary_from(shard, start + room), start + 1))
        bounds = _boundaries_inside(shard, start, stop)
        # A is one or more of the chunk's sentences, and not all of them unless there is only one.
        split = int(bounds[random.integers(len(bounds))]) if len(bounds) else stop
        is_random = len(bounds) == 0 or random.random() < 0.5
        if is_random:
            mine = int(corpus.first_document[shard_number]) + document_of(shard, start)
            other = _other(self.documents[which], mine, random)
            b_shard, b_start, b_stop = self._random_stretch(corpus, other, room - (split - start), random)
        else:
            b_shard, b_start, b_stop = shard, split, stop
        a_start, a_stop, b_start, b_stop = _cut_to(self.room, start, split, b_start, b_stop, random)
        cls, sep = [self.cls_id], [self.sep_id]
        ids = np.concatenate([cls, shard.tokens[a_start:a_stop], sep, b_shard.tokens[b_start:b_stop], sep])
        num_a, num_b = a_stop - a_start, b_stop - b_start
        segments = np.repeat(np.array([0, 1]), [num_a + 2, num_b + 1])
        word_starts = np.ones(len(ids), np.bool_)
        word_starts[1 : 1 + num_a] = unpack_word_starts(shard.word_starts, a_start, a_stop)
        word_starts[2 + num_a : 2 + num_a + num_b] = unpack_word_starts(b_shard.word_starts, b_start, b_stop)
        return ids, segments, word_starts, int(is_random)

    def _random_stretch(
        self, corpus: Corpus, document: int, room: int, random: np.random.Generator
    ) -> tuple[Shard, int, int]:
        """From a random sentence of a document on, until there are enough tokens or the document ends."""
        shard, first, last = corpus.document(document)
        sentence = int(random.integers(first, last))
        start, document_stop = int(shard.sentences[sentence]), int(shard.sentences[last])
        stop = min(_boundary_from(shard, start + max(room, 1)), document_stop)
        return shard, start, stop

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


def _boundaries_inside(shard: Shard, start: int, stop: int) -> np.ndarray:
    """Sentence boundaries strictly between two tokens."""
    return shard.sentences[find(shard.sentences, start, "right") : find(shard.sentences, stop, "left")]


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
