"""Which device work goes to, and the stream beside it on which kernels are tried before a graph is captured of them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")


def chosen_device(asked: str = "auto") -> str:
    """A GPU where there is one, if nothing else is asked for."""
    if not DEVICE.fullmatch(asked):
        raise ValueError(f"there is no device '{asked}' here: use auto, cpu or cuda")
    if asked.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"the device {asked} was asked for, and there is no GPU here that torch can use: use cpu")
    return ("cuda" if torch.cuda.is_available() else "cpu") if asked == "auto" else asked


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
