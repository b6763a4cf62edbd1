"""Finds words that a vocabulary splits into several tokens and that are worth adding to it."""

import re
from collections import Counter
from collections.abc import Iterable

import numpy as np

from hornbook.config import checked
from hornbook.text.tokenizer import Tokenizer

WORD = re.compile(r"[^\W\d_]{3,}")
MIN_COUNT = 5
COUNTED_AT_MOST = 2_000_000  # distinct words in memory; beyond this the rarest are dropped


def words_worth_adding(tokenizer: Tokenizer, documents: Iterable[str], num_words: int) -> list[str]:
    """The `num_words` words whose addition saves the most tokens: count x (tokens - 1), or count x tokens if one of
    them is the unknown token. Only words that occur at least five times are considered.
    """
    num_words = checked(num_words, int, "the number of words to add", low=1)
    counts: Counter = Counter()
    dropped_count = 0
    for text in documents:
        counts.update(WORD.findall(tokenizer.normalize(text)))
        if len(counts) > COUNTED_AT_MOST:
            dropped_count += 1  # higher each time, so that the table always shrinks
            counts = Counter({word: count for word, count in counts.items() if count > dropped_count})
    frequent = sorted(word for word, count in counts.items() if count >= MIN_COUNT)
    if not frequent:
        return []
    encoded = tokenizer.encode_sentences([f" {word}" for word in frequent])
    ends = np.cumsum(encoded.lengths)
    unknown = np.concatenate([[0], np.cumsum(encoded.ids == (-1 if tokenizer.unk_id is None else tokenizer.unk_id))])
    is_known = unknown[ends] == unknown[ends - encoded.lengths]
    saved = dict(zip(frequent, (encoded.lengths - is_known).tolist(), strict=True))
    saved = {word: counts[word] * num_tokens for word, num_tokens in saved.items() if num_tokens > 0}
    best = sorted(saved, key=lambda word: (-saved[word], word))
    return best[:num_words]
