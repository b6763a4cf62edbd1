"""Measures the time of a step before the run, to convert a number of minutes into a number of steps."""

import time
from collections.abc import Iterable

import torch

from hornbook.train.device import Runtime
from hornbook.train.loop import Job, LoopSettings
from hornbook.train.optimizer import make_optimizer
from hornbook.train.parallel.ranks import joined
from hornbook.train.step import Stepper

FORWARD_SHARE = 1 / 3  # the forward pass as a fraction of a step; validation needs nothing else
LONG_RUN = 30 * 60  # seconds; longer runs suggest what would be quicker


def seconds_per_step(
    job: Job, settings: LoopSettings, runtime: Runtime, numbers: Iterable[int], most_seconds: float
) -> float:
    """Median seconds per step over the batches `numbers`, without the first, which also compiles. Stops early after
    `most_seconds`.

    The learning rate is 0, so that no weight changes, and the optimizer is discarded. With several processes each
    measures its own part of the batches, without the time to exchange gradients.
    """
    job.module.to(runtime.device)
    stepper = Stepper(
        job.module,
        make_optimizer(job.model, settings.optimizer),
        runtime,
        settings.runtime.seed,
        settings.optimizer.clip,
        settings.batch.micro_tokens,
    )
    make_batch = joined().own_part(job.make_batch)
    times = []
    began = time.monotonic()
    for number in numbers:
        batch = make_batch(number).to(runtime.device)
        start = time.monotonic()
        stepper.take(batch, number, lr=0.0)
        if runtime.device.type == "cuda":
            torch.cuda.synchronize(runtime.device)
        times.append(time.monotonic() - start)
        if len(times) >= 2 and time.monotonic() - began > most_seconds:
            break
    times = sorted(times[1:] or times)
    return times[len(times) // 2]
