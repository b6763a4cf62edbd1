"""Corpora and files at a URL (`s3://`, `gs://`, `http://`, `memory://`, `file://`), through fsspec.

A corpus at a URL is copied into a local cache, from which it is memory-mapped as any other. The small files (manifest,
tokenizer, offsets of documents and sentences) are fetched when it is opened. The tokens, which are most of it, follow
in the background, shard by shard; a shard that is needed earlier is fetched at once. Each epoch is a permutation of the
whole corpus, so the cache holds all of it.
"""

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import numpy as np
from filelock import FileLock

from hornbook.data.shards import MANIFEST, Shard, map_array, parts_of, read_manifest, shard_name
from hornbook.files import replacing, sha256

CACHE_VARIABLE = "HORNBOOK_CACHE"  # environment variable: folder of the cache
BACKGROUND_PARTS = ("tokens", "word_starts")  # parts of a shard that are fetched in the background
OPTIONAL_FILES = ("tokenizer_config.json", "token_counts.npy")
BLOCK_BYTES = 1 << 20
FETCHED_AT_ONCE = 4
MAX_TRIES = 5
FIRST_WAIT = 0.5  # seconds before the second try; doubled for each further one


def is_url(path: object) -> bool:
    """Whether a path is a URL rather than the name of a local file.

    >>> is_url("s3://bucket/corpus"), is_url("corpora/law")
    (True, False)
    """
    return "://" in str(path)


def origin_of(path: str | Path) -> str:
    """The location of a corpus as records hold it: its URL, or its absolute path."""
    return str(path) if is_url(path) else str(Path(path).resolve())


def file_system(path: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """(file system, path inside it) of a local path or a URL; raises a `ValueError` if a package for it is missing."""
    try:
        return fsspec.core.url_to_fs(str(path))
    except ImportError as error:
        raise ValueError(f"{path} cannot be opened without another package: {error}") from None
    except ValueError as error:
        raise ValueError(f"{path} cannot be opened: {error}") from None


def cache_folder() -> Path:
    """Where corpora from URLs are kept: $HORNBOOK_CACHE, or hornbook in the cache folder of the user."""
    user_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get(CACHE_VARIABLE) or user_cache / "hornbook") / "corpora"


class RemoteCorpus:
    """The copy of a corpus at a URL. It can be pickled; the process that opens it fetches in the background."""

    def __init__(self, url: str):
        self.url = url.rstrip("/")
        data = b"".join(self._blocks(MANIFEST))
        # Corpora of the same contents share a folder, and one that is built again at the same URL gets another.
        self.folder = cache_folder() / hashlib.sha256(data).hexdigest()[:16]
        with replacing(self.folder / MANIFEST, on_every_rank=True) as temporary:
            temporary.write_bytes(data)
        self.manifest = read_manifest(self.folder)
        self.parts = parts_of(self.manifest["settings"])
        indices = range(len(self.manifest["shards"]))
        system, inside = file_system(self.url)
        optional = [name for name in OPTIONAL_FILES if system.exists(f"{inside}/{name}")]
        with ThreadPoolExecutor(FETCHED_AT_ONCE) as pool:
            others = [pool.submit(self.fetch, name) for name in ("tokenizer.json", *optional)]
            first = [
                pool.submit(self.part, i, part) for part in self.parts if part not in BACKGROUND_PARTS for i in indices
            ]
            for future in (*others, *first):
                future.result()
        self._waiting = iter([(index, part) for index in indices for part in BACKGROUND_PARTS])
        self._lock = threading.Lock()
        for _ in range(FETCHED_AT_ONCE):
            threading.Thread(target=self._fetch_rest, daemon=True).start()

    def __getstate__(self) -> dict:
        return {name: value for name, value in vars(self).items() if name not in ("_waiting", "_lock")}

    def shards(self) -> list[Shard]:
        return [RemoteShard(self, index) for index in range(len(self.manifest["shards"]))]

    def part(self, index: int, part: str) -> Path:
        """The local file of one array of a shard; it is fetched if it is not there."""
        return self.fetch(f"{shard_name(index)}.{part}.npy", self.manifest["shards"][index]["sha256"][part])

    def fetch(self, name: str, expected_hash: str | None = None) -> Path:
        """The local copy of a file, whose contents have the given hash. One process or thread fetches it, others wait;
        the file appears when it is complete."""
        path = self.folder / name
        if path.exists():
            return path
        with FileLock(self.folder / f".{name}.lock"):
            if not path.exists():
                with replacing(path, on_every_rank=True) as temporary:
                    with open(temporary, "wb") as file:
                        file.writelines(self._blocks(name))
                    if expected_hash not in (None, sha256(temporary)):
                        raise ValueError(
                            f"{self.url}/{name} differs from the manifest (sha256): copy the corpus there again"
                        )
        return path

    def _fetch_rest(self) -> None:
        while True:
            with self._lock:
                shard_part = next(self._waiting, None)
            if shard_part is None:
                return
            # Whoever needs the shard tries again, and raises.
            with contextlib.suppress(Exception):
                self.part(*shard_part)

    def _blocks(self, name: str) -> Iterator[bytes]:
        """The contents of a file in blocks. If the connection fails, reading resumes at the same position."""
        position, tries = 0, 0
        while True:
            try:
                system, inside = file_system(self.url)
                with system.open(f"{inside}/{name}", "rb") as file:
                    file.seek(position)
                    while block := file.read(BLOCK_BYTES):
                        position += len(block)
                        tries = 0
                        yield block
                return
            except FileNotFoundError:
                raise ValueError(
                    f"{self.url}/{name} does not exist: give the URL of a corpus made by 'hornbook corpus build'"
                ) from None
            except (GeneratorExit, ValueError):
                raise
            except Exception as error:  # the errors of many libraries
                tries += 1
                if tries == MAX_TRIES:
                    reason = str(error) or type(error).__name__
                    raise ValueError(f"{self.url}/{name} could not be fetched ({reason}): try again") from None
                time.sleep(FIRST_WAIT * 2 ** (tries - 1))


class RemoteShard(Shard):
    """A shard whose tokens are opened when they are first read."""

    def __init__(self, corpus: RemoteCorpus, index: int):
        object.__setattr__(self, "_open", (corpus, index))
        for part in corpus.parts:
            if part not in BACKGROUND_PARTS:
                self._load(part)

    def __getattr__(self, name: str):
        if name not in BACKGROUND_PARTS:
            raise AttributeError(name)
        return self._load(name)

    def _load(self, part: str) -> np.ndarray:
        corpus, index = self._open
        array = map_array(corpus.part(index, part))
        object.__setattr__(self, part, array)
        return array
