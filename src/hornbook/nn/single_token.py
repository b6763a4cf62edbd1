"""`Block` for a single token on a CPU, with little overhead between the matrix products; and weights stored
column-major, which makes these products faster.

Shapes: D width, I input width, H heads, L cache slots, C = D / H head width.
A decoding step reads all weights of the model and so evicts the CPU caches: a call that takes 1 us in isolation takes
5 us there. With int8 weights, the overhead of PyTorch modules and operators was a third of the step. Every layer here
maps a NumPy vector to a NumPy vector, because NumPy's calls have the least overhead.
"""

from collections.abc import Callable, Iterable

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
        self.activation = ACTIVATIONS[block.activation]

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
        return self.fc2(self.activation(torch.from_numpy(self.fc1(x_D))).numpy())


def _linear(layer: nn.Module) -> Layer:
    if isinstance(layer, Int8Linear):
        return layer.single_token
    weight_OI, bias_O = layer.weight, layer.bias  # a module would look them up in every call
    return lambda x_I: F.linear(torch.from_numpy(x_I)[None], weight_OI, bias_O).numpy()[0]


def _norm(norm: nn.LayerNorm) -> Layer:
    settings = norm.normalized_shape, norm.weight, norm.bias, norm.eps
    return lambda x_D: torch.layer_norm(torch.from_numpy(x_D), *settings).numpy()


def to_column_major(layers: Iterable[nn.Linear | nn.Embedding]) -> None:
    """Stores the weights of these layers on a CPU column-major, as GPT-2's folders do; shapes and values are unchanged.

    The gain depends on the CPU. On a Xeon (one thread), the products of a single token are faster: 1.1 x in the blocks,
    1.3 x for the vocabulary logits; those of 32 tokens take as long, or 12% longer for the vocabulary. On ARM
    (OpenBLAS), the products of many tokens are 1.1 x faster, and those of a single token slower.

    >>> layer = nn.Linear(3, 2)
    >>> to_column_major([layer])
    >>> layer.weight.shape, layer.weight.stride()
    (torch.Size([2, 3]), (1, 2))
    """
    for layer in layers:
        weight = layer.weight
        if weight.is_cpu and not weight.t().is_contiguous():
            weight.data = weight.data.t().contiguous().t()


def linear_layers(model: nn.Module) -> list[nn.Linear]:
    """The linear layers whose weights are not also an embedding table, of which single rows are read."""
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    return [each for each in model.modules() if isinstance(each, nn.Linear) and id(each.weight) not in tables]
