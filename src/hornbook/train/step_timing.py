"""Measures the time of a step before the run, to convert a number of minutes into a number of steps."""

import contextlib
import statistics
import time
from collections.abc import Iterable, Sequence

import torch

from hornbook.batch import Batch
from hornbook.train.job import TrainingJob
from hornbook.train.optimizer import make_optimizer
from hornbook.train.parallel.ranks import current_ranks
from hornbook.train.runtime import Runtime
from hornbook.train.settings import LoopSettings
from hornbook.train.step import make_stepper

FORWARD_FRACTION = 1 / 3  # the forward pass as a fraction of a step; validation needs nothing else
NUM_TIMED = 12  # timed steps per sequence length
SHORT_STEP = 0.2  # seconds; waiting for each step of 12 ms made it look 23% longer (ELECTRA-small, H200)
MEASURING = "measuring how long a step takes ..."  # a log line
LONG_RUN = 30 * 60  # seconds; longer runs suggest what would be quicker


def num_to_time(num_steps: int, max_timed: int = NUM_TIMED) -> int:
    """The number of steps to time before a run of `num_steps`: at most a tenth of them, so that a short run is not
    preceded by a measurement of the same length.

    >>> num_to_time(5), num_to_time(50), num_to_time(5000)
    (1, 5, 12)
    """
    return max(1, min(max_timed, num_steps // 10))


def seconds_per_step(
    job: TrainingJob, settings: LoopSettings, runtime: Runtime, batch_numbers: Iterable[int], max_seconds: float
) -> float:
    """Seconds per step, measured on these batches: the median, or the mean of short steps on a GPU, which the host
    queues without waiting for each, as the training loop does. A step that also compiles or captures a CUDA graph is
    taken again and timed then; so is the first one, unless it takes more than `max_seconds` without compiling. Stops
    early `max_seconds` after the first step.

    The learning rate is 0, so that no weight changes, and the optimizer is discarded. With several processes each
    measures its own part of the batches, without the time to exchange gradients.
    """
    job.module.to(runtime.device)
    optimizer = make_optimizer(job.model, settings.optimizer)
    make_batch = current_ranks().own_part(job.make_batch)
    # Closed, because a loader process that is forked later would destroy CUDA graphs that wait for garbage collection.
    with contextlib.closing(make_stepper(job.module, optimizer, settings, runtime)) as stepper:

        def seconds_of(batches: Sequence[tuple[Batch, int]]) -> float:
            start = time.monotonic()
            for batch, batch_number in batches:
                stepper.train_step(batch, batch_number, lr=0.0)
            if runtime.device.type == "cuda":
                torch.cuda.synchronize(runtime.device)
            return time.monotonic() - start

        timed: list[tuple[Batch, int]] = []
        times: list[float] = []
        began = 0.0
        for batch_number in batch_numbers:
            timed.append((make_batch(batch_number).to(runtime.device), batch_number))
            num_captured = stepper.num_captured
            seconds = seconds_of(timed[-1:])
            if not times:
                began = time.monotonic()
            is_slow = seconds > max_seconds and runtime.device.type == "cpu" and not runtime.compiles
            if (not times and not is_slow) or stepper.num_captured > num_captured:
                seconds = seconds_of(timed[-1:])
            times.append(seconds)
            if is_slow or time.monotonic() - began > max_seconds:
                break
        median = statistics.median(times)
        return seconds_of(timed) / len(timed) if runtime.device.type == "cuda" and median < SHORT_STEP else median
