"""Watches the loss for what ruins a run: a value that is no number, or a jump far above what is usual."""

import math
from dataclasses import asdict, dataclass

from hornbook.train.settings import GuardSettings

DECAY = 0.98  # of the running mean: it looks back about 50 steps


@dataclass
class Guard:
    """`judge` each loss in order. The state is a few numbers, saved with each checkpoint."""

    settings: GuardSettings
    mean: float = 0.0
    variance: float = 0.0
    seen: int = 0

    def judge(self, loss: float, grad_norm: float) -> str | None:
        """What is wrong with this step, in words, or None. A good loss enters the running mean."""
        if not math.isfinite(loss) or not math.isfinite(grad_norm):
            return f"the loss is {loss:g} and the gradient's norm {grad_norm:g}"
        settings = self.settings
        if self.seen >= settings.history_steps and settings.spike_deviations > 0:
            limit = self.mean + max(settings.spike_deviations * math.sqrt(self.variance), settings.spike_least)
            if loss > limit:
                return f"the loss jumped to {loss:.3f}, from {self.mean:.3f} on average"
        self.seen += 1
        weight = max(1 - DECAY, 1 / self.seen)
        off = loss - self.mean
        self.mean += weight * off
        self.variance = (1 - weight) * (self.variance + weight * off * off)
        return None

    def state(self) -> dict:
        return {name: value for name, value in asdict(self).items() if name != "settings"}
