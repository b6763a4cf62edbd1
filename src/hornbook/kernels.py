"""Whether kernels of our own run on a tensor, and how many programs of one; where kernels are tried before a CUDA graph
is captured of them. Ours are written in `triton`, which comes with torch for CUDA."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
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


@contextmanager
def tried_beside() -> Iterator[None]:
    """What runs in it runs on another stream, as torch asks of what is captured afterwards. It is the same one each
    time: cuBLAS keeps a workspace for every stream that it ever ran on."""
    side = _side_stream(torch.cuda.current_device())
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        yield
    torch.cuda.current_stream().wait_stream(side)


@cache
def _side_stream(device: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def run_on(x: Tensor) -> bool:
    """In half precision on CUDA, where gradients are wanted."""
    return x.is_cuda and HAS_TRITON and torch.is_grad_enabled() and torch.is_autocast_enabled("cuda")
