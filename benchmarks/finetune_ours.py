"""Our side of `finetune.py`: a run as in `hornbook finetune`, but validated only after the last step, so that the last
weights are scored."""

import time
from pathlib import Path

from finetune_data import Recipe

from hornbook.files import read_json
from hornbook.interop.folder import load_folder
from hornbook.runs.finetuning.inputs import FinetuneInputs
from hornbook.runs.finetuning.published import settings_for
from hornbook.runs.finetuning.record import FinetuneRequest
from hornbook.runs.finetuning.single_run import open_and_run, run_once
from hornbook.tasks.datasets import find_task
from hornbook.tasks.records import DataSet
from hornbook.tasks.spec import head_config_for, make_task
from hornbook.train.job import TrainingProgress

NEVER = 1_000_000_000  # steps


class Clock:
    """Times a run. The losses of a step have been read from the device when it is called."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.seen: list[tuple[int, float]] = []  # steps done, seconds since the beginning
        self.num_steps = 0

    def __call__(self, progress: TrainingProgress) -> None:
        self.seen.append((progress.step, time.perf_counter() - self.began))
        self.num_steps = progress.num_steps

    def seconds_at(self, step: int) -> tuple[int, float]:
        """The time at which `step` or more steps were done, with their number first."""
        return next((done, seconds) for done, seconds in self.seen if done >= step)

    @property
    def seconds_trained(self) -> float:
        """Seconds until the trained weights are in memory."""
        return self.seconds_at(self.num_steps)[1]


def request_for(recipe: Recipe) -> FinetuneRequest:
    overrides = {
        "task.max_length": recipe.max_length,
        "task.threshold_fraction": 0.0,
        "schedule.warmup_fraction": recipe.warmup,
        "optimizer.weight_decay": recipe.weight_decay,
        "optimizer.max_grad_norm": recipe.clip,
        "validation.every_steps": NEVER,
        "checkpoint.every_minutes": 0.0,
        "runtime.threads": recipe.threads,
        "runtime.device": recipe.device,
    }
    return FinetuneRequest(
        recipe.model,
        recipe.task,
        None,
        epochs=float(recipe.epochs),
        lr=recipe.lr,
        batch_size=recipe.batch_size,
        seed=recipe.seed,
        overrides=overrides,
    )


def fine_tune(recipe: Recipe, data: DataSet, out: Path) -> dict:
    """Trains on `train` and scores `dev`; the run is written to the folder `out`."""
    clock = Clock()
    named, request = find_task(recipe.task), request_for(recipe)
    trained, tokenizer = load_folder(Path(recipe.model))
    settings = settings_for(named, trained, request.all_overrides())
    spec = make_task(named, data, head_config_for(data))
    inputs = FinetuneInputs(named, data, settings, spec, data.splits["train"], [], request, trained, tokenizer)
    result = run_once(out, inputs, clock, lambda words: None)
    training = result.outcome.seconds
    return {
        "how": read_json(out / "run.json")["runtime"]["reason"],
        "scores": {name: each["value"] for name, each in result.scores["dev"].items()},
        "degenerate": result.degenerate,
        "training_seconds": training,
        "startup_seconds": clock.seconds_trained - training,
        "steps": result.outcome.step,
        "sequences": inputs.encoded_train.num_groups,
        "examples_per_second": len(inputs.train) * recipe.epochs / training,
    }


def fine_tune_from_disk(recipe: Recipe, data: Path, out: Path) -> tuple[Clock, str]:
    """The whole run, starting from the two folders. Returns the measured times and the chosen device settings."""
    clock = Clock()
    open_and_run(out, request_for(recipe), str(data), clock, lambda words: None)
    return clock, read_json(out / "run.json")["runtime"]["reason"]
