"""Which device work goes to, how much memory it has, and the stream beside it on which kernels are tried before a graph
is captured of them."""

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch

from hornbook.config import shown

GIB = 2**30
CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")
DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")


def chosen_device(asked: str = "auto") -> str:
    """A GPU where there is one, if nothing else is asked for."""
    if not DEVICE.fullmatch(asked):
        raise ValueError(f"there is no device {shown(asked)} here: use auto, cpu or cuda")
    if asked.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"the device {asked} was asked for, and there is no GPU here that torch can use: use cpu")
    return ("cuda" if torch.cuda.is_available() else "cpu") if asked == "auto" else asked


def memory_of(device: str | torch.device) -> int:
    """Bytes of memory that a device has; of a CPU those of the machine, or of its container."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = CONTAINER_LIMIT.read_text().strip() if CONTAINER_LIMIT.is_file() else ""
    return min(machine, int(limit)) if limit.isdigit() else machine


def matrix_flops(device: str | torch.device, seconds: float = 0.3) -> float:
    """FLOP/s of large matrix products, measured here: float32 on a CPU, bfloat16 on a GPU."""
    is_gpu = torch.device(device).type == "cuda"
    size, kind = (8192, torch.bfloat16) if is_gpu else (1024, torch.float32)
    matrix = torch.randn(size, size, dtype=kind, device=device)

    def multiply() -> float:
        matrix @ matrix
        if is_gpu:
            torch.cuda.synchronize(device)
        return time.monotonic()

    began, ended, num = multiply(), 0.0, 0  # the first one warms up
    while ended - began < seconds:
        ended, num = multiply(), num + 1
    return 2.0 * size**3 * num / (ended - began)


def refuse_beyond_memory(num_bytes: float, device: str | torch.device, what: str, advice: str) -> None:
    """Refuses what the device cannot hold, before it is allocated. `what` ends with "need" or "needs"."""
    if num_bytes > (has := memory_of(device)):
        raise ValueError(f"{what} {num_bytes / GIB:,.1f} GiB, and {device} has {has / GIB:,.1f} GiB: {advice}")


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
