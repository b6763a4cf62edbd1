"""Pre-training runs of a second, of every family."""

from pathlib import Path

import torch
from safetensors.torch import load_file
from tiny import TINY_MODEL

from hornbook.runs.pretraining.pretrain import pretrain

FAMILIES = {  # a preset of each, and what makes it tiny besides
    "bert": ("bert-tiny", {}),
    "albert": ("albert-base", {"model.num_layers": 2, "model.embedding_width": 16}),
    "roberta": ("roberta-base", {}),
    "electra": ("electra-small", {"model.embedding_width": 16, "objective.generator_size": 0.5}),
    "gpt1": ("gpt1-base", {"model.inner_width": 128}),
    "gpt2": ("gpt2-small", {"model.num_layers": 2, "model.window": 16}),
    "gpt3": ("gpt3-125m", {"batch.first_tokens": 128, "batch.growth_fraction": 0.8}),
}
HYBRID = {"model.window": None, "objective.mlm_fraction": 0.5}  # overrides that make "gpt2" one


def run(out, corpus, steps=12, overrides=None, family="bert", **more):
    preset, tiny = FAMILIES[family]
    settings = TINY_MODEL | tiny | {"checkpoint.every_steps": 4, "optimizer.lr": 1e-3} | (overrides or {})
    options = {"steps": steps, "batch_tokens": 512, "recipe": "published", "log": lambda words: None} | more
    return pretrain(preset, [corpus], out, overrides=settings, **options)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def same(one: Path, two: Path) -> bool:
    a, b = weights(one), weights(two)
    return a.keys() == b.keys() and all(torch.equal(value, b[name]) for name, value in a.items())
