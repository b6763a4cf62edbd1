"""Verifies the files of a corpus: each is compared once with the sha256 in the manifest.

`chunks/verified.json` records the size and change time (ctime) of every verified file, so that opening the corpus again
reads nothing. A copy has other change times and is verified again.
"""

import contextlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hornbook.data.manifest import REBUILD
from hornbook.data.shards import PARTS, Shard, shard_file
from hornbook.files import num_cores, read_json, sha256, write_json

VERIFIED = Path("chunks") / "verified.json"


def verify(folder: Path, manifest: dict, shards: list[Shard]) -> None:
    """Raises a `ValueError` that names the first file that differs from what was built."""
    verified = _read_verified(folder)
    stamps = [{part: _stamp(shard_file(folder, index, part)) for part in PARTS} for index in range(len(shards))]
    if verified == stamps:
        return
    unverified = [index for index, stamp in enumerate(stamps) if index >= len(verified) or verified[index] != stamp]

    def check(index: int) -> None:
        for part in PARTS:
            file = shard_file(folder, index, part)
            if sha256(file) != manifest["shards"][index]["sha256"][part]:
                raise ValueError(f"{file} has changed since it was built (sha256 differs from the manifest): {REBUILD}")
        _check_structure(folder, index, shards[index], manifest["vocab_size"])

    with ThreadPoolExecutor(num_cores()) as pool:
        list(pool.map(check, unverified))
    with contextlib.suppress(OSError):  # on a read-only disk the files are verified each time
        write_json(folder / VERIFIED, {"shards": stamps})


def _check_structure(folder: Path, index: int, shard: Shard, vocab_size: int) -> None:
    if len(shard.tokens) and (largest := int(shard.tokens.max())) >= vocab_size:
        raise ValueError(
            f"{shard_file(folder, index, 'tokens')} holds token {largest}, but the vocabulary ends at "
            f"{vocab_size - 1}: {REBUILD}"
        )
    for part, inside in (("sentences", shard.tokens), ("documents", shard.sentences[:-1])):
        starts = getattr(shard, part)
        if starts[0] != 0 or starts[-1] != len(inside) or (starts[1:] < starts[:-1]).any():
            raise ValueError(f"{shard_file(folder, index, part)} does not hold positions in ascending order: {REBUILD}")


def _read_verified(folder: Path) -> list:
    with contextlib.suppress(OSError, ValueError):
        found = read_json(folder / VERIFIED).get("shards")
        return found if isinstance(found, list) else []
    return []


def _stamp(file: Path) -> list[int]:
    status = file.stat()
    return [status.st_size, status.st_ctime_ns]
