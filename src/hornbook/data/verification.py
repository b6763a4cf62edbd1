"""Verifies the files of a corpus: each is compared once with the sha256 in the manifest.

`chunks/verified.json` records the size and change time (ctime) of every verified file, so that opening the corpus again
reads nothing. A copy has other change times and is verified again.
"""

import contextlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hornbook.data.manifest import REPAIR
from hornbook.data.shards import PARTS, shard_file
from hornbook.files import num_cores, read_json, sha256, write_json

VERIFIED = Path("chunks") / "verified.json"


def verify(folder: Path, manifest: dict) -> None:
    """Raises a `ValueError` that names the first file that differs from what was built."""
    verified = _read_verified(folder)
    stamps = [
        {part: _stamp(shard_file(folder, index, part)) for part in PARTS} for index in range(len(manifest["shards"]))
    ]
    if verified == stamps:
        return
    unverified = [index for index, stamp in enumerate(stamps) if index >= len(verified) or verified[index] != stamp]

    def check(index: int) -> None:
        for part in PARTS:
            file = shard_file(folder, index, part)
            if sha256(file) != manifest["shards"][index]["sha256"][part]:
                raise ValueError(f"{file} has changed since it was built (sha256 differs from the manifest): {REPAIR}")

    with ThreadPoolExecutor(num_cores()) as pool:
        list(pool.map(check, unverified))
    with contextlib.suppress(OSError):  # on a read-only disk the files are verified each time
        write_json(folder / VERIFIED, {"shards": stamps})


def _read_verified(folder: Path) -> list:
    with contextlib.suppress(OSError, ValueError):
        found = read_json(folder / VERIFIED).get("shards")
        return found if isinstance(found, list) else []
    return []


def _stamp(file: Path) -> list[int]:
    try:
        status = file.stat()
    except FileNotFoundError:
        raise ValueError(f"{file} is missing: {REPAIR}") from None
    return [status.st_size, status.st_ctime_ns]
