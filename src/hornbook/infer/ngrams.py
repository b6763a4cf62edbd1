"""The baseline of language models: n-grams with interpolated modified Kneser-Ney smoothing (Chen and Goodman 1998).

p_k(w | h) = (c(hw) - D(c(hw))) / c(h) + g(h) p_(k-1)(w | h without its first token),   p_0 = 1 / vocabulary

c counts occurrences at the highest order, and below it how many different tokens stand before (continuations). D is one
of three discounts, for counts of 1, 2 and more, estimated from how many n-grams occur once to four times; g(h) is what
they took away. Each document begins with as many starts as the longest context has tokens; none is ever predicted.

Grams of k tokens are numbered: one is (number of its first k - 1 tokens, last token), and a table holds those pairs
sorted. Of English text, training needs about 90 bytes a token, 7 GB for 80 million, and keeps 40.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

ORDER = 5
UNKNOWN = -1  # the number of a gram that was never seen
USUAL_DISCOUNTS = (0.5, 1.0, 1.5)  # where there are too few n-grams to estimate them


@dataclass(frozen=True)
class _Order:
    """Grams of k tokens."""

    keys: np.ndarray  # int64, sorted: context x (vocabulary + 1) + last token; a gram's number is its place here
    own: np.ndarray  # float32, of each gram: (c - D) / c(h)
    left: np.ndarray  # float32, of each context, a gram of k - 1 tokens: g(h); 1 where nothing follows it


class NGrams:
    """
    >>> model = NGrams.trained([np.array([0, 1, 2]), np.array([0, 1, 1])], vocab_size=3)
    >>> np.exp(model.scores([np.array([0])])[0]).round(2)
    array([0.96])
    """

    def __init__(self, vocab_size: int, orders: list[_Order]):
        self.vocab_size = vocab_size
        self.orders = orders

    @classmethod
    def trained(cls, documents: Sequence[np.ndarray], vocab_size: int, order: int = ORDER) -> "NGrams":
        """From tokens below `vocab_size`."""
        tokens = laid_out(documents, vocab_size, order)
        orders, num_contexts = [], 1
        keys, places = np.zeros(1, np.int64), np.zeros(len(tokens), np.int32)  # of order 0: one gram, met everywhere
        for k in range(1, order + 1):
            # A gram's context ends one place before it. That of the very first is never looked at: it is a start.
            contexts = np.roll(places, 1)
            longer_keys, first_met, longer_places = _numbered(contexts.astype(np.int64) * (vocab_size + 1) + tokens)
            if k > 1:
                # Each different gram that is one token longer is another token before.
                continuations = _counted(places[first_met], len(keys))
                orders.append(_smoothed(keys, continuations, num_contexts, vocab_size))
            num_contexts, keys, places = len(keys), longer_keys, longer_places
        occurrences = _counted(places, len(keys))
        del contexts, tokens, places, longer_places, first_met  # 20 bytes a token, where memory is needed most
        return cls(vocab_size, [*orders, _smoothed(keys, occurrences, num_contexts, vocab_size)])

    def scores(self, documents: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Of each document, the log-probability of every token."""
        order = len(self.orders)
        tokens = laid_out(documents, self.vocab_size, order)
        probabilities = np.full(len(tokens), 1 / self.vocab_size)
        contexts = np.zeros(len(tokens), np.int64)
        for each in self.orders:
            keys = contexts * (self.vocab_size + 1) + tokens
            numbers = np.searchsorted(each.keys, keys).clip(max=len(each.keys) - 1)
            numbers[(each.keys[numbers] != keys) | (contexts == UNKNOWN)] = UNKNOWN
            own = np.where(numbers == UNKNOWN, 0, each.own[numbers])
            probabilities = own + np.where(contexts == UNKNOWN, 1, each.left[contexts]) * probabilities
            contexts = np.concatenate([[UNKNOWN], numbers[:-1]])
        logarithms = np.log(probabilities[tokens != self.vocab_size])
        return np.split(logarithms, np.cumsum([len(each) for each in documents])[:-1])


def laid_out(documents: Sequence[np.ndarray], start: int, order: int) -> np.ndarray:
    """All documents end to end, each after order - 1 starts (at least one, for a gram's place in its table).

    >>> laid_out([np.array([4, 5]), np.array([6])], start=9, order=3).tolist()
    [9, 9, 4, 5, 9, 9, 6]
    """
    num_starts = max(order - 1, 1)
    out = np.full(sum(map(len, documents)) + num_starts * len(documents), start, np.int32)
    place = 0
    for each in documents:
        place += num_starts
        out[place : place + len(each)] = each
        place += len(each)
    return out


def _numbered(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The different keys in order, where each is first met, and the number of the key at each place."""
    order = keys.argsort(kind="stable")
    keys = keys[order]
    is_new = np.concatenate([[True], keys[1:] != keys[:-1]])
    numbers = np.empty(len(keys), np.int32)
    numbers[order] = np.cumsum(is_new, dtype=np.int32) - 1
    return keys[is_new], order[is_new], numbers


def _counted(numbers: np.ndarray, num: int) -> np.ndarray:
    return np.bincount(numbers, minlength=num).astype(np.int32)


def _smoothed(keys: np.ndarray, counts: np.ndarray, num_contexts: int, vocab_size: int) -> _Order:
    counts[keys % (vocab_size + 1) == vocab_size] = 0  # a start
    contexts = (keys // (vocab_size + 1)).astype(np.int32)
    taken = np.concatenate([[0], discounts(counts)]).astype(np.float32)[np.minimum(counts, 3)]
    totals = np.bincount(contexts, counts, num_contexts).astype(np.float32)
    left = np.bincount(contexts, taken, num_contexts).astype(np.float32)
    left[totals == 0] = totals[totals == 0] = 1
    own = counts.astype(np.float32) - taken
    own /= totals[contexts]
    return _Order(keys, own, left / totals)


def discounts(counts: np.ndarray) -> np.ndarray:
    """What is taken from counts of 1, of 2, and of 3 and more: i - (i + 1) Y n_(i+1) / n_i, where n_i grams have count
    i and Y = n_1 / (n_1 + 2 n_2)."""
    n = np.bincount(counts[counts <= 4], minlength=5).astype(float)
    if (n[1:5] == 0).any():
        return np.array(USUAL_DISCOUNTS)
    i = np.arange(1, 4)
    found = i - (i + 1) * n[1] / (n[1] + 2 * n[2]) * n[2:5] / n[1:4]
    return found if ((found > 0) & (found < i)).all() else np.array(USUAL_DISCOUNTS)
