"""A corpus that was built, opened for training: memory-mapped shards, and which documents are held out.

Whether a document is held out depends on its number in the corpus alone, never on a run's seed: a model that goes on
from another on the same corpus does not train on what the first was validated with.
"""

import contextlib
import os
import resource
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from hornbook.data.manifest import MANIFEST, REBUILD, read_manifest
from hornbook.data.shards import PARTS, Shard, load_array, open_shard
from hornbook.data.verification import verify
from hornbook.text.tokenizer import Tokenizer

SMALL_CORPUS_DOCUMENTS = 100_000
LEAST_HELD_OUT_TOKENS = 50_000  # a loss over fewer moves by more than 0.02 between draws of the masks
LARGEST_HELD_OUT_SHARE = 0.05
SPARE_FILES = 256  # descriptors left to everything else: logs, pipes to workers, batches on their way


class Corpus:
    """`folder` as `hornbook corpus build` wrote it.

    >>> corpus = Corpus("corpus")                                   # doctest: +SKIP
    >>> corpus.num_tokens, corpus.shards[0].tokens[:5]              # doctest: +SKIP
    """

    def __init__(self, folder: Path | str, held_out_fraction: float = 0.01, verified: bool = False):
        """`verified`: another process has compared the files with the manifest already."""
        self.folder = Path(folder)
        if not (self.folder / MANIFEST).exists():
            unfinished = (self.folder / "progress.json").exists()
            raise ValueError(
                f"{folder} is a corpus whose building was interrupted: run 'hornbook corpus build' again to resume it"
                if unfinished
                else f"there is no folder {folder}; make a corpus with 'hornbook corpus build'"
                if not self.folder.exists()
                else f"{folder} is not a corpus: it has no manifest.json; make one with 'hornbook corpus build'"
            )
        self.manifest = read_manifest(self.folder)
        self.held_out_fraction = held_out_fraction
        allow_open_files(len(PARTS) * len(self.manifest["shards"]))
        self.shards: list[Shard] = [open_shard(self.folder, i) for i in range(len(self.manifest["shards"]))]
        for shard, entry in zip(self.shards, self.manifest["shards"], strict=True):
            _check_size(self.folder / entry["name"], shard, entry)
        if not verified:
            verify(self.folder, self.manifest, self.shards)
        self.fingerprint: str = self.manifest["fingerprint"]
        # Document d of the corpus is in the shard whose range of numbers holds d.
        self.first_document = np.concatenate([[0], np.cumsum([len(s.documents) - 1 for s in self.shards])])

    def __reduce__(self):
        # A worker process opens the files again instead of being sent their contents.
        return Corpus, (self.folder, self.held_out_fraction, True)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        tokenizer = Tokenizer.load(self.folder)
        if tokenizer.fingerprint != self.manifest["tokenizer_fingerprint"]:
            raise ValueError(
                f"{self.folder / 'tokenizer.json'} is not the tokenizer that the corpus was built with: put that one "
                "back, or build the corpus again into another folder"
            )
        return tokenizer

    @property
    def num_tokens(self) -> int:
        return sum(len(shard.tokens) for shard in self.shards)

    @property
    def num_documents(self) -> int:
        return int(self.first_document[-1])

    @property
    def token_counts(self) -> np.ndarray:
        path = self.folder / "token_counts.npy"
        try:
            counts = load_array(path)
        except (OSError, ValueError) as error:
            raise ValueError(f"{path} cannot be read ({error}): {REBUILD}") from None
        if counts.shape != (self.manifest["vocab_size"],) or counts.dtype.kind not in "iu":
            raise ValueError(f"{path} does not hold one count for each token of the vocabulary: {REBUILD}")
        if int(counts.min()) < 0 or int(counts.sum()) != self.num_tokens:
            raise ValueError(f"{path} counts other tokens than the {self.num_tokens} of the corpus: {REBUILD}")
        return counts

    @cached_property
    def _threshold(self) -> int:
        """Documents whose number scrambles to less than this are held out.

        That is about the share asked for; in a small corpus as many more as it takes to measure anything by.
        """
        if self.num_documents < 2 or self.held_out_fraction <= 0:
            return 0
        wanted = int(self.held_out_fraction * 2**64)
        if self.num_documents > SMALL_CORPUS_DOCUMENTS:
            return wanted
        lengths = [np.diff(np.asarray(s.sentences, np.int64)[np.asarray(s.documents, np.int64)]) for s in self.shards]
        order = np.argsort(scrambled(np.arange(self.num_documents)))
        tokens = np.cumsum(np.concatenate(lengths)[order])
        enough = min(LEAST_HELD_OUT_TOKENS, LARGEST_HELD_OUT_SHARE * self.num_tokens)
        num_least = min(int(np.searchsorted(tokens, enough)) + 1, self.num_documents - 1)
        return max(wanted, int(scrambled(order[num_least - 1 : num_least])[0]) + 1)

    def document(self, number: int) -> tuple[Shard, int, int]:
        """(shard, first sentence, end of its sentences) of a document by its number in the corpus."""
        place = find(self.first_document, number, "right") - 1
        shard, within = self.shards[place], number - int(self.first_document[place])
        return shard, int(shard.documents[within]), int(shard.documents[within + 1])

    def is_held_out(self, documents: np.ndarray) -> np.ndarray:
        """For document numbers in the corpus: True where the document is for validation only."""
        return scrambled(np.asarray(documents)) < np.uint64(min(self._threshold, 2**64 - 1))


def _check_size(name: Path, shard: Shard, entry: dict) -> None:
    found = {
        "tokens": len(shard.tokens),
        "sentences": len(shard.sentences) - 1,
        "documents": len(shard.documents) - 1,
    }
    for what, number in found.items():
        if number != entry[what]:
            raise ValueError(f"{name} holds {number} {what} but the manifest says {entry[what]}: {REBUILD}")
    if len(shard.word_starts) != -(-len(shard.tokens) // 8):
        raise ValueError(f"{name} holds word starts for another number of tokens: {REBUILD}")


def allow_open_files(num_more: int) -> None:
    """Raises this process's limit of open files where needed: each mapped file counts, and many systems allow 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _num_open_files() + num_more + SPARE_FILES
    if soft == resource.RLIM_INFINITY or wanted <= soft:
        return
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    with contextlib.suppress(OSError, ValueError):  # the system may know a limit below the hard one
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _num_open_files() -> int:
    try:
        return len(os.listdir("/dev/fd"))
    except OSError:
        return SPARE_FILES


def find(ordered: np.ndarray, value: int, side: Literal["left", "right"]) -> int:
    """`searchsorted` for one value, as the array's own type: with another, numpy copies the whole array each time."""
    return int(ordered.searchsorted(ordered.dtype.type(value), side))


def scrambled(numbers: np.ndarray) -> np.ndarray:
    """Each number's 64 bits mixed so that they look random: the finaliser of SplitMix64 (Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        x = np.asarray(numbers).astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def shuffled(indices: np.ndarray, size: int, key: int) -> np.ndarray:
    """Where each index of 0 .. size-1 goes in a random order that `key` names, without storing the order.

    A Feistel network permutes the next power of four; what falls outside is sent through again until it is inside.
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
