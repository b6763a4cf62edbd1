"""Whether kernels of our own run on a tensor, and how many programs of one. They are written in `triton`, which comes
with torch for CUDA."""

from importlib.util import find_spec

import torch
from torch import Tensor

HAS_TRITON = find_spec("triton") is not None


def num_processors(device: torch.device) -> int:
    """The streaming multiprocessors of a GPU; 1 elsewhere."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def run_on(x: Tensor) -> bool:
    """In half precision on CUDA, where gradients are wanted."""
    return x.is_cuda and HAS_TRITON and torch.is_grad_enabled() and torch.is_autocast_enabled("cuda")
