"""A built corpus, opened for training: memory-mapped shards and the split into training and held-out documents.

Whether a document is held out depends only on its index in the corpus, never on the seed of a run: a model initialised
from another one on the same corpus is not trained on the documents that the first one was validated on.
"""

import contextlib
import resource
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

import numpy as np

from hornbook.data.build_state import PROGRESS
from hornbook.data.remote import RemoteCorpus, is_url, origin_of
from hornbook.data.shards import (
    MANIFEST,
    REPAIR,
    Shard,
    find,
    load_array,
    open_shard,
    parts_of,
    read_manifest,
    refuse_changed,
    shard_file,
)
from hornbook.files import num_cores, read_json, write_json
from hornbook.text.tokenizer import Tokenizer

VERIFIED = Path("chunks") / "verified.json"
SMALL_CORPUS_DOCUMENTS = 100_000
MIN_HELD_OUT_TOKENS = 50_000  # with fewer, the loss varies by more than 0.02 between random masks
MAX_HELD_OUT_FRACTION = 0.05
OPEN_FILES = 10_240  # where there is no hard limit; macOS refuses an unlimited number


class Corpus:
    """The corpus in a folder that `hornbook corpus build` wrote, or its copy at a URL (`remote.py`).

    >>> corpus = Corpus("corpus")                                   # doctest: +SKIP
    >>> corpus.num_tokens, corpus.shards[0].tokens[:5]              # doctest: +SKIP
    """

    def __init__(
        self,
        folder: Path | str,
        held_out_fraction: float = 0.01,
        verified: bool = False,
        remote: RemoteCorpus | None = None,
    ):
        """`verified`: whether the files were already compared with the manifest, by another process. `remote`: the
        corpus at the URL `folder`, if another process opened it."""
        self.origin = origin_of(folder)
        self._remote = RemoteCorpus(self.origin) if remote is None and is_url(folder) else remote
        self.folder = Path(folder) if self._remote is None else self._remote.folder
        if not self.folder.exists():
            raise ValueError(f"there is no folder {folder}; make a corpus with 'hornbook corpus build'")
        if not (self.folder / MANIFEST).exists():
            if (self.folder / PROGRESS).exists():
                raise ValueError(f"{folder} is an unfinished corpus: run 'hornbook corpus build' again to resume it")
            raise ValueError(
                f"{folder} is not a corpus: it has no manifest.json; make one with 'hornbook corpus build'"
            )
        self.manifest = read_manifest(self.folder)
        self.held_out_fraction = held_out_fraction
        parts = parts_of(self.manifest["settings"])
        allow_open_files()
        if self._remote is not None:
            self.shards: list[Shard] = self._remote.shards()
        else:
            if not verified:
                verify(self.folder, self.manifest)
            self.shards = [open_shard(self.folder, i, parts) for i in range(len(self.manifest["shards"]))]
        self.fingerprint: str = self.manifest["fingerprint"]
        # The graph to whose entities the texts are linked; None if they are not linked.
        self.graph_fingerprint: str | None = self.manifest["settings"].get("graph")
        self.num_tokens: int = self.manifest["totals"]["tokens"]
        # Shard i holds the documents first_document[i] to first_document[i + 1] - 1.
        self.first_document = np.concatenate([[0], np.cumsum([len(s.documents) - 1 for s in self.shards])])
        self.num_documents = int(self.first_document[-1])

    def __reduce__(self):
        # Pickled for a worker process, which opens the files itself instead of receiving their contents.
        folder = self.folder if self._remote is None else self.origin
        return Corpus, (folder, self.held_out_fraction, True, self._remote)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        tokenizer = Tokenizer.load(self.folder)
        if tokenizer.fingerprint != self.manifest["tokenizer_fingerprint"]:
            raise ValueError(
                f"{self.folder / 'tokenizer.json'} is not the tokenizer that the corpus was built with: restore that "
                "one, or build the corpus again into another folder"
            )
        return tokenizer

    @property
    def num_words(self) -> int:
        """The words of its texts, separated by white space."""
        return self.manifest["totals"]["text_words"]

    @property
    def token_counts(self) -> np.ndarray:
        path = self.folder / "token_counts.npy"
        try:
            counts = load_array(path)
            if counts.shape != (self.manifest["vocab_size"],) or counts.sum() != self.num_tokens or counts.min() < 0:
                raise ValueError(f"it does not hold the counts of the corpus's {self.num_tokens} tokens")
        except (OSError, ValueError) as error:
            raise ValueError(f"{path} cannot be read ({error}): {REPAIR}") from None
        return counts

    @cached_property
    def _threshold(self) -> int:
        """Documents whose hashed index is below this threshold are held out.

        The threshold gives about the fraction `held_out_fraction`; a small corpus holds out more, up to
        `MIN_HELD_OUT_TOKENS` or `MAX_HELD_OUT_FRACTION`, for a meaningful validation loss.
        """
        if self.num_documents < 2 or self.held_out_fraction <= 0:
            return 0
        threshold = int(self.held_out_fraction * 2**64)
        if self.num_documents > SMALL_CORPUS_DOCUMENTS:
            return threshold
        lengths = [shard.document_lengths() for shard in self.shards]
        order = np.argsort(scrambled(np.arange(self.num_documents)))
        tokens = np.cumsum(np.concatenate(lengths)[order])
        min_tokens = min(MIN_HELD_OUT_TOKENS, MAX_HELD_OUT_FRACTION * self.num_tokens)
        last = min(int(np.searchsorted(tokens, min_tokens)), self.num_documents - 2)
        return max(threshold, int(scrambled(order[last : last + 1])[0]) + 1)

    def document(self, index: int) -> tuple[Shard, int, int]:
        """(shard, first sentence, end of sentences) of a document, given its index in the corpus."""
        shard_index = find(self.first_document, index, "right") - 1
        shard, in_shard = self.shards[shard_index], index - int(self.first_document[shard_index])
        return shard, int(shard.documents[in_shard]), int(shard.documents[in_shard + 1])

    def is_held_out(self, documents: np.ndarray) -> np.ndarray:
        """For each document index in the corpus, whether the document is held out for validation."""
        return scrambled(np.asarray(documents)) < np.uint64(min(self._threshold, 2**64 - 1))

    def held_out_in(self, shard_index: int) -> np.ndarray:
        """For each document of a shard, whether it is held out for validation."""
        return self.is_held_out(np.arange(self.first_document[shard_index], self.first_document[shard_index + 1]))


def verify(folder: Path, manifest: dict) -> None:
    """Compares each shard file of a corpus once with the sha256 in the manifest; raises a `ValueError` that names the
    first that differs. `chunks/verified.json` records the size and change time (ctime) of every verified file, so that
    opening the corpus again reads nothing. A copy has other change times and is verified again."""
    verified, parts = [], parts_of(manifest["settings"])
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):  # not verified yet, or a damaged record
        verified = list(read_json(folder / VERIFIED)["shards"])
    stamps = [
        {part: _stamp(shard_file(folder, index, part)) for part in parts} for index in range(len(manifest["shards"]))
    ]
    if verified == stamps:
        return
    unverified = [index for index, stamp in enumerate(stamps) if index >= len(verified) or verified[index] != stamp]

    def check(index: int) -> None:
        for part in parts:
            refuse_changed(shard_file(folder, index, part), manifest["shards"][index]["sha256"][part], REPAIR)

    with ThreadPoolExecutor(num_cores()) as pool:
        list(pool.map(check, unverified))
    with contextlib.suppress(OSError):  # on a read-only disk the files are verified each time
        write_json(folder / VERIFIED, {"shards": stamps})


def _stamp(file: Path) -> list[int]:
    try:
        status = file.stat()
    except FileNotFoundError:
        raise ValueError(f"{file} is missing: {REPAIR}") from None
    return [status.st_size, status.st_ctime_ns]


def allow_open_files() -> None:
    """Raises the open-file limit of this process: each mapped file counts, and 1,024 is a common limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY:
        limit = max(soft, OPEN_FILES) if hard == resource.RLIM_INFINITY else hard
        with contextlib.suppress(OSError, ValueError):  # the system may enforce a limit below the hard one
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def scrambled(values: np.ndarray) -> np.ndarray:
    """A 64-bit hash of each value: the finaliser of SplitMix64 (Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        x = np.asarray(values).astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def shuffled(indices: np.ndarray, size: int, key: int) -> np.ndarray:
    """The position of each index in the random permutation of 0 .. size-1 that `key` selects, without storing it.

    A Feistel network permutes the next power of four; results outside the range are permuted again.
    """
    half_bits = max(1, (max(size - 1, 1).bit_length() + 1) // 2)
    mask = np.uint64((1 << half_bits) - 1)
    shift = np.uint64(half_bits)
    keys = scrambled(np.arange(4) + (key % 2**61))

    def once(x: np.ndarray) -> np.ndarray:
        left, right = x >> shift, x & mask
        for round_key in keys:
            left, right = right, left ^ (scrambled(right ^ round_key) & mask)
        return (left << shift) | right

    out = once(np.asarray(indices).astype(np.uint64))
    while (outside := out >= np.uint64(size)).any():
        out[outside] = once(out[outside])
    return out.astype(np.int64)
