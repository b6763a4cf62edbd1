"""Makes training sequences from a corpus. Batch k is a pure function of (corpus, settings, seed, k): there is no state
between batches, so any worker can make any batch and a run resumes immediately.

Five layouts. Three are pairs, `[CLS] A [SEP] B [SEP]`, up to the length limit, or with a probability of 10% by
default up to a random shorter length:

`nsp`, next-sentence prediction (Devlin et al. 2018 and the published code): half of the time B is the text after A
(label 0), half of the time it starts at a random sentence of another document (label 1). One difference from the
published code, which reads a document front to back: here A always starts at a chunk of the corpus, and each epoch
visits every chunk once in random order, so that batch k needs no history. A chunk of one sentence is paired with the
text after it or, at the end of its document, with the sentence before it, so that both labels stay equally likely. Only
a document of one sentence has no next text; it always gets label 1, as in the published code (`not_next_fraction`).

`sop`, sentence-order prediction (Lan et al. 2019): two consecutive segments of one document, in order (label 0) or
swapped (label 1). Nothing but their order may reveal the label, so all other choices are symmetric: chunks are
`balanced`, the split is any sentence boundary in the chunk, a shorter pair keeps the sentences around the split, and a
pair that is too long is truncated after the swap. A chunk of one sentence is split at the word start nearest to its
middle, so that short documents are used too and both labels stay equally likely; the published code instead pairs it
with text of another document and labels the pair as swapped. A single token, which has no order, is used as both
segments.

`pairs`, no sentence task (Clark et al. 2020 and the published code): A is about the first half of a chunk's
sentences, B the rest, truncated at the end. With a probability of 10% by default, and if there is only one
sentence, the sequence is a single segment, `[CLS] A [SEP]`.

`full-sentences`, no sentence task: `[CLS]`, whole sentences up to the limit, `[SEP]`; it crosses document boundaries,
with an extra `[SEP]` between documents (Liu et al. 2019).

`documents`, for left-to-right models (Radford et al. 2018): chunks of the stream of documents (`DocumentStream`), each
token labelled with the next one. Each document in a chunk is a sequence of its own, with positions from 0, so that
documents do not attend to each other; or, as published, the whole chunk is one sequence. A fixed fraction of the chunks
may be read in both directions, to mask tokens of them; the others come first in a batch (`Batch.num_causal`).
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from hornbook.batch import Batch, pack
from hornbook.data.chunks import Chunks, DocumentStream, cut_into_chunks
from hornbook.data.corpus import Corpus, shuffled
from hornbook.data.shards import Shard, find

SequenceLayout = Literal["full-sentences", "pairs", "nsp", "sop", "documents"]
CHUNK_RULES = {"full-sentences": "at_most", "pairs": "at_least", "nsp": "at_least", "sop": "balanced"}
SENTENCE_LAYOUTS = ("nsp", "sop")
MIX_PERIOD = 1000  # corpora are mixed in a fixed pattern of this length, so weights hold to 0.1%
OFFSETS, MIXING = 1, 7  # added to a seed, so that different purposes have different random numbers


class _Chunk(NamedTuple):
    """Tokens `start` to `stop` (exclusive) of a shard of a corpus."""

    corpus_index: int
    corpus: Corpus
    shard_index: int
    start: int
    stop: int

    @property
    def shard(self) -> Shard:
        return self.corpus.shards[self.shard_index]

    @property
    def document(self) -> int:
        """The index in the corpus of the document in which the chunk starts."""
        return int(self.corpus.first_document[self.shard_index]) + self.shard.document_of(self.start)


class _Example(NamedTuple):
    """A sequence: `entities` are (positions, entities), the label is that of a sentence task."""

    ids: np.ndarray
    segments: np.ndarray
    word_starts: np.ndarray
    entities: tuple[np.ndarray, np.ndarray] | None
    label: int


@dataclass(eq=False)
class SequenceSampler:
    """Samples sequences of one length limit from weighted corpora; `batch(k, n)` is the k-th batch of n sequences."""

    weighted_corpora: list[tuple[Corpus, float]]
    length: int
    seed: int
    layout: SequenceLayout
    short_sequence_probability: float = 0.1
    single_segment_probability: float = 0.1
    held_out: bool = False
    crosses_documents: bool = False
    with_entities: bool = False  # batches hold the entities that the texts mention; corpora must be linked to a graph
    mlm_fraction: float = 0.0  # fraction of the chunks of documents that are read in both directions
    shift_chunks: bool = False  # chunks of documents start at other positions in each epoch

    def __post_init__(self) -> None:
        self.corpora = [corpus for corpus, _ in self.weighted_corpora]
        tokenizer = self.corpora[0].tokenizer
        self.cls_id, self.sep_id = tokenizer.cls_id, tokenizer.sep_id
        self.is_segmented = not tokenizer.is_unsegmented
        # The separators between two segments, as this tokenizer writes pairs.
        self.separators = [self.sep_id] if self.is_segmented else [self.sep_id, self.sep_id]
        self.capacity = self.length - (2 if self.layout == "full-sentences" else 2 + len(self.separators))
        self.chunks = [self._cut(corpus) for corpus in self.corpora]
        weights = [weight for _, weight in self.weighted_corpora]
        self.pattern, self.num_earlier_slots, self.num_slots = _mixing_pattern(weights, self.seed)
        # The documents of this split (training or held out), from which random segments are taken.
        self.documents = [
            np.flatnonzero(corpus.is_held_out(np.arange(corpus.num_documents)) == self.held_out)
            for corpus in self.corpora
        ]
        for corpus, chunks, documents in zip(self.corpora, self.chunks, self.documents, strict=True):
            self._check(corpus, chunks.total, len(documents))

    def _cut(self, corpus: Corpus) -> Chunks | DocumentStream:
        if self.layout == "documents":
            return DocumentStream(corpus, self.length, self.held_out, corpus.tokenizer.eos_id)
        return cut_into_chunks(corpus, self.capacity, CHUNK_RULES[self.layout], self.held_out)

    def _check(self, corpus: Corpus, num_chunks: int, num_documents: int) -> None:
        which = "held out for validation" if self.held_out else "to train on"
        if not num_chunks:
            raise ValueError(
                f"{corpus.folder} has no documents {which} ({corpus.num_documents} in all): "
                "add text, or set data.held_out_fraction=0 to train without validation"
            )
        if self.layout == "nsp" and not self.held_out and num_documents < 2:
            raise ValueError(
                f"{corpus.folder} has fewer than two documents to train on, but next-sentence prediction takes its "
                "random sentences from another document: separate documents by blank lines, or set "
                "objective.sentence=sop or none"
            )

    def batch(
        self, number: int, num_sequences: int, first: int | None = None, span: tuple[int, int] | None = None
    ) -> Batch:
        """Batch `number`. `first` is the number of sequences in all earlier batches, if batches differ in size. With
        `span`, only its examples from `span[0]` to `span[1]` (exclusive), as they are in the whole batch."""
        first = number * num_sequences if first is None else first
        indices = np.arange(*(span or (0, num_sequences)))
        if self.layout == "documents":
            return self._document_batch(first, indices)
        examples = self._make_examples(number, first, indices)
        sequences, segments, word_starts, entities, labels = zip(*(example for example, *_ in examples), strict=True)
        labels = np.array(labels) if self.layout in SENTENCE_LAYOUTS else None
        step_index = np.array([index for *_, index in examples])
        entities = entities if self.with_entities else None
        return pack(sequences, segments, word_starts, labels, self.length, step_index=step_index, entities=entities)

    def documents_of(self, number: int, num_sequences: int) -> list[tuple[int, int]]:
        """(corpus, document) in which each sequence of the batch starts, in batch order."""
        examples = self._make_examples(number, number * num_sequences, np.arange(num_sequences))
        return [(chunk.corpus_index, chunk.document) for _, chunk, _ in examples]

    def _make_examples(self, number: int, first: int, indices: np.ndarray) -> list[tuple[_Example, _Chunk, int]]:
        """(sequence, chunk, index) of a batch's sequences at these indices, sorted by length."""
        makers = {"full-sentences": self._full_sentences, "pairs": self._pairs, "nsp": self._nsp, "sop": self._sop}
        make = makers[self.layout]
        seeds = np.random.SeedSequence([self.seed, number, self.length, self.held_out])
        philox = np.random.Philox(key=int(seeds.generate_state(1, np.uint64)[0]) << 64)
        random, state = np.random.Generator(philox), philox.state
        examples = []
        chunk_indices = self._chunks_of(first + indices)
        for index, (corpus_index, chunk_index, _) in zip(indices.tolist(), chunk_indices, strict=True):
            # Each example has random numbers of its own. A new key takes a twentieth of the time of a new generator.
            state["state"]["key"][0] = index
            philox.state = state
            location = self.chunks[corpus_index].locate(chunk_index)
            chunk = _Chunk(corpus_index, self.corpora[corpus_index], *location)
            examples.append((make(chunk, random), chunk, index))
        # On a CPU, neighbouring sequences of equal length are batched in attention.
        examples.sort(key=lambda each: len(each[0].ids))
        return examples

    def _document_batch(self, first: int, indices: np.ndarray) -> Batch:
        """A batch of sequences without special tokens around them, with a label per token."""
        rows = []
        for index, (corpus_index, chunk, order) in zip(indices.tolist(), self._chunks_of(first + indices), strict=True):
            stream = self.chunks[corpus_index]
            slices = stream.slices(chunk, self._offset(corpus_index, order // stream.total))
            if self.crosses_documents:
                slices = [tuple(map(np.concatenate, zip(*slices, strict=True)))]
            # An index of its own for each slice: a chunk has at most `length` of them.
            is_masked = self._is_masked(order)
            rows += [(is_masked, *each, i) for i, each in enumerate(slices, index * self.length)]
        rows.sort(key=lambda row: (row[0], len(row[1])))
        are_masked, sequences, next_ids, word_starts, step_index = zip(*rows, strict=True)
        num_causal = None
        if self.mlm_fraction:
            num_causal = sum(len(ids) for is_masked, ids in zip(are_masked, sequences, strict=True) if not is_masked)
        return pack(
            sequences,
            word_starts=word_starts,
            max_length=self.length,
            token_labels=next_ids,
            step_index=np.array(step_index),
            num_causal=num_causal,
        )

    def _is_masked(self, order: int) -> bool:
        """Whether a chunk of documents is read in both directions: as evenly spread in each corpus as the fraction
        allows. Chunks are permuted in each epoch, so it is another fraction of them each time."""
        return math.floor((order + 1) * self.mlm_fraction) > math.floor(order * self.mlm_fraction)

    def _offset(self, corpus_index: int, epoch: int) -> int:
        """The number of tokens by which the chunks of a corpus start earlier in an epoch."""
        if not self.shift_chunks or epoch == 0:
            return 0
        seeds = np.random.SeedSequence([self.seed, corpus_index, epoch, self.length, OFFSETS])
        return int(seeds.generate_state(1)[0]) % self.length

    def _chunks_of(self, examples: np.ndarray) -> list[tuple[int, int, int]]:
        """(corpus, chunk, order) of each example: the corpus from a fixed pattern, the chunk from a random permutation
        per epoch. The order counts the earlier examples of the corpus, in all epochs."""
        slot, period = examples % MIX_PERIOD, examples // MIX_PERIOD
        corpus_indices = self.pattern[slot]
        chunk_indices, orders = np.zeros((2, len(examples)), np.int64)
        for i, chunks in enumerate(self.chunks):
            of_corpus = np.flatnonzero(corpus_indices == i)
            order = period[of_corpus] * self.num_slots[i] + self.num_earlier_slots[slot[of_corpus]]
            orders[of_corpus], epochs = order, order // chunks.total
            for epoch in np.unique(epochs).tolist():
                in_epoch = epochs == epoch
                seeds = np.random.SeedSequence([self.seed, i, epoch, self.length])
                key = int(seeds.generate_state(1, np.uint64)[0])
                chunk_indices[of_corpus[in_epoch]] = shuffled(order[in_epoch] % chunks.total, chunks.total, key)
        return list(zip(corpus_indices.tolist(), chunk_indices.tolist(), orders.tolist(), strict=True))

    def _nsp(self, chunk: _Chunk, random: np.random.Generator) -> _Example:
        shard, start = chunk.shard, chunk.start
        stop, capacity = self._maybe_shorter(shard, start, chunk.stop, random)
        bounds = shard.boundaries_inside(start, stop)
        if len(bounds):
            split = int(bounds[random.integers(len(bounds))])  # A is at least one of the chunk's sentences, but not all
        else:
            start, split, stop = _with_neighbour(shard, start, stop, capacity)
        is_random = split == stop or random.random() < 0.5
        if is_random:
            other = _random_other(self.documents[chunk.corpus_index], chunk.document, random)
            b_shard, b_start, b_stop = _random_sentences(chunk.corpus, other, capacity - (split - start), random)
        else:
            b_shard, b_start, b_stop = shard, split, stop
        a_start, a_stop, b_start, b_stop = _truncate_pair(self.capacity, start, split, b_start, b_stop, random)
        return self._assemble((shard, a_start, a_stop), (b_shard, b_start, b_stop), label=int(is_random))

    def _maybe_shorter(self, shard: Shard, start: int, stop: int, random: np.random.Generator) -> tuple[int, int]:
        """(stop, capacity) of a pair: those of the chunk, or with `short_sequence_probability` random smaller ones."""
        if random.random() >= self.short_sequence_probability:
            return stop, self.capacity
        capacity = int(random.integers(2, self.capacity + 1))
        return min(stop, max(shard.boundary_from(start + capacity), start + 1)), capacity

    def not_next_fraction(self) -> float:
        """The expected share of pairs with label 1: half of the pairs, and all pairs from documents of one sentence."""
        shares = []
        for corpus, chunks in zip(self.corpora, self.chunks, strict=True):
            per_shard = zip(chunks.starts, chunks.stops, corpus.shards, strict=True)
            shares.append(np.concatenate([_are_one_sentence_documents(*each) for each in per_shard]).mean())
        return float(0.5 + 0.5 * np.average(shares, weights=self.num_slots))

    def _sop(self, chunk: _Chunk, random: np.random.Generator) -> _Example:
        shard, start, stop = chunk.shard, chunk.start, chunk.stop
        bounds = shard.boundaries_inside(start, stop)
        split = (
            int(bounds[random.integers(len(bounds))]) if len(bounds) else _split_near_middle(shard, start, stop, random)
        )
        if random.random() < self.short_sequence_probability:
            capacity = int(random.integers(2, self.capacity + 1))
            num_before = int(random.integers(1, capacity))
            start = max(start, shard.boundary_to(split - num_before))
            stop = min(stop, shard.boundary_from(split + capacity - num_before))
        first, second = ((start, split), (split, stop)) if stop - start > 1 else ((start, stop), (start, stop))
        is_swapped = random.random() < 0.5
        if is_swapped:
            first, second = second, first
        # Truncated after the swap: an odd token is always removed from the second segment; before the swap, the label
        # would decide which one loses it.
        a_start, a_stop, b_start, b_stop = _truncate_pair(self.capacity, *first, *second, random)
        return self._assemble((shard, a_start, a_stop), (shard, b_start, b_stop), label=int(is_swapped))

    def _pairs(self, chunk: _Chunk, random: np.random.Generator) -> _Example:
        shard, start = chunk.shard, chunk.start
        stop, capacity = self._maybe_shorter(shard, start, chunk.stop, random)
        bounds = shard.boundaries_inside(start, stop)
        if len(bounds) == 0 or random.random() < self.single_segment_probability:
            # A single segment may use the positions of the separators between two.
            return self._assemble((shard, start, min(stop, start + self.capacity + len(self.separators))))
        # A holds the sentences that fit in half the capacity, at least one; the next one goes to A or B with equal
        # probability, unless it is the last.
        num_fitting = find(bounds, start + capacity // 2, "left")
        index = num_fitting if num_fitting == 0 or random.random() < 0.5 else num_fitting - 1
        split = int(bounds[min(index, len(bounds) - 1)])
        return self._assemble((shard, start, split), (shard, split, min(stop, start + self.capacity)))

    def _assemble(self, *parts: tuple[Shard, int, int], label: int = 0) -> _Example:
        """`[CLS]`, the segments with separators between them, and `[SEP]`."""
        ids, segments, word_starts, entities, length = [[self.cls_id]], [[0]], [[True]], [], 1
        for segment, (shard, start, stop) in enumerate(parts):
            after = self.separators if segment + 1 < len(parts) else [self.sep_id]
            ids += [shard.tokens[start:stop], after]
            segments.append(np.full(stop - start + len(after), segment if self.is_segmented else 0))
            word_starts += [shard.word_starts_in(start, stop), [True] * len(after)]
            if self.with_entities:
                positions, entity_ids = shard.entities(start, stop)
                entities.append((positions + length, entity_ids))
            length += stop - start + len(after)
        entities = tuple(map(np.concatenate, zip(*entities, strict=True))) or None
        return _Example(*map(np.concatenate, (ids, segments, word_starts)), entities, label)

    def _full_sentences(self, chunk: _Chunk, random: np.random.Generator) -> _Example:
        shard, start, stop = chunk.shard, chunk.start, chunk.stop
        ids = np.asarray(shard.tokens[start:stop], np.int64)
        word_starts = shard.word_starts_in(start, stop)
        first, last = shard.document_of(start), shard.document_of(stop - 1)
        positions, entity_ids = shard.entities(start, stop) if self.with_entities else (np.zeros(0, np.int64),) * 2
        if last > first:
            begins = np.asarray(shard.sentences[shard.documents[first + 1 : last + 1]], np.int64) - start
            ids = np.insert(ids, begins, self.sep_id)
            word_starts = np.insert(word_starts, begins, True)
            positions = positions + np.searchsorted(begins, positions, side="right")
        ids = np.concatenate([[self.cls_id], ids, [self.sep_id]])
        word_starts = np.concatenate([[True], word_starts, [True]])
        return _Example(ids, np.zeros(len(ids), np.int64), word_starts, (positions + 1, entity_ids), 0)


def _mixing_pattern(weights: list[float], seed: int) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """(corpus of each slot, number of earlier slots of that corpus, number of slots per corpus)."""
    for weight in weights:
        if not 0 < weight < float("inf"):
            raise ValueError(f"the weight of a corpus must be above 0, not {weight}")
    exact = np.array(weights) / sum(weights) * MIX_PERIOD
    num_slots = np.floor(exact).astype(np.int64)
    num_slots[np.argsort(num_slots - exact, kind="stable")[: MIX_PERIOD - num_slots.sum()]] += 1
    if not num_slots.all():
        raise ValueError(
            f"a corpus has less than 1/{MIX_PERIOD} of the total weight and would never be read: raise its weight or "
            "leave it out"
        )
    pattern = np.repeat(np.arange(len(weights)), num_slots)
    np.random.default_rng([seed, MIXING]).shuffle(pattern)
    num_earlier = np.zeros(MIX_PERIOD, np.int64)
    for i, num in enumerate(num_slots):
        num_earlier[pattern == i] = np.arange(num)
    return pattern, num_earlier, num_slots.tolist()


def _random_other(documents: np.ndarray, own: int, random: np.random.Generator) -> int:
    """A uniformly random document other than `own`, or `own` if there is no other."""
    if len(documents) == 1:
        return own
    index = int(random.integers(len(documents) - 1))
    return int(documents[index + (index >= find(documents, own, "left"))])


def _random_sentences(
    corpus: Corpus, document: int, capacity: int, random: np.random.Generator
) -> tuple[Shard, int, int]:
    """(shard, start, stop) of whole sentences from a random one on, until they have `capacity` tokens or the document
    ends."""
    shard, first, last = corpus.document(document)
    start, document_stop = int(shard.sentences[random.integers(first, last)]), int(shard.sentences[last])
    return shard, start, min(shard.boundary_from(start + max(capacity, 1)), document_stop)


def _with_neighbour(shard: Shard, start: int, stop: int, capacity: int) -> tuple[int, int, int]:
    """(start, split, stop) of a chunk without a sentence boundary inside, extended by the text after it or, at the end
    of its document, by the sentence before it; if there is neither, split equals stop."""
    document = shard.document_of(start)
    first, last = (int(shard.sentences[shard.documents[i]]) for i in (document, document + 1))
    if stop < last:
        return start, stop, min(shard.boundary_from(stop + max(1, capacity - (stop - start))), last)
    if start > first:
        return shard.boundary_to(start - 1), start, stop
    return start, stop, stop


def _are_one_sentence_documents(starts: np.ndarray, stops: np.ndarray, shard: Shard) -> np.ndarray:
    """For each chunk, whether it is a whole document of one sentence."""
    is_single = np.diff(np.asarray(shard.documents, np.int64)) == 1
    firsts = np.asarray(shard.sentences[shard.documents[:-1][is_single]])
    lasts = np.asarray(shard.sentences[shard.documents[1:][is_single]])
    return np.isin(starts, firsts) & np.isin(stops, lasts)


def _split_near_middle(shard: Shard, start: int, stop: int, random: np.random.Generator) -> int:
    """The word start nearest to the middle (ties are broken at random), or the middle if there is no word start."""
    middle = (start + stop + random.random() - 0.5) / 2
    inside = start + 1 + np.flatnonzero(shard.word_starts_in(start + 1, stop))
    return int(inside[np.abs(inside - middle).argmin()]) if len(inside) else round(middle)


def _truncate_pair(
    capacity: int, a_start: int, a_stop: int, b_start: int, b_stop: int, random: np.random.Generator
) -> tuple[int, int, int, int]:
    """Removes tokens from the longer segment, each from the front or back at random, until both fit in `capacity`."""
    num_a, num_b = a_stop - a_start, b_stop - b_start
    excess = num_a + num_b - capacity
    if excess <= 0:
        return a_start, a_stop, b_start, b_stop
    from_longer = min(excess, abs(num_a - num_b))
    rest = excess - from_longer
    cut_a = rest // 2 + (from_longer if num_a > num_b else 0)
    cut_b = rest - rest // 2 + (from_longer if num_b > num_a else 0)
    front_a, front_b = int(random.binomial(cut_a, 0.5)), int(random.binomial(cut_b, 0.5))
    return a_start + front_a, a_stop - (cut_a - front_a), b_start + front_b, b_stop - (cut_b - front_b)
