"""Whether kernels of our own run on a tensor, and how many programs of one. They are written in `triton`, which comes
with torch for CUDA."""

from importlib.util import find_spec

import torch
from torch import Tensor

HAS_TRITON = find_spec("triton") is not None
PROGRAMS_PER_PROCESSOR = 4  # of a kernel that sums over rows


def num_processors(device: torch.device) -> int:
    """The streaming multiprocessors of a GPU; 1 elsewhere."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def programs_a_column(device: torch.device, num_blocks: int, num_tiles: int) -> int:
    """Of a kernel that sums over rows, for each of so many blocks of columns: each has a partial sum of its own, and
    takes some of so many tiles of rows."""
    return min(-(-PROGRAMS_PER_PROCESSOR * num_processors(device) // num_blocks), num_tiles)


def use_triton(x: Tensor) -> bool:
    """In half precision on CUDA, where gradients are wanted."""
    return x.is_cuda and HAS_TRITON and torch.is_grad_enabled() and torch.is_autocast_enabled("cuda")
