"""Whether kernels of our own run on a tensor. They are written in `triton`, which comes with torch for CUDA."""

from importlib.util import find_spec

import torch
from torch import Tensor

HAS_TRITON = find_spec("triton") is not None


def run_on(x: Tensor) -> bool:
    """In half precision on CUDA, where gradients are wanted."""
    return x.is_cuda and HAS_TRITON and torch.is_grad_enabled() and torch.is_autocast_enabled("cuda")
