"""The loss curve of a run for every objective, in float64, on whatever ranks there are."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import ClassVar

from tiny import TINY_MODEL

import hornbook
from hornbook.lifecycle.run_folder import read_metrics
from hornbook.runs.finetuning import single_run as finetuning
from hornbook.runs.pretraining import pretrain as pretraining
from hornbook.train import loop, step
from hornbook.train.parallel import gradients
from hornbook.train.parallel.ranks import current_ranks
from hornbook.train.step import Stepper

STEPS, FEWER = 24, 12
NO_DROPOUT = {"model.dropout": 0.0, "model.attention_dropout": 0.0}
OVERRIDES = TINY_MODEL | {"model.width": 16, "model.inner_width": 32} | NO_DROPOUT
OVERRIDES |= {"checkpoint.every_steps": 0, "checkpoint.every_minutes": 0, "checkpoint.at_start": False}
OVERRIDES |= {
    "optimizer.lr": 3e-3,
    "validation.every_steps": 12,
    "validation.tokens": 256,
    "runtime.tensorboard": False,
}
SMALL_PARTS = {"batch.micro_tokens": 64}
PRETRAINED = {  # case -> preset and settings
    "mlm and nsp": ("bert-tiny", {}),
    "sop, lamb": (
        "albert-base",
        {"model.embedding_width": 8, "model.head_dropout": 0.0, "optimizer.name": "lamb"},
    ),
    "clm, accumulation, muon": (
        "gpt2-small",
        SMALL_PARTS | {"optimizer.name": "muon", "model.num_layers": 2, "model.embedding_dropout": 0.0},
    ),
    "masked and next tokens, growing batches": (
        "gpt2-small",
        SMALL_PARTS
        | {"objective.mlm_fraction": 0.4, "masking.final_probability": 0.3, "model.embedding_dropout": 0.0}
        | {"batch.first_tokens": 64, "batch.growth_fraction": 0.8},
    ),
    "rtd, growing batches": (
        "electra-small",
        {"model.embedding_width": 8, "objective.generator_size": 0.5}
        | {"batch.first_tokens": 64, "batch.growth_fraction": 0.8},
    ),
}
TASK = {"runtime.threads": 1, "layers.dropout": 0.0, "optimizer.lr": 3e-3, "validation.every_steps": 15}
QUIET = {"log": lambda words: None}


def in_float64(run, job, *rest):
    """`train`, with the weights in float64."""
    job.module.double()
    return loop.train(run, job, *rest)


class Recording(Stepper):
    """Records the loss of each step before it is rounded to float32, except those that are only timed."""

    losses: ClassVar[list[float]] = []

    def train_step(self, batch, number, lr):
        result = super().train_step(batch, number, lr)
        if lr > 0:
            self.losses.append(float(result.loss))
        return result


def curve_of(train: Callable[[], object]) -> list[float]:
    Recording.losses.clear()
    train()
    return list(Recording.losses)


def all_curves(folder: str, names: list[str], corpus: str, encoder: str, rows: dict, teachers: dict) -> None:
    """Trains for the named objectives and writes their curves to `curves.json`."""
    pretraining.train = finetuning.train = in_float64
    step.Stepper = Recording
    gradients.BUCKET_BYTES = 16384
    out, curves = Path(folder), {}
    tasks = {
        "distillation": lambda: distilled(out / "distilled", teachers["text"], corpus),
        "task": lambda: finetuned(out / "task", encoder, rows["classified"], "classification", TASK),
        "distilled task": lambda: distilled_on_task(out / "on-task", teachers["task"], encoder, rows["classified"]),
        "similarity": lambda: finetuned(out / "pairs", encoder, rows["paired"], "similarity", TASK | SMALL_PARTS),
    }
    for name in names:
        if name in tasks:
            curves[name] = curve_of(tasks[name])
        else:
            steps = STEPS if name == "mlm and nsp" else FEWER
            curves[name] = curve_of(partial(pretrained, out / name, *PRETRAINED[name], corpus, steps))
    for name in PRETRAINED.keys() & set(names):
        lines = read_metrics(out / name)
        curves[f"validation of {name}"] = [line["loss"] for line in lines if line["kind"] == "validation"]
    if current_ranks().is_main:
        (out / "curves.json").write_text(json.dumps(curves))


def pretrained(out: Path, preset: str, overrides: dict, corpus: str, steps: int = STEPS, **more) -> None:
    options = {"steps": steps, "batch_tokens": 192, "recipe": "published"} | QUIET | more
    pretraining.pretrain(preset, [corpus], out, overrides=OVERRIDES | overrides, **options)


def distilled(out: Path, teacher: str, corpus: str) -> None:
    options = {"corpora": [corpus], "recipe": "tinybert", "steps": FEWER, "batch_tokens": 192}
    hornbook.distill(teacher, "tinybert-4", out, overrides=OVERRIDES, **options, **QUIET)


def finetuned(out: Path, model: str, rows: list, task: str, overrides: dict, **more) -> None:
    """10 examples in a batch, and in the last of an epoch fewer than there are ranks."""
    options = {"epochs": 6, "batch_size": 10} | QUIET | more
    hornbook.finetune(model, rows, task, out, overrides=overrides, **options)


def distilled_on_task(out: Path, teacher: str, student: str, rows: list) -> None:
    options = {"task": "classification", "data": rows, "recipe": "distilbert", "batch_size": 10, "epochs": 3}
    hornbook.distill(teacher, student, out, overrides=TASK, **options, **QUIET)
