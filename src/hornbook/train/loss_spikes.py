"""Detects losses that ruin a run (NaN or infinity, and spikes far above the running mean), and remembers the batches
that a run leaves out after a rollback."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from hornbook.files import read_json, write_json
from hornbook.train.settings import LossSpikeSettings

DECAY = 0.98  # of the running mean and variance: a window of about 50 steps


class LossProblem(NamedTuple):
    kind: Literal["nan", "spike"]
    description: str


@dataclass
class LossSpikeDetector:
    """Call `check` on the loss of every step, in order. The state is saved with each checkpoint."""

    settings: LossSpikeSettings
    mean: float = 0.0
    variance: float = 0.0
    seen: int = 0

    def check(self, loss: float, grad_norm: float) -> LossProblem | None:
        """What is wrong with this step, or None, in which case the loss enters the running mean."""
        if not math.isfinite(loss) or not math.isfinite(grad_norm):
            return LossProblem("nan", f"the loss is {loss:g} and the gradient norm {grad_norm:g}")
        settings = self.settings
        if self.seen >= max(1, settings.history_steps) and settings.deviations > 0:
            limit = self.mean + max(settings.deviations * math.sqrt(self.variance), settings.min_increase)
            if loss > limit:
                return LossProblem("spike", f"the loss jumped to {loss:.3f}, from {self.mean:.3f} on average")
        self.update(loss)
        return None

    def update(self, loss: float) -> None:
        self.seen += 1
        weight = max(1 - DECAY, 1 / self.seen)
        difference = loss - self.mean
        self.mean += weight * difference
        self.variance = (1 - weight) * (self.variance + weight * difference * difference)

    def state(self) -> dict:
        return {name: value for name, value in asdict(self).items() if name != "settings"}


class SkippedBatches:
    """The batches skipped after a rollback, and the checkpoints rolled back to, in a file that survives a kill."""

    def __init__(self, path: Path):
        self.path = path
        saved = read_json(path) if path.exists() else {}
        self.skipped: set[int] = set(saved.get("skipped", []))
        self.rolled_back_to: list[int] = saved.get("rolled_back_to", [])

    def add(self, batch_number: int, back_to: int) -> None:
        self.skipped.add(batch_number)
        self.rolled_back_to.append(back_to)
        write_json(self.path, {"skipped": sorted(self.skipped), "rolled_back_to": self.rolled_back_to})

    def numbers_from(self, step: int, num_steps: int) -> Iterator[int]:
        """The batch numbers of the steps from `step` on."""
        remaining = (batch_number for batch_number in itertools.count() if batch_number not in self.skipped)
        return itertools.islice(remaining, step, num_steps)
