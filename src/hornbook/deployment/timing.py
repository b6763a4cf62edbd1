"""How long models take, measured by turns: each round every model answers once, so that noise falls on all alike."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from hornbook.config import checked

MOST = {"length": 2**20, "rounds": 1_000_000, "threads": 1024, "batch_size": 1_000_000, "batch_threads": 1024}
WARM_UP_ROUNDS = 5  # before anything is counted: caches fill, kernels are chosen
Answer = Callable[[int], object]  # answers input number i, and returns when it is done


def check_timing(settings: dict[str, int]) -> dict[str, int]:
    """The options of a measurement, each within its range."""
    return {
        name: checked(value, int, f"--{name.replace('_', '-')}", low=1, high=MOST[name])
        for name, value in settings.items()
    }


@dataclass(frozen=True)
class Times:
    """Seconds of each round."""

    seconds: tuple[float, ...]

    def percentile(self, share: float) -> float:
        """In milliseconds, such as `percentile(99)`."""
        return 1000 * float(np.percentile(self.seconds, share))

    @property
    def p50_ms(self) -> float:
        return self.percentile(50)

    @property
    def p99_ms(self) -> float:
        return self.percentile(99)


def by_turns(
    answers: Sequence[Answer],
    num_rounds: int,
    progress: Callable[[int], None] | None = None,
    num_warm_up: int = WARM_UP_ROUNDS,
) -> list[Times]:
    """The times of each. In round i all get input i; which of them begins moves on from round to round."""
    seconds: list[list[float]] = [[] for _ in answers]
    for number in range(-num_warm_up, num_rounds):
        for turn in range(len(answers)):
            place = (number + turn) % len(answers)
            before = time.perf_counter()
            answers[place](max(number, 0))
            if number >= 0:
                seconds[place].append(time.perf_counter() - before)
        if progress and number >= 0:
            progress(number + 1)
    return [Times(tuple(each)) for each in seconds]


@contextlib.contextmanager
def torch_threads(num_threads: int) -> Iterator[None]:
    """So many cores for torch within the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
