"""The work of the worker processes of a corpus build: clean, hash, split into sentences, encode.

Results do not depend on how documents are grouped into chunks, so any number of workers gives the same corpus.
"""

import contextlib
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from hornbook.data.cleaning import clean_wiki
from hornbook.data.contamination import EXCLUDED, ExcludedTexts
from hornbook.data.duplicates import band_hashes, counted_lines, hash_lines, hash_text
from hornbook.data.shards import token_dtype
from hornbook.lifecycle.stopping import die_with_parent, starting_children


@dataclass(slots=True)
class Encoded:
    """A chunk of documents as flat arrays. Sentences without tokens are dropped."""

    tokens: np.ndarray
    word_starts: np.ndarray
    sentence_lengths: np.ndarray
    document_sentences: np.ndarray
    document_hashes: np.ndarray
    line_hashes: np.ndarray
    document_lines: np.ndarray
    document_bytes: np.ndarray
    document_excluded: np.ndarray  # whether a document shares text with an evaluation set
    document_bands: np.ndarray  # hashes that near duplicates share, a row per document; without columns if not needed
    cleaned: dict[str, int]


def clean_text(text: str, clean: str | None) -> tuple[str, dict[str, int]]:
    return clean_wiki(text) if clean == "wiki" else (text, {})


def encode_chunk(
    tokenizer,
    texts: list[str],
    clean: str | None,
    near_duplicates: bool = False,
    excluded: ExcludedTexts | None = None,
) -> Encoded:
    from hornbook.text.sentences import split_sentences

    sentences, hashes, lines = [], [], []
    num_sentences, num_lines, num_bytes, is_excluded, bands = [], [], [], [], []
    cleaned = Counter()
    for text in texts:
        text, counts = clean_text(text, clean)
        cleaned.update(counts)
        text_sentences = split_sentences(text)
        counted = counted_lines(text)
        sentences += text_sentences
        lines += counted
        hashes.append(hash_text(text))
        num_sentences.append(len(text_sentences))
        num_lines.append(len(counted))
        num_bytes.append(len(text.encode()))
        is_excluded.append(excluded is not None and excluded.are_in(text))
        bands.append(band_hashes(text) if near_duplicates else np.empty(0, np.uint64))
    encoded = tokenizer.encode_sentences(sentences)
    lengths = np.asarray(encoded.lengths, np.int64)
    document_of = np.repeat(np.arange(len(texts)), num_sentences)
    return Encoded(
        tokens=np.asarray(encoded.ids).astype(token_dtype(tokenizer.vocab_size)),
        word_starts=np.asarray(encoded.word_starts, bool),
        sentence_lengths=lengths[lengths > 0].astype(np.int32),
        document_sentences=np.bincount(document_of[lengths > 0], minlength=len(texts)),
        document_hashes=np.array(hashes, np.uint64),
        line_hashes=hash_lines(lines),
        document_lines=np.array(num_lines, np.int64),
        document_bytes=np.array(num_bytes, np.int64),
        document_excluded=np.array(is_excluded, bool),
        document_bands=np.array(bands, np.uint64),
        cleaned=dict(cleaned),
    )


class EncodingPool:
    """Encodes chunks in worker processes, or in this one when `workers` is 0. The workers read the tokenizer and the
    word sequences of evaluation sets, if there are any, from the folder."""

    def __init__(
        self, tokenizer_folder: Path, tokenizer, clean: str | None, workers: int, near_duplicates: bool = False
    ):
        self._tokenizer = tokenizer
        self._options = (clean, near_duplicates, _excluded_in(tokenizer_folder))
        self._executor = None
        # Two chunks per worker keep it busy while this process writes a shard; more would only take memory.
        self.most_in_flight = max(1, 2 * workers + 1)
        if workers:
            self._executor = ProcessPoolExecutor(
                workers,
                mp_context=get_context("spawn"),
                initializer=_start_worker,
                initargs=(str(tokenizer_folder), clean, near_duplicates),
            )

    def submit(self, texts: list[str]) -> Future:
        if not self._executor:
            future = Future()
            future.set_result(encode_chunk(self._tokenizer, texts, *self._options))
            return future
        with starting_children(), _main_hidden():
            return self._executor.submit(_encode, texts)

    def close(self) -> None:
        """Ends the workers when all submitted work is done."""
        if self._executor:
            self._executor.shutdown(wait=True)
            self._executor = None

    def kill(self) -> None:
        """Ends the workers immediately and discards their work, unless they are closed already."""
        if self._executor:
            for process in list((self._executor._processes or {}).values()):
                process.kill()
            self._executor.shutdown(wait=True, cancel_futures=True)
            self._executor = None


_hiding = threading.Lock()


@contextlib.contextmanager
def _main_hidden() -> Iterator[None]:
    """Context in which spawned processes do not import the user's main script, which would run it again."""
    with _hiding:
        main = sys.modules["__main__"]
        hidden = {name: vars(main).pop(name) for name in ("__spec__", "__file__") if name in vars(main)}
        main.__spec__ = None
        try:
            yield
        finally:
            vars(main).pop("__spec__")
            vars(main).update(hidden)


_worker = {}


def _start_worker(tokenizer_folder: str, clean: str | None, near_duplicates: bool = False) -> None:
    # One thread per process: the processes already use all cores.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["RAYON_NUM_THREADS"] = "1"
    die_with_parent()
    from hornbook.text.tokenizer import Tokenizer

    _worker["tokenizer"] = Tokenizer.load(Path(tokenizer_folder))
    _worker["options"] = (clean, near_duplicates, _excluded_in(Path(tokenizer_folder)))


def _encode(texts: list[str]) -> Encoded:
    return encode_chunk(_worker["tokenizer"], texts, *_worker["options"])


def _excluded_in(folder: Path) -> ExcludedTexts | None:
    file = Path(folder) / EXCLUDED
    return ExcludedTexts(np.load(file)) if file.exists() else None
