"""The manifest of a corpus, written at the end of a build and validated when read, and the check whether a folder can
take a build. Graphs have a manifest with the same format, fingerprint and file checks."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hornbook import __version__
from hornbook.config import checked
from hornbook.data.problems import DROPPED, Problems
from hornbook.data.shards import parts_of, shard_files, shard_name, token_dtype
from hornbook.data.sources import find_sources, write_sources
from hornbook.data.state import PROGRESS, SOURCES, BuildState, difference, remove_progress
from hornbook.files import read_json, refusing_damage, sha256

MANIFEST = "manifest.json"
FORMAT_VERSION = 1
OTHER_FOLDER = "choose another folder, or remove this one"
KNOWN_FILES = ("tokenizer.json", "tokenizer_config.json", SOURCES)  # what a build writes before its progress
REPAIR = "copy the corpus again, or build it again into another folder"
COUNTS = ("tokens", "sentences", "documents")


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


def hash_of(content: object) -> str:
    """The sha256 of a value that JSON can hold."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


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


def describe_request(sources: dict, tokenizer_fingerprint: str, settings: dict) -> dict:
    """The inputs of a build, with a summary of its files: two builds with the same request give the same corpus."""
    return {
        "format_version": FORMAT_VERSION,
        "hornbook_version": __version__,
        "tokenizer_fingerprint": tokenizer_fingerprint,
        "settings": settings,
        "sources": sources,
    }


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
        raise ValueError("input files changed during the build: build the corpus again when they no longer change")
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
        raise ValueError(f"{folder} is not empty (it holds {sorted(others)[0]}) and is not a corpus: {OTHER_FOLDER}")
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
