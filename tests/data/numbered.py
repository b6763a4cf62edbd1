"""Corpora whose tokens are all different, so that a token identifies its position."""

import json
from functools import cache
from pathlib import Path

import numpy as np

from hornbook.data.corpus import Corpus
from hornbook.data.shards import COUNTS, FORMAT_VERSION, ShardWriter, content_fingerprint
from hornbook.text.tokenizer import Tokenizer

FIRST = 1000  # the first token; special tokens lie below

Lengths = list[list[list[int]]]  # tokens of each sentence of each document of each shard


def is_word_start(tokens: np.ndarray) -> np.ndarray:
    """The word starts of these corpora follow from the tokens."""
    return np.asarray(tokens) * 7 % 5 < 3


def numbered_corpus(
    folder: Path, tokenizer_folder: Path, lengths: Lengths, held_out_fraction: float = 0.01, first: int = FIRST
) -> Corpus:
    """A corpus of sentences of these lengths; its tokens are `first`, `first` + 1 and so on."""
    total = sum(sum(sentences) for documents in lengths for sentences in documents)
    return corpus_of(np.arange(first, first + total), lengths, folder, tokenizer_folder, held_out_fraction)


def corpus_of(
    tokens: np.ndarray, lengths: Lengths, folder: Path, tokenizer_folder: Path, held_out_fraction: float
) -> Corpus:
    """A corpus of these tokens in sentences of these lengths."""
    folder.mkdir(parents=True)
    Tokenizer.load(tokenizer_folder).save(folder)
    writer = ShardWriter(folder, np.dtype(np.uint32))
    entries, rest = [], tokens
    for documents in lengths:
        for sentences in documents:
            here, rest = np.split(rest, [sum(sentences)])
            writer.add(here, is_word_start(here), np.array(sentences), np.array([0]))
        entries.append(writer.close_shard())
    tokenizer_fingerprint = Tokenizer.load(folder).fingerprint
    manifest = {
        "format_version": FORMAT_VERSION,
        "fingerprint": content_fingerprint(tokenizer_fingerprint, entries),
        "tokenizer_fingerprint": tokenizer_fingerprint,
        "vocab_size": int(tokens.max()) + 1,
        "totals": {what: sum(entry[what] for entry in entries) for what in COUNTS},
        "shards": entries,
        "problems": {},
        "settings": {},
        "sources": [],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    np.save(folder / "token_counts.npy", np.bincount(tokens))
    return Corpus(folder, held_out_fraction)


def random_lengths(
    random: np.random.Generator, num_shards: int, num_documents: int, longest: int, giants: bool = False
) -> Lengths:
    """Documents of 1 to 12 sentences, a quarter of them of one; with giants, some sentences are far longer."""

    def document() -> list[int]:
        num_sentences = 1 if random.random() < 0.25 else int(random.integers(2, 13))
        found = random.integers(1, longest + 1, num_sentences)
        is_giant = giants & (random.random(num_sentences) < 0.05)
        return np.where(is_giant, found * int(random.integers(5, 40)), found).tolist()

    return [[document() for _ in range(num_documents)] for _ in range(num_shards)]


@cache
def _document_ends(corpus: Corpus, first: int) -> np.ndarray:
    ends, base = [], first
    for shard in corpus.shards:
        ends.append(base + np.asarray(shard.sentences, np.int64)[np.asarray(shard.documents, np.int64)[1:]])
        base += len(shard.tokens)
    return np.concatenate(ends)


def documents_of(corpus: Corpus, tokens: np.ndarray, first: int = FIRST) -> np.ndarray:
    """The number of the document that contains each token of a numbered corpus."""
    return np.searchsorted(_document_ends(corpus, first), tokens, side="right")


@cache
def sentence_starts_of(corpus: Corpus, first: int = FIRST) -> np.ndarray:
    """The first token of every sentence."""
    starts, base = [], first
    for shard in corpus.shards:
        starts.append(base + np.asarray(shard.sentences[:-1], np.int64))
        base += len(shard.tokens)
    return np.concatenate(starts)
