"""A model with the head of a task on top, and how fast each of its layers learns."""

import dataclasses
from collections.abc import Callable, Sequence

import torch
from torch import nn

from hornbook.finetuning.settings import LayerSettings, TaskSettings
from hornbook.models.outputs import Output
from hornbook.models.transformer import TransformerConfig
from hornbook.nn.block import initialise
from hornbook.train.randomness import seed_of

BELOW_HEADS = ("embedding_dropout", "dropout", "attention_dropout")  # a family has some of them as settings
STEPS_ABOVE_BLOCKS = {"block": 0, "head": 1, "electra": 2}  # from the top block to what has the whole rate


def keeps_head(trained: nn.Module, output: Output, settings: TaskSettings) -> bool:
    """Whether training continues from the head that the model has."""
    return trained.output is not None and output.fits(trained.output) and not settings.new_head


def with_head(
    trained: nn.Module, output: Output, seed: int, dropout: float | None = None, keeps_head: bool = False
) -> tuple[nn.Module, list[str]]:
    """The encoder of `trained` with its own head or, unless it `keeps_head`, with a newly initialised one; and which
    parts besides the head are newly initialised."""
    with torch.device("meta"):  # drawing weights only to write over them takes longer than a short run
        model = _network(trained, output, dropout)
    model.to_empty(device="cpu")
    kept = {name: value for name, value in trained.state_dict().items() if keeps_head or not name.startswith("task.")}
    missing, _ = model.load_state_dict(kept, strict=False)
    # Of a head that is kept, only the layers that it lacks.
    depth = 2 if keeps_head else 1
    new = sorted({".".join(name.split(".")[: depth if name.startswith("task.") else 1]) for name in missing})
    generator = torch.Generator().manual_seed(seed_of(seed, "head"))
    for part in new:
        initialise(model.get_submodule(part), trained.config.init_std, generator)
    return model, [part for part in new if not part.startswith("task")]


def from_random(trained: nn.Module, output: Output, seed: int, dropout: float | None = None) -> nn.Module:
    """The same network with weights as before any pre-training: what pre-training buys is seen beside it."""
    model = _network(trained, output, dropout)
    model.initialise(torch.Generator().manual_seed(seed_of(seed, "weights")))
    return model


def _network(trained: nn.Module, output: Output, dropout: float | None) -> nn.Module:
    """A network of the same shape with the head of a task; a layer of the task's own replaces the pooler."""
    config = with_dropout(trained.config, dropout)
    heads = trained.heads_for(output) if trained.cls_layer(config, output) is None else ()
    return type(trained)(config, heads, output)


def with_dropout(config: TransformerConfig, dropout: float | None) -> TransformerConfig:
    """The same network with another dropout of all that lies below its heads."""
    if dropout is None:
        return config
    names = {each.name for each in dataclasses.fields(config)} & set(BELOW_HEADS)
    return dataclasses.replace(config, **dict.fromkeys(names, dropout))


def freeze(model: nn.Module, settings: LayerSettings, anew: Sequence[str] = ()) -> int:
    """Fixes the lowest layers, or the whole encoder (-1) but for the parts that start anew, which would be noise.
    The number of parameters that still train."""
    num_layers = model.config.num_layers
    if settings.frozen > num_layers:
        raise ValueError(f"layers.frozen={settings.frozen}, but the model has {num_layers} layers; -1 freezes all")
    for name, parameter in model.named_parameters():
        depth = model.depth_of(name)
        if settings.frozen < 0:
            is_fixed = name.partition(".")[0] not in ("task", *anew)
        else:
            is_fixed = settings.frozen > 0 and depth <= settings.frozen
        parameter.requires_grad_(parameter.requires_grad and not is_fixed)
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def rates(model: nn.Module, settings: LayerSettings) -> Callable[[str], float] | None:
    """Each parameter's share of the learning rate: decay^(layers above it), and the head's own.

    ELECTRA's code leaves a step between the top block and the head, where BERT's pooler stands: the top block has
    decay^2, a pooler decay^1. Its paper reads as if there were none (`head`); a pooler then goes with the head.
    """
    if settings.decay == 1 and settings.head_lr_ratio == 1:
        return None
    top = model.config.num_layers + STEPS_ABOVE_BLOCKS[settings.decay_from]

    def share(name: str) -> float:
        if name.startswith("task."):
            return settings.head_lr_ratio
        return settings.decay ** max(0, top - model.depth_of(name))

    return share
