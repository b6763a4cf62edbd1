"""A GPT with int8 weights, for decoding on a CPU, which is limited by memory bandwidth."""

from typing import Literal, get_args

from torch import nn

from hornbook.models.gpt import Gpt
from hornbook.nn.int8 import Int8Linear

Weights = Literal["float", "int8"]


def check_weights(weights: str) -> None:
    if weights not in get_args(Weights):
        raise ValueError(f"weights must be {' or '.join(get_args(Weights))}, not '{weights}'")


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
