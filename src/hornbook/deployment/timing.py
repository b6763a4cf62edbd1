"""Interleaved timing of models: every model runs once per round, so that noise affects all of them equally."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from hornbook.config import checked

LARGEST = {"length": 2**20, "rounds": 1_000_000, "threads": 1024, "batch_size": 1_000_000, "batch_threads": 1024}
WARM_UP_ROUNDS = 5  # not counted: caches fill, kernels are chosen
Answer = Callable[[int], object]  # runs input i, and returns when it is done


def check_timing(settings: dict[str, int]) -> dict[str, int]:
    """Checks that the options of a measurement are in range, and returns them."""
    return {name: checked(value, int, name, low=1, high=LARGEST[name]) for name, value in settings.items()}


def percentiles_ms(seconds: Sequence[float]) -> dict[str, float]:
    """The median and the 99th percentile in milliseconds."""
    return {f"p{percent}": 1000 * float(np.percentile(seconds, percent)) for percent in (50, 99)}


def time_interleaved(
    answers: Sequence[Answer],
    num_rounds: int,
    on_progress: Callable[[int], None] | None = None,
    num_warm_up: int = WARM_UP_ROUNDS,
) -> list[list[float]]:
    """Returns the seconds of every round for each. In round i all run input i; the one that runs first rotates."""
    seconds: list[list[float]] = [[] for _ in answers]
    for i in range(-num_warm_up, num_rounds):
        for turn in range(len(answers)):
            model = (i + turn) % len(answers)
            before = time.perf_counter()
            answers[model](max(i, 0))
            if i >= 0:
                seconds[model].append(time.perf_counter() - before)
        if on_progress and i >= 0:
            on_progress(i + 1)
    return seconds


@contextlib.contextmanager
def torch_threads(num_threads: int) -> Iterator[None]:
    """Sets the number of torch's CPU threads within the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
