"""Task heads on pre-trained models, frozen layers, and layer-wise learning rates."""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import nn

from hornbook.lifecycle.run_folder import Log
from hornbook.models.ernie import Ernie
from hornbook.models.head_config import HeadConfig
from hornbook.models.transformer import TransformerConfig
from hornbook.nn.block import initialize
from hornbook.runs.finetuning.settings import LayerSettings, TaskSettings
from hornbook.train.randomness import seed_of

BELOW_HEADS = ("embedding_dropout", "dropout", "attention_dropout")  # each family has some of these settings
STEPS_ABOVE_BLOCKS = {"block": 0, "head": 1, "electra": 2}  # from the top block to the layer with the full rate
FAR_FROM_0 = 4  # standard deviations of the labels


def keeps_head(pretrained: nn.Module, head_config: HeadConfig, settings: TaskSettings) -> bool:
    """Whether training continues from the model's existing head."""
    return pretrained.head_config is not None and head_config.fits(pretrained.head_config) and not settings.new_head


def with_head(
    pretrained: nn.Module, head_config: HeadConfig, seed: int, dropout: float | None = None, keeps_head: bool = False
) -> tuple[nn.Module, list[str]]:
    """The encoder of `pretrained` with its head (`keeps_head`) or with a newly initialised one, and the names of the
    modules besides the head that are newly initialised."""
    with torch.device("meta"):  # initialising weights that are then overwritten takes longer than a short run
        model = _network(pretrained, head_config, dropout)
    model.to_empty(device="cpu")
    weights = pretrained.state_dict()
    if not keeps_head:
        weights = {name: weight for name, weight in weights.items() if not name.startswith("task.")}
    elif head_config.scale != pretrained.head_config.scale:
        ratio = pretrained.head_config.scale / head_config.scale
        weights |= {name: weight * ratio for name, weight in weights.items() if name.startswith("task.out.")}
    missing, _ = model.load_state_dict(weights, strict=False)
    # In a kept head, only the missing layers are initialised.
    depth = 2 if keeps_head else 1
    new_parts = sorted({".".join(name.split(".")[: depth if name.startswith("task.") else 1]) for name in missing})
    generator = torch.Generator().manual_seed(seed_of(seed, "head"))
    for part in new_parts:
        initialize(model.get_submodule(part), pretrained.config.init_std, generator)
    return model, [part for part in new_parts if not part.startswith("task")]


def from_scratch(pretrained: nn.Module, head_config: HeadConfig, seed: int, dropout: float | None = None) -> nn.Module:
    """The same network with randomly initialised weights: a baseline without pre-training."""
    model = _network(pretrained, head_config, dropout)
    model.initialize(torch.Generator().manual_seed(seed_of(seed, "weights")))
    if isinstance(model, Ernie):  # the vectors of entities are not learned from text
        model.load_state_dict({"entities.weight": pretrained.entities.weight}, strict=False)
    return model


@torch.no_grad()
def start_at_frequencies(model: nn.Module, labels_NL: np.ndarray) -> None:
    """Sets the bias of a new multi-label head to the log-odds of each label in training, so that the head starts from
    the frequencies of the labels (Lin et al. 2017, arXiv 1708.02002, section 3.3).

    From 0, thousands of logits have to fall to about -7 first. A bias changes too slowly for that, at most by the
    learning rate in each step; so the encoder learns to give the same vector for every text, and stays there."""
    bias_L = model.task.out.bias
    if bias_L is None:
        return
    num_holding_L = torch.from_numpy(labels_NL.sum(0)).double()
    frequencies_L = (num_holding_L + 0.5) / (len(labels_NL) + 1)
    bias_L.copy_(frequencies_L.logit())


def number_scale(numbers: Sequence[float]) -> float:
    """The power of two that is closest to the standard deviation of the labels of a regression."""
    spread = float(np.std(numbers))
    return 2.0 ** round(math.log2(spread)) if spread > 0 else 1.0


@torch.no_grad()
def start_at_mean(model: nn.Module, numbers: np.ndarray, log: Log) -> None:
    """Sets the bias of a new regression head to the mean of the labels in training: from 0, it would reach a mean of
    many standard deviations only after thousands of steps. Logs this for a head without bias."""
    mean = float(np.mean(numbers))
    if model.task.out.bias is not None:
        model.task.out.bias.fill_(mean / model.head_config.scale)
    elif abs(mean) > FAR_FROM_0 * model.head_config.scale:
        log(
            f"note: the head of this model has no bias and starts at 0, far from the labels, whose mean is {mean:.4g}: "
            "subtract it from them, or fine-tune an encoder"
        )


def _network(pretrained: nn.Module, head_config: HeadConfig, dropout: float | None) -> nn.Module:
    """A network of the same shape with the head of a task, without pooler if the task head has its own layer."""
    config = with_dropout(pretrained.config, dropout)
    heads = pretrained.heads_for(head_config) if pretrained.pooling_layer(config, head_config) is None else ()
    return type(pretrained)(config, heads, head_config)


def with_dropout(config: TransformerConfig, dropout: float | None) -> TransformerConfig:
    """The config with another dropout in every layer below the heads."""
    if dropout is None:
        return config
    names = {field.name for field in dataclasses.fields(config)} & set(BELOW_HEADS)
    return dataclasses.replace(config, **dict.fromkeys(names, dropout))


def has_dropout(config: TransformerConfig) -> bool:
    return any(getattr(config, name, 0) > 0 for name in BELOW_HEADS)


def freeze(model: nn.Module, settings: LayerSettings, new_parts: Sequence[str] = ()) -> None:
    """Freezes the `layers.frozen` lowest layers with the embeddings, or the whole encoder (-1) except for its newly
    initialised parts, which would stay random."""
    num_layers = model.config.num_layers
    if settings.frozen > num_layers:
        raise ValueError(f"layers.frozen={settings.frozen}, but the model has {num_layers} layers; -1 freezes all")
    for name, parameter in model.named_parameters():
        if settings.frozen < 0:
            is_frozen = name.partition(".")[0] not in ("task", *new_parts)
        else:
            is_frozen = settings.frozen > 0 and model.depth_of(name) <= settings.frozen
        parameter.requires_grad_(parameter.requires_grad and not is_frozen)


def lr_multiplier(model: nn.Module, settings: LayerSettings) -> Callable[[str], float] | None:
    """A function from a parameter's name to its learning-rate multiplier: decay^(layers above it), and for the head
    `head_lr_ratio`. None if all multipliers are 1. For a student that is trained together with its projections, the
    names begin with `student.`, and projections, which only training needs, count as the head.

    ELECTRA's code (`electra`) counts a layer between the top block and the head, where BERT has its pooler: the top
    block gets decay^2, a pooler decay^1. Its paper describes no such layer (`head`); a pooler then counts as the head.
    """
    if settings.lr_decay == 1 and settings.head_lr_ratio == 1:
        return None
    top = model.config.num_layers + STEPS_ABOVE_BLOCKS[settings.lr_decay_from]

    def multiplier(name: str) -> float:
        name = name.removeprefix("student.")
        if name.startswith(("task.", "projections.")):
            return settings.head_lr_ratio
        return settings.lr_decay ** max(0, top - model.depth_of(name))

    return multiplier
