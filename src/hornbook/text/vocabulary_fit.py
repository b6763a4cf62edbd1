"""How well a vocabulary fits a text: tokens per word, unknown tokens, vocabulary use, and the words worth adding."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice

import numpy as np

from hornbook.config import checked
from hornbook.text.tokenizer import Tokenizer

WORD, LETTERS = re.compile(r"\w+"), re.compile(r"[^\W\d_]{3,}")
BATCH_TEXTS = 256
MIN_COUNT = 5  # of a word that is added
COUNTED_AT_MOST = 2_000_000  # distinct words in memory; beyond this the rarest are dropped


@dataclass(frozen=True)
class SplitWord:
    word: str
    pieces: list[str]
    count: int


@dataclass(frozen=True)
class VocabularyFit:
    """A word is a run of letters and digits for every tokenizer, so that vocabularies can be compared."""

    num_words: int
    num_tokens: int
    tokens_per_word: float
    """mean number of tokens per word, over all words of the text"""
    unknown_rate: float
    """share of the tokens that are the unknown token"""
    characters_per_token: float
    vocab_size: int
    vocabulary_used: float
    """share of the vocabulary that occurs in the text"""
    longest_splits: list[SplitWord]
    """the words with the most tokens; ties sorted by frequency"""

    def to_dict(self) -> dict:
        return asdict(self)


def measure_fit(tokenizer: Tokenizer, texts: Iterable[str]) -> VocabularyFit:
    """Measures how well a tokenizer fits the texts. Reads them once; memory grows with the number of distinct words.

    >>> measure_fit(tokenizer, ["The cat sat."]).tokens_per_word  # doctest: +SKIP
    1.0
    """
    counts: Counter = Counter()
    used = np.zeros(tokenizer.vocab_size, bool)
    num_tokens = num_characters = num_unknown = 0
    for batch in _batched(texts, BATCH_TEXTS):
        for text in batch:
            num_characters += len(text)
            counts.update(WORD.findall(unicodedata.normalize("NFC", text)))
        ids = tokenizer.encode_plain(batch).ids
        used[ids] = True
        num_tokens += ids.size
        num_unknown += int(np.count_nonzero(ids == tokenizer.unk_id)) if tokenizer.unk_id is not None else 0
    num_words = counts.total()
    if not num_words:
        raise ValueError("the texts contain no words to measure a vocabulary on: check the input files")
    counts = _merge_written_forms(tokenizer, counts)
    words = sorted(counts)
    # the leading space makes a byte-level or unigram tokenizer treat the word as inside a sentence
    batches = _batched((f" {word}" for word in words), BATCH_TEXTS)
    num_pieces = np.concatenate([tokenizer.encode_plain(batch).lengths for batch in batches])
    order = sorted(range(len(words)), key=lambda i: (-num_pieces[i], -counts[words[i]], words[i]))
    return VocabularyFit(
        num_words=num_words,
        num_tokens=num_tokens,
        tokens_per_word=float(np.dot(num_pieces, [counts[word] for word in words])) / num_words,
        unknown_rate=num_unknown / max(num_tokens, 1),
        characters_per_token=num_characters / max(num_tokens, 1),
        vocab_size=tokenizer.vocab_size,
        vocabulary_used=float(used.mean()),
        longest_splits=[SplitWord(words[i], _pieces(tokenizer, words[i]), counts[words[i]]) for i in order[:10]],
    )


def _merge_written_forms(tokenizer: Tokenizer, counts: Counter) -> Counter:
    """Merges the counts of words that the tokenizer normalises alike, such as Hello and HELLO without case."""
    merged: Counter = Counter()
    for word, count in counts.items():
        merged[unicodedata.normalize("NFC", tokenizer.normalize(word).strip()) or word] += count
    return merged


def _pieces(tokenizer: Tokenizer, word: str) -> list[str]:
    ids = tokenizer.encode_plain([f" {word}"]).ids.tolist()
    tokens = [tokenizer.token(token_id) for token_id in ids]
    if tokenizer.kind != "bpe":
        return tokens
    texts = [tokenizer.decode([token_id]) for token_id in ids]
    # a token may be part of a character: then its bytes are shown
    return [token if "\ufffd" in text else text for token, text in zip(tokens, texts, strict=True)]


def _batched(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    remaining = iter(texts)
    while batch := list(islice(remaining, size)):
        yield batch


def words_worth_adding(tokenizer: Tokenizer, documents: Iterable[str], num_words: int) -> list[str]:
    """The `num_words` words whose addition saves the most tokens: count x (tokens - 1), or count x tokens if one of
    them is the unknown token. Only words that occur at least five times are considered.
    """
    num_words = checked(num_words, int, "the number of words to add", low=1)
    counts: Counter = Counter()
    dropped_count = 0
    for text in documents:
        counts.update(LETTERS.findall(tokenizer.normalize(text)))
        if len(counts) > COUNTED_AT_MOST:
            dropped_count += 1  # higher each time, so that the table always shrinks
            counts = Counter({word: count for word, count in counts.items() if count > dropped_count})
    frequent = sorted(word for word, count in counts.items() if count >= MIN_COUNT)
    if not frequent:
        return []
    encoded = tokenizer.encode_plain([f" {word}" for word in frequent])
    ends = np.cumsum(encoded.lengths)
    unknown = np.concatenate([[0], np.cumsum(encoded.ids == (-1 if tokenizer.unk_id is None else tokenizer.unk_id))])
    is_known = unknown[ends] == unknown[ends - encoded.lengths]
    saved = dict(zip(frequent, (encoded.lengths - is_known).tolist(), strict=True))
    saved = {word: counts[word] * num_tokens for word, num_tokens in saved.items() if num_tokens > 0}
    best = sorted(saved, key=lambda word: (-saved[word], word))
    return best[:num_words]
