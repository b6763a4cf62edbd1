"""Inputs and outputs of the training loop (`loop.py`): training job, state, progress and outcome."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from torch import nn

from hornbook.batch import Batch
from hornbook.train.objective import Objective, TrainingModule


@dataclass(frozen=True)
class TrainingJob:
    """What the loop trains, and how to make batch k, validate, save and load the model.

    `make_batch` takes the number of a batch and, if several processes train together, also `part=(index, count)`, and
    makes only that part of it. `validate` takes the largest number of tokens in a forward pass and returns metrics by
    name. The best validation is the one with the lowest `loss` or, if `metric_for_best` names another metric, the
    highest value of that metric; ties are broken by the lowest loss.

    `new_phase_at` is the number of the first batch of other data: `begin_phase` may change the model before it (with
    `optimizer.ema_decay` it is called again while the model has the averaged weights), and spike detection forgets the
    losses before, as later ones are not comparable.
    """

    module: TrainingModule
    make_batch: Callable[..., Batch]
    validate: Callable[[int], dict[str, float]] | None
    save_model: Callable[[Path], None]
    load_model: Callable[[Path], None]
    metric_for_best: str = "loss"
    lr_multiplier_of: Callable[[str], float] | None = None  # parameter name -> learning-rate multiplier
    new_phase_at: int | None = None
    begin_phase: Callable[[], None] | None = None

    @property
    def model(self) -> nn.Module:
        return self.module.model

    @property
    def objective(self) -> Objective:
        return self.module.objective

    def is_better(self, metrics: dict[str, float], than: "LoopState") -> bool:
        value = metrics[self.metric_for_best]
        if than.best is None:
            return True
        if self.metric_for_best == "loss":
            return value < than.best
        is_tie = value == than.best and than.loss_of_best is not None
        return value > than.best or (is_tie and metrics["loss"] < than.loss_of_best)


@dataclass
class TrainingProgress:
    """The progress of a run, passed to `on_progress`."""

    step: int
    num_steps: int
    values: dict[str, float]
    tokens_per_second: float
    seconds_left: float
    message: str | None = None
    metric_for_best: str = "loss"  # the metric that decides which validation is best
    unit: str = "step"  # the unit of `step` and `num_steps`


@dataclass
class LoopState:
    """The part of the loop's state that is written to `state.json`."""

    step: int = 0  # updates done
    tokens: int = 0
    seconds: float = 0.0
    best: float | None = None  # best validation value of `TrainingJob.metric_for_best`
    best_step: int = 0
    loss_of_best: float | None = None  # loss at the best validation
    validations_since_best: int = 0
    ended_early: bool = False
    micro_tokens: int = 0
    loss_spike: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """The end of a run. `ended` is `finished`, `finished early` (validation stopped improving), `already finished` (by
    an earlier process) or, in the exception `Stopped`, `stopped`. `last`: the last metrics."""

    ended: str
    step: int
    tokens: int
    seconds: float
    last: dict[str, float]
    best: float | None
    best_step: int = 0

    @classmethod
    def from_state(cls, ended: str, state: dict[str, Any], last: dict[str, float] | None = None) -> Self:
        """The outcome of a run with this state, as in the `state.json` of its last checkpoint."""
        names = ("step", "tokens", "seconds", "best", "best_step")
        return cls(ended, last=last or {}, **{name: state[name] for name in names})


class Stopped(RuntimeError):
    """Raised by everything that trains if a signal, or `on_progress` by returning True, stopped it. Its state is saved:
    the same call, with `resume=True` where there is such an argument, continues it. `outcome` is how far it came.

    >>> import hornbook
    >>> options = {"batch_tokens": 512, "progress": False, "log": lambda message: None}
    >>> try:
    ...     hornbook.pretrain("bert-tiny", "corpus", "runs/stopped", steps=9, on_progress=lambda _: True, **options)
    ... except hornbook.Stopped as stopped:
    ...     print(stopped)
    stopped at step 1 and saved: the same call continues it, with resume=True if it takes that argument
    """

    def __init__(self, outcome: Outcome):
        super().__init__(outcome)  # so that it can be pickled, to leave a process of a pool
        self.outcome = outcome

    def __str__(self) -> str:
        how = "the same call continues it, with resume=True if it takes that argument"
        return f"stopped at step {self.outcome.step:,} and saved: {how}"


OnProgress = Callable[[TrainingProgress], bool | None]  # returning True stops the run, with everything saved


def preparation_progress(on_progress: OnProgress, unit: str, first: int = 0) -> Callable[..., None]:
    """A function that takes (number done, total number, tokens read so far) and reports a `TrainingProgress`, with the
    time left at the speed so far. `first` were done before; after the last one, it starts again for other data."""
    started = time.monotonic()

    def show(num_done: int, total: int, num_tokens: int = 0) -> None:
        nonlocal started, first
        seconds = max(time.monotonic() - started, 1e-9)
        left = seconds * (total - num_done) / (num_done - first) if num_done > first else math.inf
        on_progress(TrainingProgress(num_done, total, {}, num_tokens / seconds, left, unit=unit))
        if num_done == total:
            started, first = time.monotonic(), 0

    return show
