"""A single token through the blocks on a CPU: what `Block` computes for it, with few calls between the products.

Shapes: D width, H heads, C = D / H.
A step reads all weights of the model, which leaves little else in the caches: a call that takes 1 us in a loop of its
own takes 5 there. With int8 weights, modules and operators of torch were a third of the step. Every part takes and
gives a vector of numpy here, whose calls are the shortest.
"""

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hornbook.nn.activation import ACTIVATIONS
from hornbook.nn.block import Block
from hornbook.nn.cache import KeyValueCache
from hornbook.nn.int8 import Int8Linear

Part = Callable[[np.ndarray], np.ndarray]


def goes_single(x: Tensor) -> bool:
    """Whether a token like this is made of what numpy knows."""
    return x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)


class SingleToken:
    """One block, without dropout, for the sequence whose keys and values are `cached`."""

    def __init__(self, block: Block, cached: KeyValueCache):
        attention = block.attention
        self.pre_norm, self.window, self.cached = block.pre_norm, attention.window, cached
        self.held_2HLC = cached.held_2NHLC[:, 0]
        self.shape_3HC = 3, attention.num_heads, self.held_2HLC.shape[-1]
        self.qkv, self.out = _product(attention.qkv), _product(attention.out)
        self.fc1, self.fc2 = _product(block.fc1), _product(block.fc2)
        self.attention_norm, self.norm = _norm(block.attention_norm), _norm(block.norm)
        self.activation = _activation(block.activation)

    def __call__(self, x_D: np.ndarray) -> np.ndarray:
        if self.pre_norm:
            x_D = x_D + self._attended(self.attention_norm(x_D))
            return x_D + self._fed(self.norm(x_D))
        x_D = self.attention_norm(x_D + self._attended(x_D))
        return self.norm(x_D + self._fed(x_D))

    def _attended(self, x_D: np.ndarray) -> np.ndarray:
        qkv_3HC = torch.from_numpy(self.qkv(x_D).reshape(self.shape_3HC))
        self.held_2HLC[:, :, self.cached.places.common] = qkv_3HC[1:]
        return self.out(self.cached.attend(qkv_3HC[:1], self.window).numpy().reshape(-1))

    def _fed(self, x_D: np.ndarray) -> np.ndarray:
        return self.fc2(self.activation(self.fc1(x_D)))


def _product(part: nn.Module) -> Part:
    if isinstance(part, Int8Linear):
        return part.alone
    weight_OI, bias_O = part.weight, part.bias  # a module looks for them in every call
    return lambda x_I: F.linear(torch.from_numpy(x_I)[None], weight_OI, bias_O).numpy()[0]


def _norm(norm: nn.LayerNorm) -> Part:
    settings = norm.normalized_shape, norm.weight, norm.bias, norm.eps
    return lambda x_D: torch.layer_norm(torch.from_numpy(x_D), *settings).numpy()


def _activation(name: str) -> Part:
    activation = ACTIVATIONS[name]
    return lambda x_I: activation(torch.from_numpy(x_I)).numpy()
