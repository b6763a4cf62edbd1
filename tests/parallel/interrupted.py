"""Runs of ranks that are stopped, run out of memory, roll back or fail, or choose a folder."""

import contextlib
import os
import signal
import time
from pathlib import Path

import torch
from parallel.curves import pretrained

from hornbook.runs.finetuning.finetune import new_folder
from hornbook.train.job import Stopped
from hornbook.train.parallel import gradients
from hornbook.train.parallel.gradients import GradientSums
from hornbook.train.parallel.ranks import current_ranks
from hornbook.train.step import Stepper

ALWAYS = {"optimizer.lr": 1e-3, "runtime.log_every_steps": 1}


def resumed(out: str, corpus: str, steps: int, stop_at: int | None = None, settings: dict = ALWAYS) -> None:
    """Runs or resumes; rank 1 alone, where there is one, receives a signal at a step."""
    train_step = Stepper.train_step

    def interrupted(stepper, batch, number, lr):
        if number == stop_at and current_ranks().rank == current_ranks().size - 1:
            signal.raise_signal(signal.SIGTERM)
        return train_step(stepper, batch, number, lr)

    Stepper.train_step = interrupted
    with contextlib.suppress(Stopped):
        pretrained(Path(out), "bert-tiny", settings, corpus, steps, resume=True)


def out_of_memory(out: str, corpus: str) -> None:
    """The last rank runs out of memory before the backward pass of batch 1, when half of the sums of batch 2 have
    started, and after the backward pass of batch 3."""
    gradients.BUCKET_BYTES = 1024
    backward, arrived = Stepper._backward, GradientSums._arrived
    moments = {1: "before", 2: "during", 3: "after"} if current_ranks().rank == 1 else {}
    under_way = []

    def limited(stepper, micro_batches, counts, number, is_padding):
        moment = moments.pop(number, None)
        under_way[:] = [moment]
        fail_if(moment == "before")
        terms = backward(stepper, micro_batches, counts, number, is_padding)
        fail_if(moment == "after")
        assert moment is None
        return terms

    def limited_arrived(sums, parameter):
        arrived(sums, parameter)
        fail_if(under_way == ["during"] and len(sums._started) > len(sums.buckets) / 2)

    def fail_if(is_short: bool) -> None:
        if is_short:
            raise torch.OutOfMemoryError("CUDA out of memory")

    Stepper._backward, GradientSums._arrived = limited, limited_arrived
    pretrained(Path(out), "bert-tiny", ALWAYS | {"batch.micro_tokens": 192}, corpus, 6)


def rolled_back(out: str, corpus: str) -> None:
    """On the last rank, the loss of batch 5 is not a number."""
    backward = Stepper._backward

    def broken(stepper, micro_batches, counts, number, is_padding):
        terms = backward(stepper, micro_batches, counts, number, is_padding)
        is_bad = number == 5 and current_ranks().rank == current_ranks().size - 1
        return {term: value * (float("nan") if is_bad else 1.0) for term, value in terms.items()}

    Stepper._backward = broken
    settings = ALWAYS | {"checkpoint.at_start": True, "checkpoint.every_steps": 3}
    pretrained(Path(out), "bert-tiny", settings, corpus, 8)


def failing(out: str, corpus: str, said: str) -> None:
    """Rank 1 fails at batch 3; each rank writes what it ended with."""
    train_step = Stepper.train_step

    def broken(stepper, batch, number, lr):
        if number == 3 and current_ranks().rank == 1:
            raise ValueError("the disk of rank 1 is gone")
        return train_step(stepper, batch, number, lr)

    Stepper.train_step = broken
    error = None
    try:
        pretrained(Path(out), "bert-tiny", ALWAYS, corpus, 6)
    except Exception as raised:
        error = raised
    Path(said, str(current_ranks().rank)).write_text(f"{type(error).__name__}: {error}")


def in_a_new_folder(home: str) -> None:
    """Each rank chooses a folder for its run; the main one need not wait for the other before it makes it."""
    os.chdir(home)
    if current_ranks().rank:
        time.sleep(1)
    folder = new_folder("relation")
    folder.mkdir(parents=True, exist_ok=True)
    assert folder == Path("runs/relation-1")
