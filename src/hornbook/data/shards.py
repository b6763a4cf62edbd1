"""The files of a corpus: its manifest, and shards of four flat arrays in .npy files, described in docs/architecture.md.

tokens       token ids, concatenated            word_starts  one bit per token
sentences    start of each in the tokens        documents    start of each in the sentences

A corpus that is linked to a graph has two more:

entity_tokens  first token of each mention      entity_ids   number of its entity in the graph
"""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from hornbook.config import checked
from hornbook.files import hash_of, read_json, refusing_damage, replacing, sha256

MANIFEST = "manifest.json"
FORMAT_VERSION = 1
COUNTS = ("tokens", "sentences", "documents")
REPAIR = "copy the corpus again, or build it again into another folder"

PARTS = ("tokens", "word_starts", "sentences", "documents")
ENTITY_PARTS = ("entity_tokens", "entity_ids")
SHARD_TOKENS = 32_000_000
LARGEST_SHARD_TOKENS = 2_000_000_000


def shard_name(index: int) -> str:
    return f"shard-{index:05d}"


def shard_file(folder: Path, index: int, part: str) -> Path:
    return Path(folder) / f"{shard_name(index)}.{part}.npy"


def shard_files(folder: Path, num_shards: int, parts: tuple[str, ...]) -> list[Path]:
    return [shard_file(folder, index, part) for index in range(num_shards) for part in parts]


def read_manifest(folder: Path) -> dict:
    """The manifest of a finished corpus; raises a `ValueError` if it is damaged."""
    file = folder / MANIFEST
    manifest = read_json(file)
    with refusing_damage(file, REPAIR):
        refuse_other_format(file, manifest, FORMAT_VERSION, "corpus")
        checked(manifest["vocab_size"], int, "vocab_size", low=1)
        parts_of(manifest["settings"])
        if manifest["fingerprint"] != content_fingerprint(manifest["tokenizer_fingerprint"], manifest["shards"]):
            raise ValueError("its fingerprint does not match its shards and tokenizer")
        if any(entry["name"] != shard_name(index) for index, entry in enumerate(manifest["shards"])):
            raise ValueError("its shards are not numbered in order")
        for unit in COUNTS:
            if manifest["totals"][unit] != sum(entry[unit] for entry in manifest["shards"]):
                raise ValueError(f"the {unit} of its shards do not sum to the total")
    return manifest


def content_fingerprint(tokenizer_fingerprint: str, shards: list[dict]) -> str:
    """The identity of a corpus: a hash of the hashes of its tokenizer and shard files."""
    return hash_of([tokenizer_fingerprint, [shard["sha256"] for shard in shards]])


def refuse_other_format(file: Path, manifest: dict, version: int, what: str) -> None:
    if manifest["format_version"] != version:
        raise ValueError(
            f"{file} is of format {manifest['format_version']}, but this version of hornbook reads format "
            f"{version}: build the {what} again into another folder"
        )


def refuse_changed(file: Path, expected: str, repair: str) -> None:
    """Raises a `ValueError` if the file is missing or does not have the sha256 of the manifest."""
    if not file.is_file():
        raise ValueError(f"{file} is missing: {repair}")
    if sha256(file) != expected:
        raise ValueError(f"{file} has changed since it was built (sha256 differs from the manifest): {repair}")


def token_dtype(vocab_size: int) -> np.dtype:
    return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.uint32)


@dataclass(frozen=True)
class Shard:
    """One memory-mapped shard: nothing is loaded until it is accessed."""

    tokens: np.ndarray
    word_starts: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray
    entity_tokens: np.ndarray | None = None
    entity_ids: np.ndarray | None = None

    def document_of(self, token: int) -> int:
        """The index, within the shard, of the document that contains a token."""
        return find(self.documents, find(self.sentences, token, "right") - 1, "right") - 1

    def boundary_from(self, token: int) -> int:
        """The first sentence boundary at or after a token."""
        return int(self.sentences[min(find(self.sentences, token, "left"), len(self.sentences) - 1)])

    def boundary_to(self, token: int) -> int:
        """The last sentence boundary at or before a token."""
        return int(self.sentences[find(self.sentences, max(0, token), "right") - 1])

    def boundaries_inside(self, start: int, stop: int) -> np.ndarray:
        """Sentence boundaries strictly between two tokens."""
        return self.sentences[find(self.sentences, start, "right") : find(self.sentences, stop, "left")]

    def document_lengths(self) -> np.ndarray:
        return np.diff(np.asarray(self.sentences, np.int64)[np.asarray(self.documents, np.int64)])

    def word_starts_in(self, start: int, stop: int) -> np.ndarray:
        """The word starts of tokens `start` to `stop` (exclusive) as booleans, from the packed bits.

        >>> shard = Shard(np.arange(9), np.packbits([1, 0, 0, 1, 1, 0, 0, 0, 1]), np.array([0, 9]), np.array([0, 1]))
        >>> shard.word_starts_in(3, 9)
        array([ True,  True, False, False, False,  True])
        """
        first = start // 8
        bits = np.unpackbits(self.word_starts[first : (stop + 7) // 8])
        return bits[start - 8 * first : stop - 8 * first].view(bool)

    def entities(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """(index from `start`, entity) of the mentions that begin at tokens `start` to `stop` (exclusive)."""
        if self.entity_tokens is None:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        first, last = np.searchsorted(self.entity_tokens, np.array([start, stop], self.entity_tokens.dtype))
        return self.entity_tokens[first:last].astype(np.int64) - start, self.entity_ids[first:last].astype(np.int64)


def parts_of(settings: dict) -> tuple[str, ...]:
    """The arrays of each shard of a corpus with these settings, as in its manifest."""
    return PARTS + (ENTITY_PARTS if settings.get("graph") else ())


def load_array(path: Path, mmap_mode: Literal["r", "r+"] | None = None) -> np.ndarray:
    """The array in a .npy file; raises a `ValueError` if it does not hold an array."""
    try:
        array = np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
    except OSError:
        raise
    except Exception as error:  # a damaged header is evaluated as Python and may allocate any amount of memory
        raise ValueError(str(error).splitlines()[0] if str(error) else type(error).__name__) from None
    if not isinstance(array, np.ndarray):
        array.close()
        raise ValueError("it is an archive, not one array")
    return array


def map_array(path: Path) -> np.ndarray:
    """The memory-mapped array in a .npy file as a plain ndarray: slicing an np.memmap is 5 times slower."""
    return np.asarray(load_array(path, mmap_mode="r"))


def write_array(path: Path, values: np.ndarray) -> None:
    with replacing(path) as temporary, open(temporary, "wb") as file:
        np.save(file, values)


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    with replacing(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **arrays)


def load_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays in a .npz file by name, which has a checksum for each; raises a `ValueError` if it is damaged."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            return dict(stored)
    except Exception as error:  # a damaged archive raises many types of errors
        raise ValueError(f"{path.name} cannot be read: {error or type(error).__name__}") from None


def open_shard(folder: Path, index: int, parts: tuple[str, ...] = PARTS) -> Shard:
    """Opens a shard whose files are verified (`corpus.py`)."""
    return Shard(*(map_array(shard_file(folder, index, part)) for part in parts))


def find(ordered: np.ndarray, value: int, side: Literal["left", "right"]) -> int:
    """`searchsorted` for one value, converted to the array's dtype: otherwise numpy copies the whole array."""
    return int(ordered.searchsorted(ordered.dtype.type(value), side))


_EMPTY = np.zeros(0, np.int64)


class ShardWriter:
    """Collects encoded documents and writes them shard by shard.

    An unfinished shard is held in memory, at 3 or 5 bytes per token: 100 to 160 MB at the default of 32 million tokens.
    """

    def __init__(self, folder: Path, dtype: np.dtype, *, next_index: int = 0, parts: tuple[str, ...] = PARTS):
        self.folder = Path(folder)
        self.dtype = np.dtype(dtype)
        self.parts = parts
        self.next_index = next_index
        self._clear()

    def _clear(self) -> None:
        self.num_tokens = self.num_sentences = self.num_documents = self.num_entities = 0
        self._arrays: defaultdict[str, list[np.ndarray]] = defaultdict(list)

    def add(
        self,
        tokens: np.ndarray,
        word_starts: np.ndarray,
        sentence_lengths: np.ndarray,
        document_starts: np.ndarray,
        entity_tokens: np.ndarray = _EMPTY,
        entity_ids: np.ndarray = _EMPTY,
    ) -> None:
        """Adds sentences and their tokens; `document_starts` are the indices of the first sentences of documents,
        `entity_tokens` those of the first tokens of mentions."""
        assert len(tokens) == len(word_starts) == sentence_lengths.sum()
        assert self.num_sentences or not len(sentence_lengths) or document_starts[0] == 0
        arrays = self._arrays
        arrays["tokens"].append(tokens.astype(self.dtype, copy=False))
        arrays["word_starts"].append(word_starts)
        arrays["sentence_lengths"].append(sentence_lengths)
        arrays["documents"].append(document_starts + self.num_sentences)
        arrays["entity_tokens"].append(entity_tokens + self.num_tokens)
        arrays["entity_ids"].append(entity_ids)
        self.num_entities += len(entity_ids)
        self.num_tokens += len(tokens)
        self.num_sentences += len(sentence_lengths)
        self.num_documents += len(document_starts)

    def close_shard(self) -> dict:
        """Writes the collected documents as a shard and returns its entry in the manifest."""
        entry = {
            "name": shard_name(self.next_index),
            "tokens": self.num_tokens,
            "sentences": self.num_sentences,
            "documents": self.num_documents,
        }
        arrays = {name: np.concatenate(self._arrays.pop(name)) for name in list(self._arrays)}  # one copy at a time
        arrays["word_starts"] = np.packbits(arrays["word_starts"])
        arrays["sentences"] = np.cumsum(np.insert(arrays["sentence_lengths"], 0, 0), dtype=np.int64)
        arrays["documents"] = np.append(arrays["documents"], self.num_sentences)
        dtypes = {"tokens": self.dtype, "word_starts": np.uint8}
        for part in self.parts:
            values = arrays[part].astype(dtypes.get(part, np.uint32), copy=False)
            write_array(shard_file(self.folder, self.next_index, part), values)
        if "entity_ids" in self.parts:
            entry["mentions"] = self.num_entities
        entry["sha256"] = {part: sha256(shard_file(self.folder, self.next_index, part)) for part in self.parts}
        self.next_index += 1
        self._clear()
        return entry
