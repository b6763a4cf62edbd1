"""The progress of what a run prepares before its first step."""

import math
import time
from collections.abc import Callable

from hornbook.train.job import OnProgress, Status


def preparation_progress(on_progress: OnProgress, unit: str, first: int = 0) -> Callable[..., None]:
    """A function that takes (number done, total number, tokens read so far) and reports them as a `Status`, with the
    time left at the speed so far. `first` were done before; after the last one, it starts again for other data."""
    started = time.monotonic()

    def show(num_done: int, total: int, num_tokens: int = 0) -> None:
        nonlocal started, first
        seconds = max(time.monotonic() - started, 1e-9)
        left = seconds * (total - num_done) / (num_done - first) if num_done > first else math.inf
        on_progress(Status(num_done, total, {}, num_tokens / seconds, left, unit=unit))
        if num_done == total:
            started, first = time.monotonic(), 0

    return show
