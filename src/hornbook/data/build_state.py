"""The state of an unfinished corpus build, from which it is resumed after the last complete shard; whether a folder can
take a build.

`progress.json` is written last and lists the complete shards; `progress-00003.npz` and `progress-00003.hashes.npy` hold
the arrays. So a kill at any moment leaves a state that matches the shards.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

import numpy as np

from hornbook import __version__
from hornbook.config import checked
from hornbook.data.contamination import EXCLUDED
from hornbook.data.duplicates import RepeatedLines
from hornbook.data.hash_set import SeenHashes
from hornbook.data.problems import DROPPED, Problems
from hornbook.data.shards import (
    MANIFEST,
    REPAIR,
    content_fingerprint,
    load_array,
    load_arrays,
    parts_of,
    read_manifest,
    shard_files,
    token_dtype,
    write_array,
    write_arrays,
)
from hornbook.data.sources import find_sources, read_sources, write_sources
from hornbook.files import read_json, refusing_damage, write_json
from hornbook.lifecycle.requests import changed_values
from hornbook.lifecycle.stopping import block_signals

PROGRESS = "progress.json"
OTHER_FOLDER = "choose another folder, or remove the folder"
BUILD_AGAIN = "build the corpus in another folder, or remove this one first"
SOURCES = "sources.ndjson"  # the input files; not .jsonl, so that it is never an input itself
KNOWN_FILES = ("tokenizer.json", "tokenizer_config.json", SOURCES)  # what a build writes before its progress
# `words` are those of the tokenizer, which separates punctuation; `text_words` are separated by white space.
TOTALS = ("documents", "sentences", "tokens", "words", "text_words", "text_bytes")


@dataclass
class BuildState:
    """The build up to the last complete shard: the reading position is item `items_taken` of file `file_index`.
    `previous_kept`: whether the last document was kept, so that a further part of it can continue it."""

    request: dict
    token_counts: np.ndarray
    shards: list[dict] = field(default_factory=list)
    file_index: int = 0
    items_taken: int = 0
    bytes_read: int = 0
    totals: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOTALS, 0))
    cleaned: dict[str, int] = field(default_factory=dict)
    previous_kept: bool = False
    seconds: float = 0.0
    problems: Problems = field(default_factory=Problems)
    lines: RepeatedLines = field(default_factory=RepeatedLines)
    seen: SeenHashes = field(default_factory=SeenHashes)
    new_hashes: list[np.ndarray] = field(default_factory=list)

    JSON_FIELDS = ("request", "shards", "file_index", "items_taken", "bytes_read", "totals", "cleaned", "previous_kept")

    def save(self, folder: Path) -> None:
        num_shards = len(self.shards)
        if num_shards:
            # Each file holds only the hashes of one shard, so every hash (8 bytes per document) is written once.
            hashes = np.concatenate([*self.new_hashes, np.empty(0, np.uint64)])
            with block_signals():  # a signal in the middle of an .npz file makes the zip module print errors
                write_array(folder / f"progress-{num_shards:05d}.hashes.npy", hashes)
                arrays = {"token_counts": self.token_counts, **self.lines.arrays()}
                write_arrays(folder / f"progress-{num_shards:05d}.npz", arrays)
        plain = {name: getattr(self, name) for name in self.JSON_FIELDS}
        texts = {str(line): text for line, text in self.lines.texts().items()}
        plain |= {"seconds": round(self.seconds, 3), "problems": self.problems.to_dict(), "line_texts": texts}
        write_json(folder / PROGRESS, plain)
        (folder / f"progress-{num_shards - 1:05d}.npz").unlink(missing_ok=True)
        self.new_hashes = []

    @classmethod
    def load(cls, folder: Path, vocab_size: int) -> "BuildState":
        """The state of an interrupted build; raises a `ValueError` if its files are damaged."""
        with refusing_damage(folder / PROGRESS, f"remove {folder} and build it again"):
            saved = read_json(folder / PROGRESS)
            num_shards = len(saved["shards"])
            plain = {name: saved[name] for name in cls.JSON_FIELDS}
            for name in ("totals", "cleaned"):
                plain[name] = {key: checked(value, int, f"{name}.{key}", low=0) for key, value in saved[name].items()}
            plain |= {"seconds": saved["seconds"], "problems": Problems(saved["problems"])}
            if not num_shards:
                return cls(token_counts=np.zeros(vocab_size, np.int64), **plain)
            arrays_of_shards = shard_files(folder, num_shards, parts_of(saved["request"]["settings"]))
            hash_files = [folder / f"progress-{index + 1:05d}.hashes.npy" for index in range(num_shards)]
            array_file = folder / f"progress-{num_shards:05d}.npz"
            if missing := [file.name for file in (*arrays_of_shards, *hash_files, array_file) if not file.exists()]:
                raise ValueError(f"{missing[0]} is missing")
            arrays = load_arrays(array_file)
            seen = SeenHashes(folder)
            for file in hash_files:
                seen.add(load_array(file))
            texts = {int(line): text for line, text in saved["line_texts"].items()}
            return cls(token_counts=arrays.pop("token_counts"), lines=RepeatedLines(arrays, texts), seen=seen, **plain)


def remove_progress(folder: Path) -> None:
    """Removes the state files, progress.json before those that are unused without it."""
    (folder / EXCLUDED).unlink(missing_ok=True)
    (folder / PROGRESS).unlink(missing_ok=True)
    for file in folder.glob("progress-*.np[yz]"):
        file.unlink()


def already_built(folder: Path, request: dict, paths: Sequence[str | Path]) -> dict | None:
    """The manifest if `folder` holds the finished corpus of this request, None if it holds none; raises a `ValueError`
    if it holds another corpus."""
    if not (folder / MANIFEST).exists():
        return None
    manifest = read_manifest(folder)
    with refusing_damage(folder / MANIFEST, REPAIR):
        reason = difference(manifest, request, folder, paths)
    if reason:
        raise ValueError(f"{folder} already holds another corpus ({reason}): {OTHER_FOLDER}")
    for file in shard_files(folder, len(manifest["shards"]), parts_of(manifest["settings"])):
        if not file.exists():
            raise ValueError(f"{file} is missing: remove {folder} and build it again")
    remove_progress(folder)
    return manifest


def prepare_folder(
    folder: Path, request: dict, tokenizer, paths: Sequence[str | Path], problems: Problems
) -> BuildState:
    """The state of an interrupted build of the same request, to resume it, or a new state with these problems. The list
    of its files is in the folder."""
    state = _interrupted(folder, request, tokenizer, paths)
    if write_sources(folder / SOURCES, find_sources(paths)) != request["sources"]:
        raise ValueError(f"input files changed during the build: when they no longer change, {BUILD_AGAIN}")
    if state is None:
        state = BuildState(request, token_counts=np.zeros(tokenizer.vocab_size, np.int64), problems=problems)
        tokenizer.save(folder)
        state.save(folder)
    return state


def _interrupted(folder: Path, request: dict, tokenizer, paths: Sequence[str | Path]) -> BuildState | None:
    """The state of an interrupted build of this request; None if there is none and the folder is free for one."""
    if (folder / PROGRESS).exists():
        state = BuildState.load(folder, tokenizer.vocab_size)
        reason = difference(state.request, request, folder, paths)
        version = state.request["hornbook_version"]
        if not reason and version != __version__:
            reason = f"it was started with hornbook {version}, this is {__version__}"
        if not reason:
            state.request = request
            return state
        if state.shards:
            raise ValueError(f"{folder} holds an unfinished build of another corpus ({reason}): {OTHER_FOLDER}")
        remove_progress(folder)
    elif folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: choose another name for the corpus folder")
    elif folder.is_dir() and (others := [file.name for file in folder.iterdir() if file.name not in KNOWN_FILES]):
        raise ValueError(
            f"{folder} is not empty (it holds {sorted(others)[0]}) and is not a corpus: choose another one"
        )
    return None


def make_manifest(state: BuildState, vocab_size: int) -> dict:
    """The manifest of a finished build: its request, and what it has written, dropped and cleaned."""
    request, problems = state.request, state.problems
    return {
        **request,
        "fingerprint": content_fingerprint(request["tokenizer_fingerprint"], state.shards),
        "vocab_size": vocab_size,
        "dtype": token_dtype(vocab_size).name,
        "totals": {**state.totals, "bytes_read": state.bytes_read},
        "shards": state.shards,
        "dropped": {kind: problems.count(kind) for kind in DROPPED if problems.count(kind)},
        "problems": problems.to_dict(),
        "cleaned": dict(sorted(state.cleaned.items())),
        "repeated_lines": state.lines.report(),
        "seconds": round(state.seconds, 2),
        "megabytes_per_second": round(state.bytes_read / 1e6 / max(state.seconds, 1e-9), 3),
    }


def difference(built: dict, requested: dict, folder: Path, paths: Sequence[str | Path]) -> str:
    """The first difference between two requests as text; empty if they are the same. The files of the first are listed
    in its folder; those of the second are at `paths`."""
    for name, before, now in changed_values(built["settings"], requested["settings"]):
        return f"{name} was {before!r} and is now {now!r}"
    if built["tokenizer_fingerprint"] != requested["tokenizer_fingerprint"]:
        return "the tokenizer differs"
    if built["sources"] == requested["sources"]:
        return ""
    before = read_sources(folder / SOURCES) if (folder / SOURCES).exists() else ()
    pairs = zip_longest(before, find_sources(paths))  # one at a time, as there may be millions
    different = next((new or old for old, new in pairs if old != new), None)
    return f"the files differ, first {different.path}" if different else "the files differ"
