"""The work of the worker processes of a corpus build: clean, hash, split into sentences, encode.

Results do not depend on how documents are grouped into batches, so any number of workers gives the same corpus.
"""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hornbook.data.cleaning import clean_wiki
from hornbook.data.contamination import EXCLUDED, ExcludedTexts
from hornbook.data.duplicates import band_hashes, counted_lines, hash_lines, hash_words
from hornbook.data.shards import token_dtype
from hornbook.data.worker_pool import WorkerPool
from hornbook.lifecycle.stopping import die_with_parent

DOCUMENT_DTYPE = np.dtype(
    [
        ("hash", np.uint64),
        ("sentences", np.int64),  # as split, including those without tokens
        ("lines", np.int64),  # that the report on repeated lines counts
        ("bytes", np.int64),
        ("words", np.int64),  # separated by white space
        ("is_excluded", bool),  # whether it shares text with an evaluation set
    ]
)


@dataclass(slots=True)
class EncodedDocuments:
    """A batch of documents as flat arrays. Sentences without tokens are dropped. With a linker, `entity_tokens` are the
    indices of the tokens at which a mention of an entity starts, and `entity_ids` the numbers of the entities."""

    tokens: np.ndarray
    word_starts: np.ndarray
    sentence_lengths: np.ndarray
    num_sentences: np.ndarray  # with tokens, of each document
    documents: np.ndarray  # of `DOCUMENT_DTYPE`
    bands: np.ndarray  # hashes that near duplicates share, a row per document; without columns if not needed
    line_hashes: np.ndarray
    cleaned: dict[str, int]
    entity_tokens: np.ndarray
    entity_ids: np.ndarray


class EntityLinkerProtocol(Protocol):
    """What `EntityLinker` (`graph/linking.py`), which this package cannot import, does. It can be pickled."""

    fingerprint: str

    def link(
        self, texts: Sequence[str], known: Sequence[Sequence[tuple[int, int, str]] | None]
    ) -> list[list[tuple[int, int, int]]]:
        """(start, end, entity id) of the entities that each text mentions, or of those that are known already."""
        ...


def clean_text(text: str, clean: str | None) -> tuple[str, dict[str, int]]:
    return clean_wiki(text) if clean == "wiki" else (text, {})


def encode_documents(
    tokenizer,
    texts: list[str],
    file_mentions: Sequence | None = None,
    *,
    clean: str | None = None,
    near_duplicates: bool = False,
    excluded: ExcludedTexts | None = None,
    linker: EntityLinkerProtocol | None = None,
) -> EncodedDocuments:
    """Encodes documents; `file_mentions` has the mentions that their files give, None for a text without them."""
    from hornbook.text.sentences import split_sentences

    sentences, lines, rows, bands, cleaned_texts, cleaned = [], [], [], [], [], Counter()
    for text in texts:
        text, counts = clean_text(text, clean)
        cleaned.update(counts)
        cleaned_texts.append(text)
        text_sentences, text_lines, words = split_sentences(text), counted_lines(text), text.split()
        sentences += text_sentences
        lines += text_lines
        is_excluded = excluded is not None and excluded.overlap(text)
        sizes = len(text_sentences), len(text_lines), len(text.encode()), len(words)
        rows.append((hash_words(words), *sizes, is_excluded))
        bands.append(band_hashes(text) if near_duplicates else np.empty(0, np.uint64))
    documents = np.array(rows, DOCUMENT_DTYPE)
    encoded = tokenizer.encode_plain(sentences, with_offsets=linker is not None)
    entity_tokens = entity_ids = np.zeros(0, np.int64)
    if linker is not None:
        mentions = linker.link(cleaned_texts, [None] * len(texts) if file_mentions is None else file_mentions)
        entity_tokens, entity_ids = _aligned(cleaned_texts, sentences, documents["sentences"], encoded, mentions)
    lengths = np.asarray(encoded.lengths, np.int64)
    document_of = np.repeat(np.arange(len(texts)), documents["sentences"])
    return EncodedDocuments(
        tokens=np.asarray(encoded.ids).astype(token_dtype(tokenizer.vocab_size)),
        word_starts=np.asarray(encoded.word_starts, bool),
        sentence_lengths=lengths[lengths > 0].astype(np.int32),
        num_sentences=np.bincount(document_of[lengths > 0], minlength=len(texts)),
        documents=documents,
        bands=np.array(bands, np.uint64),
        line_hashes=hash_lines(lines),
        cleaned=dict(cleaned),
        entity_tokens=entity_tokens,
        entity_ids=entity_ids,
    )


def _aligned(texts, sentences, num_sentences, encoded, mentions) -> tuple[np.ndarray, np.ndarray]:
    """The index of the first token of each mention, and its entity; a token has at most one. Characters are counted
    over all texts of the batch. A text is the concatenation of its sentences, unless it has none."""
    text_starts = np.cumsum([0, *map(len, texts)])
    sizes = np.array([len(sentence) for sentence in sentences], np.int64)
    starts = np.cumsum(sizes) - sizes
    first_sentences = (np.cumsum(num_sentences) - num_sentences)[num_sentences > 0]
    shifts = text_starts[:-1][num_sentences > 0] - starts[first_sentences]
    starts += np.repeat(shifts, num_sentences[num_sentences > 0])
    offsets = encoded.offsets + np.repeat(starts, encoded.lengths)[:, None]
    shifted = [
        (text_start + start, text_start + end, entity)
        for text_start, of_text in zip(text_starts, mentions, strict=False)
        for start, end, entity in of_text
    ]
    return mention_tokens(offsets, shifted)


def mention_tokens(offsets: np.ndarray, mentions: Sequence[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """(index of the first token, entity) of each mention, in the order of the tokens. A mention without a token is left
    out; of several mentions that start in one token the first is kept. `offsets` are those of the tokens, T x 2.

    >>> [each.tolist() for each in mention_tokens(np.array([[0, 3], [3, 11], [12, 13]]), [(4, 11, 7), (12, 13, 8)])]
    [[1, 2], [7, 8]]
    """
    if not len(mentions) or not len(offsets):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    starts, ends, entities = np.array(sorted(mentions), np.int64).T
    tokens = np.searchsorted(np.maximum.accumulate(offsets[:, 1]), starts, side="right")
    is_found = tokens < len(offsets)
    is_found[is_found] = offsets[tokens[is_found], 0] < ends[is_found]
    tokens, entities = tokens[is_found], entities[is_found]
    tokens, firsts = np.unique(tokens, return_index=True)
    return tokens, entities[firsts]


class EncodingPool(WorkerPool):
    """Encodes batches in worker processes, or in this one when `workers` is 0. The workers read the tokenizer and the
    word sequences of evaluation sets, if there are any, from the folder. `options` are those of `encode_documents`."""

    def __init__(self, corpus_folder: Path, tokenizer, workers: int, **options: Any):
        super().__init__(workers, _start_worker, (corpus_folder, options))
        self._encode = _encode_in_worker if workers else _encoder(corpus_folder, tokenizer, options)
        # Two batches per worker keep it busy while this process writes a shard; more would only take memory.
        self.max_in_flight = 2 * workers + 1

    def submit(self, texts: list[str], file_mentions: list | None = None) -> Future:
        return super().submit(self._encode, texts, file_mentions)


_encode: Callable[..., EncodedDocuments]  # of a worker process


def _start_worker(corpus_folder: Path, options: dict[str, Any]) -> None:
    # One thread per process: the processes already use all cores.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["RAYON_NUM_THREADS"] = "1"
    die_with_parent()
    from hornbook.text.tokenizer import Tokenizer

    global _encode
    _encode = _encoder(corpus_folder, Tokenizer.load(corpus_folder), options)


def _encode_in_worker(texts: list[str], file_mentions: list | None) -> EncodedDocuments:
    return _encode(texts, file_mentions)


def _encoder(corpus_folder: Path, tokenizer, options: dict[str, Any]) -> Callable[..., EncodedDocuments]:
    file = corpus_folder / EXCLUDED
    excluded = ExcludedTexts(np.load(file)) if file.exists() else None
    return partial(encode_documents, tokenizer, excluded=excluded, **options)
