"""The training steps of a run on labelled data: their number, the batch of each, and whether they are done."""

import math
from pathlib import Path
from typing import TypeVar

import numpy as np

from hornbook import config as configuration
from hornbook.batch import Batch, part_of
from hornbook.models.flops import model_flops_per_token, shape_of
from hornbook.models.transformer import Transformer
from hornbook.runs.finetuning.inputs import Inputs, Log
from hornbook.runs.finetuning.settings import FinetuneSettings
from hornbook.tasks.encoded import EncodedExamples
from hornbook.train.checkpoint import Checkpoints
from hornbook.train.job import TrainingJob
from hornbook.train.randomness import seed_of
from hornbook.train.runtime import Runtime
from hornbook.train.step_timing import FORWARD_SHARE, seconds_per_step

S = TypeVar("S")
LONGEST_WITHOUT_VALIDATION = 1000  # steps
NUM_TIMED, MAX_TIMED_SECONDS = 4, 10.0  # steps that are timed before a run, and the limit on their total time


def with_steps(settings: S, encoded: EncodedExamples) -> S:
    """The settings with the number of steps on these training examples, and the intervals of logging and validation."""
    steps_per_epoch = math.ceil(encoded.num_groups / settings.batch_size)
    steps = max(1, round(steps_per_epoch * settings.epochs))
    # A short run logs often enough to see whether its loss moved.
    overrides = {
        "schedule.steps": steps,
        "runtime.log_every_steps": max(1, min(settings.runtime.log_every_steps, steps // 50)),
    }
    if settings.validation.every_steps is None:
        overrides["validation.every_steps"] = min(steps_per_epoch, LONGEST_WITHOUT_VALIDATION)
    return configuration.with_overrides(settings, overrides)


class TaskBatches:
    """Every group once per epoch, in an order that depends on the seed and the epoch. The last batch of an epoch may be
    smaller."""

    def __init__(self, encoded: EncodedExamples, batch_size: int, seed: int):
        self.encoded, self.batch_size, self.seed = encoded, batch_size, seed
        self.steps_per_epoch = math.ceil(encoded.num_groups / batch_size)
        self._epoch, self._order = -1, np.zeros(0, np.int64)

    def __call__(self, step: int, part: tuple[int, int] = (0, 1)) -> Batch:
        """The batch of a step, or only part `part[0]` of `part[1]` of it. An empty part is one of its groups, as
        padding."""
        epoch, index = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._order = np.random.default_rng(seed_of(self.seed, epoch, "order")).permutation(self.encoded.num_groups)
            self._epoch = epoch
        groups = self._order[index * self.batch_size : (index + 1) * self.batch_size].tolist()
        first, last = part_of(len(groups), part)
        batch = self.encoded.batch(groups[first:last] or groups[:1], with_dataset_index=True)
        step_index = first * self.encoded.group_size + np.arange(batch.num_sequences)
        return batch.with_values("sequences", step_index_host=step_index).as_padding(first == last)


def planned_flops(model: Transformer, encoded: EncodedExamples, epochs: float, learns_text: bool) -> float:
    """Useful FLOPs of the whole run, which decide whether compilation pays off. `learns_text`: whether the model also
    predicts every next token."""
    num_tokens = sum(map(len, encoded.ids))
    predicted, head = (1.0, "clm") if learns_text else (0.0, "none")
    flops_per_token = model_flops_per_token(shape_of(model.config, num_tokens / len(encoded.ids), predicted, head))
    return num_tokens * flops_per_token * epochs


def expected_seconds(
    job: TrainingJob, settings: FinetuneSettings, inputs: Inputs, runtime: Runtime, num_steps: int, num_timed: int
) -> tuple[float, float]:
    """The expected time of `num_steps` steps with their validations, and that of one step, both in seconds, measured on
    `num_timed` steps at learning rate 0. A validation costs a forward pass over the tokens of dev."""
    step_seconds = seconds_per_step(job, settings, runtime, range(num_timed), MAX_TIMED_SECONDS)
    num_train, num_dev = (sum(map(len, split.ids)) for split in (inputs.encoded_train, inputs.encoded_dev))
    steps_per_epoch = inputs.encoded_train.num_groups / settings.batch_size
    validation_seconds = FORWARD_SHARE * step_seconds * steps_per_epoch * num_dev / max(1, num_train)
    num_validations = math.ceil(num_steps / settings.validation.every_steps)
    return num_steps * step_seconds + num_validations * validation_seconds, step_seconds


def log_where_it_resumes(out: Path, settings: FinetuneSettings, log: Log) -> None:
    """Logs the step at which a run or stage resumes, if it has a checkpoint."""
    if step := Checkpoints(out).last_step():
        log(f"resuming at step {step:,} of {settings.schedule.steps:,}")
