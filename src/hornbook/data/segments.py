"""Documents, sentence boundaries and segments of a shard, for the sequences that are pairs (`sequences.py`)."""

import numpy as np

from hornbook.data.corpus import Corpus, find
from hornbook.data.shards import Shard, unpack_word_starts


def document_of(shard: Shard, token: int) -> int:
    """The index, within the shard, of the document that contains a token."""
    return find(shard.documents, find(shard.sentences, token, "right") - 1, "right") - 1


def random_other(documents: np.ndarray, own: int, random: np.random.Generator) -> int:
    """A uniformly random document other than `own`, or `own` if there is no other."""
    if len(documents) == 1:
        return own
    index = int(random.integers(len(documents) - 1))
    return int(documents[index + (index >= find(documents, own, "left"))])


def random_sentences(
    corpus: Corpus, document: int, capacity: int, random: np.random.Generator
) -> tuple[Shard, int, int]:
    """(shard, start, stop) of whole sentences from a random one on, until they have `capacity` tokens or the document
    ends."""
    shard, first, last = corpus.document(document)
    start, document_stop = int(shard.sentences[random.integers(first, last)]), int(shard.sentences[last])
    return shard, start, min(boundary_from(shard, start + max(capacity, 1)), document_stop)


def boundary_from(shard: Shard, token: int) -> int:
    """The first sentence boundary at or after a token."""
    return int(shard.sentences[min(find(shard.sentences, token, "left"), len(shard.sentences) - 1)])


def boundary_to(shard: Shard, token: int) -> int:
    """The last sentence boundary at or before a token."""
    return int(shard.sentences[find(shard.sentences, max(0, token), "right") - 1])


def boundaries_inside(shard: Shard, start: int, stop: int) -> np.ndarray:
    """Sentence boundaries strictly between two tokens."""
    return shard.sentences[find(shard.sentences, start, "right") : find(shard.sentences, stop, "left")]


def with_neighbour(shard: Shard, start: int, stop: int, capacity: int) -> tuple[int, int, int]:
    """(start, split, stop) of a chunk without a sentence boundary inside, extended by the text after it or, at the end
    of its document, by the sentence before it; if there is neither, split equals stop."""
    document = document_of(shard, start)
    first, last = (int(shard.sentences[shard.documents[i]]) for i in (document, document + 1))
    if stop < last:
        return start, stop, min(boundary_from(shard, stop + max(1, capacity - (stop - start))), last)
    if start > first:
        return boundary_to(shard, start - 1), start, stop
    return start, stop, stop


def are_one_sentence_documents(starts: np.ndarray, stops: np.ndarray, shard: Shard) -> np.ndarray:
    """For each chunk, whether it is a whole document of one sentence."""
    is_single = np.diff(np.asarray(shard.documents, np.int64)) == 1
    firsts = np.asarray(shard.sentences[shard.documents[:-1][is_single]])
    lasts = np.asarray(shard.sentences[shard.documents[1:][is_single]])
    return np.isin(starts, firsts) & np.isin(stops, lasts)


def split_near_middle(shard: Shard, start: int, stop: int, random: np.random.Generator) -> int:
    """The word start nearest to the middle (ties are broken at random), or the middle if there is no word start."""
    middle = (start + stop + random.random() - 0.5) / 2
    inside = start + 1 + np.flatnonzero(unpack_word_starts(shard.word_starts, start + 1, stop))
    return int(inside[np.abs(inside - middle).argmin()]) if len(inside) else round(middle)


def truncate_pair(
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
