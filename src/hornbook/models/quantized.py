"""Weights of 8 bits: a GPT that decodes with them on a CPU, which is limited by memory bandwidth, and weights that are
only stored in 8 bits, in a quarter of the space."""

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from hornbook.models.gpt import Gpt
from hornbook.nn.int8 import Int8Linear, quantized_rows

WeightFormat = Literal["float", "int8"]
SCALE = ".scale"  # ends the name of the scales of a stored int8 matrix, one per row


def check_weights(weights: str) -> None:
    if weights not in get_args(WeightFormat):
        raise ValueError(f"weights must be {' or '.join(get_args(WeightFormat))}, not '{weights}'")


def quantize(model: Gpt) -> Gpt:
    """Rounds the matrices of the blocks and of the vocabulary head to int8, in place; the model can no longer be
    trained or saved. Embeddings, biases and norms are unchanged, as a token reads only a row of them."""
    for block in model.blocks:
        for owner, name in ((block.attention, "qkv"), (block.attention, "out"), (block, "fc1"), (block, "fc2")):
            part = getattr(owner, name)
            if isinstance(part, nn.Linear):  # shared layers are already replaced
                setattr(owner, name, Int8Linear(part.weight, part.bias))
    if model.clm is not None:
        model.clm.quantize(model.embeddings.tokens.weight)
    return model


def as_int8(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights with every matrix rounded to int8, and its scales under its name and `.scale`."""
    stored = {}
    for name, weight in weights.items():
        if weight.dim() == 2 and weight.is_floating_point():
            stored[name], stored[f"{name}{SCALE}"] = quantized_rows(weight)
        else:
            stored[name] = weight
    return stored


def as_float(stored: dict[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of `as_int8`, up to rounding; weights that are not stored in int8 are unchanged.

    >>> weight = torch.tensor([[1.27, -0.5], [0.0, 254.0]])
    >>> as_float(as_int8({"w": weight}))["w"].tolist() == weight.tolist()
    True
    """
    weights = {}
    for name, weight in stored.items():
        scale_R = stored.get(f"{name}{SCALE}")
        if weight.dtype == torch.int8 and scale_R is not None:
            if scale_R.shape != weight.shape[:1] or not scale_R.is_floating_point():
                raise ValueError(f"{name}{SCALE} is not one number for each row of {name}")
            weights[name] = weight.to(scale_R.dtype) * scale_R[:, None]
        elif not name.endswith(SCALE) or name.removesuffix(SCALE) not in stored:
            weights[name] = weight
    return weights
