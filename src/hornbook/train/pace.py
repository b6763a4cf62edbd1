"""How long a step takes, measured before the run, so that a number of minutes becomes a number of steps."""

import time
from collections.abc import Iterable

import torch

from hornbook.train.device import Runtime
from hornbook.train.loop import Job, LoopSettings
from hornbook.train.optimizer import make_optimizer
from hornbook.train.step import Stepper

FORWARD_SHARE = 1 / 3  # of a step: the forward pass, which is all that a validation takes
LONG_RUN = 30 * 60  # seconds from which on a run names what would be quicker


def seconds_per_step(
    job: Job, settings: LoopSettings, runtime: Runtime, numbers: Iterable[int], most_seconds: float
) -> float:
    """Median time of a step on these batches, after the first, which also compiles; fewer when they take too long.

    The steps have learning rate 0, so that no weight changes by a bit, and the optimizer is thrown away.
    """
    job.model.to(runtime.device)
    stepper = Stepper(
        job.model,
        job.objective,
        make_optimizer(job.model, settings.optimizer),
        runtime,
        settings.runtime.seed,
        settings.optimizer.clip,
        settings.batch.micro_tokens,
    )
    times = []
    began = time.monotonic()
    for number in numbers:
        batch = job.make_batch(number).to(runtime.device)
        start = time.monotonic()
        stepper.take(batch, number, lr=0.0)
        if runtime.device.type == "cuda":
            torch.cuda.synchronize(runtime.device)
        times.append(time.monotonic() - start)
        if len(times) >= 2 and time.monotonic() - began > most_seconds:
            break
    times = sorted(times[1:] or times)
    return times[len(times) // 2]
