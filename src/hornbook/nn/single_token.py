"""`Block` for a single token on a CPU, with little overhead between the matrix products.

Shapes: D width, I input width, H heads, L cache slots, C = D / H head width.
A decoding step reads all weights of the model and so evicts the CPU caches: a call that takes 1 us in isolation takes
5 us there. With int8 weights, the overhead of PyTorch modules and operators was a third of the step. Every layer here
maps a NumPy vector to a NumPy vector, because NumPy's calls have the least overhead.
"""

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hornbook.nn.block import Block
from hornbook.nn.fused_ops import ACTIVATIONS
from hornbook.nn.int8 import Int8Linear
from hornbook.nn.kv_cache import KeyValueCache

Layer = Callable[[np.ndarray], np.ndarray]


def runs_on_numpy(x: Tensor) -> bool:
    """Whether tensors like `x` can be NumPy arrays."""
    return x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)


class SingleTokenBlock:
    """One block in evaluation mode, for the single sequence whose keys and values are in `cache`."""

    def __init__(self, block: Block, cache: KeyValueCache):
        attention = block.attention
        self.pre_norm, self.window, self.cache = block.pre_norm, attention.window, cache
        self.kv_2HLC = cache.kv_2NHLC[:, 0]
        self.shape_3HC = 3, attention.num_heads, self.kv_2HLC.shape[-1]
        self.qkv, self.out = _linear(attention.qkv), _linear(attention.out)
        self.fc1, self.fc2 = _linear(block.fc1), _linear(block.fc2)
        self.attention_norm, self.norm = _norm(block.attention_norm), _norm(block.norm)
        self.activation = _activation(block.activation)

    def __call__(self, x_D: np.ndarray) -> np.ndarray:
        if self.pre_norm:
            x_D = x_D + self._attention(self.attention_norm(x_D))
            return x_D + self._feed_forward(self.norm(x_D))
        x_D = self.attention_norm(x_D + self._attention(x_D))
        return self.norm(x_D + self._feed_forward(x_D))

    def _attention(self, x_D: np.ndarray) -> np.ndarray:
        qkv_3HC = torch.from_numpy(self.qkv(x_D).reshape(self.shape_3HC))
        self.kv_2HLC[:, :, self.cache.positions.common] = qkv_3HC[1:]
        return self.out(self.cache.attend(qkv_3HC[:1], self.window).numpy().reshape(-1))

    def _feed_forward(self, x_D: np.ndarray) -> np.ndarray:
        return self.fc2(self.activation(self.fc1(x_D)))


def _linear(layer: nn.Module) -> Layer:
    if isinstance(layer, Int8Linear):
        return layer.single_token
    weight_OI, bias_O = layer.weight, layer.bias  # a module would look them up in every call
    return lambda x_I: F.linear(torch.from_numpy(x_I)[None], weight_OI, bias_O).numpy()[0]


def _norm(norm: nn.LayerNorm) -> Layer:
    settings = norm.normalized_shape, norm.weight, norm.bias, norm.eps
    return lambda x_D: torch.layer_norm(torch.from_numpy(x_D), *settings).numpy()


def _activation(name: str) -> Layer:
    activation = ACTIVATIONS[name]
    return lambda x_I: activation(torch.from_numpy(x_I)).numpy()
