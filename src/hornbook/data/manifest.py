"""The corpus folder before and after a build: may this request go into it, and the manifest that crowns it."""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from hornbook import __version__
from hornbook.data.problems import DROPPED, Problem
from hornbook.data.shards import PARTS, shard_file, token_dtype
from hornbook.data.sources import Source
from hornbook.data.state import PROGRESS, BuildState, difference, remove_progress
from hornbook.files import read_json

MANIFEST = "manifest.json"
FORMAT_VERSION = 1
OTHER_FOLDER = "choose another folder, or remove this one"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


def describe_request(sources: list[Source], tokenizer_fingerprint: str, settings: dict) -> dict:
    """What a corpus is made of: two builds with the same request give the same corpus."""
    return {
        "format_version": FORMAT_VERSION,
        "hornbook_version": __version__,
        "tokenizer_fingerprint": tokenizer_fingerprint,
        "settings": settings,
        "sources": [asdict(source) for source in sources],
    }


def already_built(folder: Path, request: dict) -> dict | None:
    """The manifest if this very request was built before; None if nothing was; an error if it was another."""
    if not (folder / MANIFEST).exists():
        return None
    manifest = read_json(folder / MANIFEST)
    if manifest.get("format_version") != FORMAT_VERSION:
        found = manifest.get("format_version")
        raise ValueError(
            f"{folder} holds a corpus of format {found}, this hornbook writes {FORMAT_VERSION}: {OTHER_FOLDER}"
        )
    if reason := difference(manifest, request):
        raise ValueError(f"{folder} already holds another corpus ({reason}): {OTHER_FOLDER}")
    for index in range(len(manifest["shards"])):
        for part in PARTS:
            if not shard_file(folder, index, part).exists():
                raise ValueError(f"{shard_file(folder, index, part)} is missing: remove {folder} and build anew")
    remove_progress(folder)
    return manifest


def prepare_folder(folder: Path, request: dict, tokenizer, left_out: list[Problem]) -> BuildState:
    """The state to go on from: of an earlier, stopped build of the same request, or a fresh one."""
    if (folder / PROGRESS).exists():
        state = BuildState.load(folder, tokenizer.vocab_size)
        reason = difference(state.request, request)
        version = state.request["hornbook_version"]
        if not reason and version != __version__:
            reason = f"it was begun with hornbook {version}, this is {__version__}"
        if not reason:
            return state
        if state.shards:
            raise ValueError(f"{folder} holds an unfinished build of another corpus ({reason}): {OTHER_FOLDER}")
        remove_progress(folder)
    elif folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: choose another name for the corpus folder")
    elif folder.is_dir() and (others := [file.name for file in folder.iterdir() if file.name not in TOKENIZER_FILES]):
        raise ValueError(f"{folder} is not empty (it holds {sorted(others)[0]}) and is no corpus: {OTHER_FOLDER}")
    state = BuildState(request, token_counts=np.zeros(tokenizer.vocab_size, np.int64))
    for problem in left_out:
        state.problems.add(problem)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(folder)
    state.save(folder)
    return state


def make_manifest(state: BuildState, vocab_size: int) -> dict:
    request = state.request
    content = [request["tokenizer_fingerprint"], [shard["sha256"] for shard in state.shards]]
    problems = state.problems
    return {
        "format_version": request["format_version"],
        "hornbook_version": request["hornbook_version"],
        "fingerprint": hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest(),
        "tokenizer_fingerprint": request["tokenizer_fingerprint"],
        "vocab_size": vocab_size,
        "dtype": token_dtype(vocab_size).name,
        "totals": {**state.totals, "bytes_read": state.bytes_read},
        "shards": state.shards,
        "dropped": {kind: problems.count(kind) for kind in DROPPED if problems.count(kind)},
        "problems": problems.as_dict(),
        "cleaned": dict(sorted(state.cleaned.items())),
        "repeated_lines": state.lines.report(),
        "settings": request["settings"],
        "sources": request["sources"],
        "seconds": round(state.seconds, 2),
        "megabytes_per_second": round(state.bytes_read / 1e6 / max(state.seconds, 1e-9), 3),
    }
