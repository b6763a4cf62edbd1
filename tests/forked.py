"""Programs in processes of their own, to be killed. Each is forked from a server that has done nothing but import the
library: a new Python would spend seconds on importing torch."""

import multiprocessing
import os
import sys
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess

import torch

from hornbook.metrics import confidence_intervals

context = multiprocessing.get_context("forkserver")


def preload(*modules: str) -> None:
    """Modules that the server imports before the first process starts."""
    context.set_forkserver_preload(list(modules))


preload(
    "fewer_collections",
    *(
        "hornbook.cli",
        "hornbook.runs.distillation.distill",
        "hornbook.evaluation.prompting.prompt",
        "torch._inductor.config",
    ),
    *("huggingface_hub.repocard", "pydantic.types", "rich.progress"),  # what runs import at their end
)


def start_server() -> None:
    """To be called before any test changes how signals are handled: forked programs inherit that from the server."""
    forkserver.ensure_running()


def do_not_wait_for_the_disk() -> None:
    """No test cuts the power, so that no file needs to be on the disk before it is renamed."""
    os.fsync = os.fstat


def do_without_onednn() -> None:
    """It prepares a matrix product anew for each shape, which takes longer than the products of so small models."""
    torch.backends.mkldnn.set_flags(_enabled=False)


def draw_fewer_resamples() -> None:
    """A hundred instead of a thousand for each interval, which would take as long as the smallest runs."""
    confidence_intervals.ROUNDS = 100


def begun(program: str, *words: object) -> BaseProcess:
    """A process that runs the program, with the words as `sys.argv[1:]`."""
    process = context.Process(target=_run, args=(program, [str(word) for word in words]))
    process.start()
    return process


def status_of(program: str, *words: object) -> int:
    """Its exit status, below 0 the signal that it died of."""
    process = begun(program, *words)
    process.join(120)
    assert process.exitcode is not None, "it has not ended within two minutes"
    return process.exitcode


def _run(program: str, words: list[str]) -> None:
    torch.set_num_threads(1)
    do_without_onednn()
    draw_fewer_resamples()
    do_not_wait_for_the_disk()
    sys.argv[1:] = words
    exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})
