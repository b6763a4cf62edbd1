"""N-gram language models, as a baseline: interpolated modified Kneser-Ney smoothing (Chen and Goodman 1998).

p_k(w | h) = (c(hw) - D(c(hw))) / c(h) + g(h) p_(k-1)(w | h without its first token),   p_0 = 1 / vocabulary

c counts occurrences at the highest order; at lower orders, the number of different preceding tokens (continuation
counts). D is one of three discounts, for counts of 1, 2 and 3 or more, estimated from the number of n-grams that occur
one to four times; g(h) is the discounted probability mass. Each document is preceded by order - 1 start tokens, which
are never predicted.

K-grams are numbered: each is the pair (number of its first k - 1 tokens, last token); a table holds the sorted pairs.
On English text, training needs about 90 bytes per token (7 GB for 80 million tokens), and the model keeps 40.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hornbook.data.hash_set import find_sorted

ORDER = 5
COPIED = 0.8  # of a text's 5-grams: of other Wikipedia text, 2% occur in 760,000 training tokens
UNKNOWN = -1  # number of an n-gram that does not occur in the training data, as `find_sorted` returns it
DEFAULT_DISCOUNTS = (0.5, 1.0, 1.5)  # where there are too few n-grams for an estimate


@dataclass(frozen=True)
class _Order:
    """The table of k-grams."""

    keys: np.ndarray  # int64, sorted: context x (vocabulary + 1) + last token; a k-gram's number is its index
    discounted: np.ndarray  # float32, per k-gram: (c - D) / c(h)
    backoff: np.ndarray  # float32, per context, a (k - 1)-gram: g(h); 1 where nothing follows it


class NGrams:
    """An n-gram model.

    >>> model = NGrams.train([np.array([0, 1, 2]), np.array([0, 1, 1])], vocab_size=3)
    >>> np.exp(model.scores([np.array([0])])[0]).round(2)
    array([0.96])
    """

    def __init__(self, vocab_size: int, orders: list[_Order]):
        self.vocab_size = vocab_size
        self.orders = orders

    @classmethod
    def train(cls, documents: Sequence[np.ndarray], vocab_size: int, order: int = ORDER) -> "NGrams":
        """Trains on documents of token ids below `vocab_size`."""
        tokens = concatenate(documents, vocab_size, order)
        orders, num_contexts = [], 1
        keys, numbers = np.zeros(1, np.int64), np.zeros(len(tokens), np.int32)  # order 0: one 0-gram at every position
        for k in range(1, order + 1):
            # The context of a k-gram ends one position before it. The first one's is never used: it is a start token.
            contexts = np.roll(numbers, 1)
            longer_keys, first_positions, longer_numbers = _unique(
                contexts.astype(np.int64) * (vocab_size + 1) + tokens
            )
            if k > 1:
                # Each different k-gram is one more preceding token of the (k - 1)-gram at its end.
                continuations = _count(numbers[first_positions], len(keys))
                orders.append(_smooth(keys, continuations, num_contexts, vocab_size))
            num_contexts, keys, numbers = len(keys), longer_keys, longer_numbers
        occurrences = _count(numbers, len(keys))
        del contexts, tokens, numbers, longer_numbers, first_positions  # frees 20 bytes per token at the memory peak
        return cls(vocab_size, [*orders, _smooth(keys, occurrences, num_contexts, vocab_size)])

    def scores(self, documents: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Returns the log-probability of every token of each document."""
        tokens = concatenate(documents, self.vocab_size, len(self.orders))
        probabilities = np.full(len(tokens), 1 / self.vocab_size)
        for each, contexts, numbers in self._found(tokens):
            discounted = np.where(numbers == UNKNOWN, 0, each.discounted[numbers])
            probabilities = discounted + np.where(contexts == UNKNOWN, 1, each.backoff[contexts]) * probabilities
        log_probabilities = np.log(probabilities[tokens != self.vocab_size])
        return np.split(log_probabilities, np.cumsum([len(each) for each in documents])[:-1])

    def known_fraction(self, documents: Sequence[np.ndarray]) -> float:
        """The fraction of the tokens that follow the same order - 1 tokens in the training text too."""
        tokens = concatenate(documents, self.vocab_size, len(self.orders))
        *_, (_, _, numbers) = self._found(tokens)
        return float((numbers[tokens != self.vocab_size] != UNKNOWN).mean())

    def _found(self, tokens: np.ndarray) -> Iterator[tuple[_Order, np.ndarray, np.ndarray]]:
        """For each order, from 1: the numbers of the context of each token and of the n-gram that ends with it."""
        contexts = np.zeros(len(tokens), np.int64)
        for each in self.orders:
            keys = contexts * (self.vocab_size + 1) + tokens
            numbers = np.where(contexts == UNKNOWN, UNKNOWN, find_sorted(each.keys, keys))
            yield each, contexts, numbers
            contexts = np.concatenate([[UNKNOWN], numbers[:-1]])


def concatenate(documents: Sequence[np.ndarray], start: int, order: int) -> np.ndarray:
    """Concatenates documents, each after order - 1 start tokens (at least one, as `NGrams` shifts by one position).

    >>> concatenate([np.array([4, 5]), np.array([6])], start=9, order=3).tolist()
    [9, 9, 4, 5, 9, 9, 6]
    """
    num_starts = max(order - 1, 1)
    out = np.full(sum(map(len, documents)) + num_starts * len(documents), start, np.int32)
    position = 0
    for each in documents:
        position += num_starts
        out[position : position + len(each)] = each
        position += len(each)
    return out


def _unique(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the sorted unique keys, the first position of each, and the index of the key at each position."""
    order = keys.argsort(kind="stable")
    keys = keys[order]
    is_new = np.concatenate([[True], keys[1:] != keys[:-1]])
    numbers = np.empty(len(keys), np.int32)
    numbers[order] = np.cumsum(is_new, dtype=np.int32) - 1
    return keys[is_new], order[is_new], numbers


def _count(numbers: np.ndarray, num: int) -> np.ndarray:
    return np.bincount(numbers, minlength=num).astype(np.int32)


def _smooth(keys: np.ndarray, counts: np.ndarray, num_contexts: int, vocab_size: int) -> _Order:
    counts[keys % (vocab_size + 1) == vocab_size] = 0  # start tokens
    contexts = (keys // (vocab_size + 1)).astype(np.int32)
    discount = np.concatenate([[0], discounts(counts)]).astype(np.float32)[np.minimum(counts, 3)]
    totals = np.bincount(contexts, counts, num_contexts).astype(np.float32)
    backoff = np.bincount(contexts, discount, num_contexts).astype(np.float32)
    backoff[totals == 0] = totals[totals == 0] = 1
    discounted = counts.astype(np.float32) - discount
    discounted /= totals[contexts]
    return _Order(keys, discounted, backoff / totals)


def discounts(counts: np.ndarray) -> np.ndarray:
    """Returns the discounts of counts 1, 2 and 3 or more: D_i = i - (i + 1) Y n_(i+1) / n_i, where n_i n-grams have
    count i and Y = n_1 / (n_1 + 2 n_2)."""
    n = np.bincount(counts[counts <= 4], minlength=5).astype(float)
    if (n[1:5] == 0).any():
        return np.array(DEFAULT_DISCOUNTS)
    i = np.arange(1, 4)
    estimates = i - (i + 1) * n[1] / (n[1] + 2 * n[2]) * n[2:5] / n[1:4]
    return estimates if ((estimates > 0) & (estimates < i)).all() else np.array(DEFAULT_DISCOUNTS)
