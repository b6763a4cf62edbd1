"""Finding the words of a text that a vocabulary breaks into pieces, to add them to it."""

import re
from collections import Counter
from collections.abc import Iterable

import numpy as np

from hornbook.config import checked
from hornbook.text.tokenizer import Tokenizer

WORD = re.compile(r"[^\W\d_]{3,}")
LEAST_COUNT = 5
COUNTED_AT_MOST = 2_000_000  # different words held in memory; beyond it the rarest are forgotten


def words_worth_adding(tokenizer: Tokenizer, documents: Iterable[str], num_words: int) -> list[str]:
    """The words whose addition gains most: count x (pieces - 1), or the whole count x pieces where one is unknown.

    Only words seen at least five times are looked at.
    """
    num_words = checked(num_words, int, "the number of words to add", low=1)
    counts: Counter = Counter()
    forgotten = 0
    for text in documents:
        counts.update(WORD.findall(tokenizer.normalise(text)))
        if len(counts) > COUNTED_AT_MOST:
            forgotten += 1  # one more each time: what is left always shrinks
            counts = Counter({word: count for word, count in counts.items() if count > forgotten})
    frequent = sorted(word for word, count in counts.items() if count >= LEAST_COUNT)
    if not frequent:
        return []
    encoded = tokenizer.encode_sentences([f" {word}" for word in frequent])
    ends = np.cumsum(encoded.lengths)
    unknown = np.concatenate([[0], np.cumsum(encoded.ids == (-1 if tokenizer.unk_id is None else tokenizer.unk_id))])
    is_known = unknown[ends] == unknown[ends - encoded.lengths]
    gained = dict(zip(frequent, (encoded.lengths - is_known).tolist(), strict=True))
    gained = {word: counts[word] * pieces for word, pieces in gained.items() if pieces > 0}
    best = sorted(gained, key=lambda word: (-gained[word], word))
    return best[:num_words]
