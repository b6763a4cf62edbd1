"""Detects losses that ruin a run: NaN or infinity, and spikes far above the running mean."""

import math
from dataclasses import asdict, dataclass
from typing import Literal, NamedTuple

from hornbook.train.settings import GuardSettings

DECAY = 0.98  # of the running mean and variance: a window of about 50 steps


class LossProblem(NamedTuple):
    kind: Literal["nan", "spike"]
    description: str


@dataclass
class Guard:
    """Call `judge` on the loss of every step, in order. The state is saved with each checkpoint."""

    settings: GuardSettings
    mean: float = 0.0
    variance: float = 0.0
    seen: int = 0

    def check(self, loss: float, grad_norm: float) -> LossProblem | None:
        """What is wrong with this step, or None, in which case the loss enters the running mean."""
        if not math.isfinite(loss) or not math.isfinite(grad_norm):
            return LossProblem("nan", f"the loss is {loss:g} and the gradient norm {grad_norm:g}")
        settings = self.settings
        if self.seen >= settings.history_steps and settings.spike_deviations > 0:
            limit = self.mean + max(settings.spike_deviations * math.sqrt(self.variance), settings.spike_least)
            if loss > limit:
                return LossProblem("spike", f"the loss jumped to {loss:.3f}, from {self.mean:.3f} on average")
        self.update(loss)
        return None

    def update(self, loss: float) -> None:
        """Adds a loss to the running mean and variance."""
        self.seen += 1
        weight = max(1 - DECAY, 1 / self.seen)
        difference = loss - self.mean
        self.mean += weight * difference
        self.variance = (1 - weight) * (self.variance + weight * difference * difference)

    def state(self) -> dict:
        return {name: value for name, value in asdict(self).items() if name != "settings"}
