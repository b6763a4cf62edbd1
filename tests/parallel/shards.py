"""Steps with whole and with sharded weights, in float64."""

import contextlib
import json
from pathlib import Path

import torch
from parallel.curves import SMALL_PARTS, Recording, curve_of, finetuned, in_float64, pretrained

from hornbook.runs.pretraining import pretrain as pretraining
from hornbook.train import loop, step
from hornbook.train.job import Stopped
from hornbook.train.parallel.ranks import current_ranks

STEPS = 8
SHARDED = {"parallel.shard": True}
CASES = {  # preset and settings
    "post-norm, lamb": ("bert-tiny", {"model.num_layers": 2, "optimizer.name": "lamb"}),
    "pre-norm, muon": (
        "gpt2-small",
        SMALL_PARTS | {"model.num_layers": 2, "model.embedding_dropout": 0.0, "optimizer.name": "muon"},
    ),
    "shared layers": ("albert-base", {"model.embedding_width": 8, "model.head_dropout": 0.0, "model.num_layers": 2}),
    "pair": (
        "electra-small",
        {"model.embedding_width": 8, "objective.generator_size": 0.5, "objective.shared": "followed"},
    ),
    "repeated positions": ("bert-tiny", {"data.short_fraction": 0.5, "data.repeat_positions": True}),
    "checkpointed activations": ("bert-tiny", {"model.num_layers": 2, "parallel.activation_checkpointing": True}),
}
TASK = {"runtime.threads": 1, "layers.dropout": 0.0, "optimizer.lr": 3e-3, "validation.every_steps": 4}


def steps(folder: str, corpus: str, encoder: str, rows: list, shard: bool) -> None:
    """Trains each case and writes the curves to `curves.json`; a fine-tuned run with empty parts comes last."""
    from hornbook.runs.finetuning import single_run as finetuning

    pretraining.train = finetuning.train = in_float64
    step.Stepper = Recording
    out, curves = Path(folder), {}
    more = SHARDED if shard else {}
    for name, (preset, settings) in CASES.items():
        saved = {"checkpoint.every_steps": 4, "runtime.tensorboard": False}
        curves[name] = curve_of(
            lambda name=name, preset=preset, settings=settings | saved | more: pretrained(
                out / name, preset, settings, corpus, STEPS
            )
        )
    curves["similarity"] = curve_of(
        lambda: finetuned(out / "pairs", encoder, rows, "similarity", TASK | SMALL_PARTS | more, epochs=2)
    )
    if current_ranks().is_main:
        (out / "curves.json").write_text(json.dumps(curves))


def resumed_otherwise(folder: str, corpus: str, last: int) -> None:
    """A run with Muon, up to step `last`; on one rank it is not sharded."""
    stop = {"on_progress": lambda status: status.step >= last}
    with contextlib.suppress(Stopped):
        pretrained(Path(folder), "gpt2-small", CASES["pre-norm, muon"][1] | SHARDED, corpus, STEPS, resume=True, **stop)


def local_sizes(folder: str, corpus: str) -> None:
    """Writes how many numbers each rank keeps of the weights and of the optimizer's state."""
    loops = []
    init = loop._Loop.__init__

    def remember(self, *arguments):
        init(self, *arguments)
        loops.append(self)

    loop._Loop.__init__ = remember
    pretrained(Path(folder) / "run", "bert-tiny", SHARDED, corpus, 2)
    (one,) = loops
    sizes = {
        "weights": sum(each.numel() for each in one.sharded.parameters.values()),
        "state": sum(value.numel() for state in one.optimizer.state.values() for value in state.values()),
        "whole": sum(each.numel() for each in one.job.model.parameters()),
        "held": sum(each.untyped_storage().nbytes() // 4 for each in one.sharded.parameters.values()),
    }
    Path(folder, f"{current_ranks().rank}.json").write_text(json.dumps(sizes))
    assert all(isinstance(each, torch.nn.Parameter) for each in one.job.model.parameters())
