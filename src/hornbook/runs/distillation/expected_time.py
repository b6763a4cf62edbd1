"""Expected time of a distillation on a task, measured on its first steps before it starts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hornbook.report.wording import duration
from hornbook.runs.finetuning.inputs import Inputs, Log
from hornbook.runs.finetuning.settings import TaskDistillationSettings
from hornbook.train.checkpoint import Checkpoints
from hornbook.train.device import Runtime
from hornbook.train.loop import Job
from hornbook.train.pace import FORWARD_SHARE, LONG_RUN, seconds_per_step

NUM_TIMED, MOST_SECONDS = 4, 10.0  # steps timed per stage, and the limit on their total time


@dataclass(frozen=True)
class Stage:
    """A stage of a run: its folder, a job to time, and its settings including the number of steps."""

    folder: Path
    job: Job
    settings: TaskDistillationSettings


def log_expected_time(stages: Sequence[Stage], inputs: Inputs, runtime: Runtime, log: Log) -> None:
    seconds = [_expected_seconds(stage, inputs, runtime) for stage in stages]
    numbered = [f"stage {number}: {duration(each)}" for number, each in enumerate(seconds, 1)]
    log(f"expected time: about {duration(sum(seconds))}" + (f" ({', '.join(numbered)})" if len(stages) > 1 else ""))
    if sum(seconds) < LONG_RUN:
        return
    if len(stages) > 1:
        log(f"--recipe distilbert has one stage on a task, and takes about {duration(seconds[-1])}")
    else:
        log("fewer --epochs or a smaller student take less time")


def _expected_seconds(stage: Stage, inputs: Inputs, runtime: Runtime) -> float:
    """Seconds for the remaining steps and the validations between them."""
    settings = stage.settings
    num_left = settings.schedule.steps - (Checkpoints(stage.folder).last_step() or 0)
    if num_left <= 0:
        return 0.0
    step_seconds = seconds_per_step(stage.job, settings.loop(), runtime, range(min(NUM_TIMED, num_left)), MOST_SECONDS)
    validation_seconds = FORWARD_SHARE * step_seconds * inputs.dev_features.num_units / settings.batch_size
    return num_left * (step_seconds + validation_seconds / settings.validation.every_steps)
