"""The batches that a run leaves out after a rollback."""

import itertools
from collections.abc import Iterator
from pathlib import Path

from hornbook.files import read_json, write_json


class SkippedBatches:
    """The batches skipped after a rollback, and the checkpoints rolled back to, in a file that survives a kill."""

    def __init__(self, path: Path):
        self.path = path
        saved = read_json(path) if path.exists() else {}
        self.skipped: set[int] = set(saved.get("skipped", []))
        self.rolled_back_to: list[int] = saved.get("rolled_back_to", [])

    def add(self, number: int, back_to: int) -> None:
        self.skipped.add(number)
        self.rolled_back_to.append(back_to)
        write_json(self.path, {"skipped": sorted(self.skipped), "rolled_back_to": self.rolled_back_to})

    def numbers_from(self, step: int, num_steps: int) -> Iterator[int]:
        """The batch numbers of the steps from `step` on."""
        remaining = (number for number in itertools.count() if number not in self.skipped)
        return itertools.islice(remaining, step, num_steps)
