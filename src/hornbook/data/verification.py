"""Whether the files of a corpus are those that were built: each is compared once with the sha256 in the manifest.

`chunks/verified.json` remembers the size and the change time (ctime) of every file that was found right, so that
opening a corpus again reads nothing. A copy has other change times and is compared once more.
"""

import contextlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hornbook.data.manifest import REBUILD
from hornbook.data.shards import PARTS, Shard, shard_file
from hornbook.files import num_cores, read_json, sha256, write_json

VERIFIED = Path("chunks") / "verified.json"


def verify(folder: Path, manifest: dict, shards: list[Shard]) -> None:
    """A `ValueError` that names the first file that is not as it was built."""
    remembered = _remembered(folder)
    stamps = [{part: _stamp(shard_file(folder, index, part)) for part in PARTS} for index in range(len(shards))]
    if remembered == stamps:
        return
    unseen = [index for index, stamp in enumerate(stamps) if index >= len(remembered) or remembered[index] != stamp]

    def check(index: int) -> None:
        for part in PARTS:
            file = shard_file(folder, index, part)
            if sha256(file) != manifest["shards"][index]["sha256"][part]:
                raise ValueError(f"{file} is not as it was built (its sha256 is not that of the manifest): {REBUILD}")
        _check_structure(folder, index, shards[index], manifest["vocab_size"])

    with ThreadPoolExecutor(num_cores()) as pool:
        list(pool.map(check, unseen))
    with contextlib.suppress(OSError):  # on a read-only disk it is compared each time
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
            raise ValueError(f"{shard_file(folder, index, part)} does not hold places in rising order: {REBUILD}")


def _remembered(folder: Path) -> list:
    with contextlib.suppress(OSError, ValueError):
        found = read_json(folder / VERIFIED).get("shards")
        return found if isinstance(found, list) else []
    return []


def _stamp(file: Path) -> list[int]:
    status = file.stat()
    return [status.st_size, status.st_ctime_ns]
