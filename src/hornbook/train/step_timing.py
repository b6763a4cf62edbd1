"""Measures the time of a step before the run, to convert a number of minutes into a number of steps."""

import statistics
import time
from collections.abc import Iterable

import torch

from hornbook.batch import Batch
from hornbook.train.job import TrainingJob
from hornbook.train.optimizer import make_optimizer
from hornbook.train.parallel.ranks import current_ranks
from hornbook.train.runtime import Runtime
from hornbook.train.settings import LoopSettings
from hornbook.train.setup import make_stepper

FORWARD_SHARE = 1 / 3  # the forward pass as a fraction of a step; validation needs nothing else
NUM_TIMED = 12  # timed steps per sequence length
LONG_RUN = 30 * 60  # seconds; longer runs suggest what would be quicker


def num_to_time(num_steps: int, most: int = NUM_TIMED) -> int:
    """The number of steps to time before a run of `num_steps`: at most a tenth of them, so that a short run is not
    preceded by a measurement of the same length.

    >>> num_to_time(5), num_to_time(50), num_to_time(5000)
    (1, 5, 12)
    """
    return max(1, min(most, num_steps // 10))


def seconds_per_step(
    job: TrainingJob, settings: LoopSettings, runtime: Runtime, batch_numbers: Iterable[int], most_seconds: float
) -> float:
    """Median seconds per step over these batches. A step that also compiles or captures a CUDA graph is taken again and
    timed then. Stops early `most_seconds` after the first step.

    The learning rate is 0, so that no weight changes, and the optimizer is discarded. With several processes each
    measures its own part of the batches, without the time to exchange gradients.
    """
    job.module.to(runtime.device)
    stepper = make_stepper(job.module, make_optimizer(job.model, settings.optimizer), settings, runtime)
    make_batch = current_ranks().own_part(job.make_batch)

    def timed_step(batch: Batch, batch_number: int) -> float:
        start = time.monotonic()
        stepper.train_step(batch, batch_number, lr=0.0)
        if runtime.device.type == "cuda":
            torch.cuda.synchronize(runtime.device)
        return time.monotonic() - start

    times: list[float] = []
    began = 0.0
    for batch_number in batch_numbers:
        batch = make_batch(batch_number).to(runtime.device)
        num_captured = stepper.num_captured
        seconds = timed_step(batch, batch_number)
        if not times:
            began = time.monotonic()
        if not times or stepper.num_captured > num_captured:
            seconds = timed_step(batch, batch_number)
        times.append(seconds)
        if time.monotonic() - began > most_seconds:
            break
    return statistics.median(times)
