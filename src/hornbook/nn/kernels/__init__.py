"""When our Triton kernels are used, and how many programs to launch. Triton is installed with torch for CUDA."""

from importlib.util import find_spec

import torch
from torch import Tensor

HAS_TRITON = find_spec("triton") is not None
PROGRAMS_PER_PROCESSOR = 4  # in kernels that sum over rows


def num_processors(device: torch.device) -> int:
    """Number of streaming multiprocessors of a GPU; 1 on other devices."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def num_programs_per_column(device: torch.device, num_blocks: int, num_tiles: int) -> int:
    """Number of programs per block of columns in a kernel that sums over rows. Each program keeps a partial sum and
    processes some of the `num_tiles` tiles of rows; there are `num_blocks` blocks of columns."""
    return min(-(-PROGRAMS_PER_PROCESSOR * num_processors(device) // num_blocks), num_tiles)


def use_triton(x: Tensor) -> bool:
    """Whether our kernels run on `x`: on CUDA, under autocast, with gradients enabled."""
    return x.is_cuda and HAS_TRITON and torch.is_grad_enabled() and torch.is_autocast_enabled("cuda")
