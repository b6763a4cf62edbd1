"""Device selection; memory, speed and inference precision of a device; and contexts in which a model runs: eagerly, in
evaluation mode, with its GPU as the current one, or on a side stream to warm up kernels before a CUDA graph."""

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from pathlib import Path

import torch
from torch import nn

from hornbook.config import short_repr

GIB = 2**30
CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")
DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")


def chosen_device(requested: str = "auto") -> str:
    """The requested device; "auto" is a GPU if there is one, else the CPU. An unavailable device is a ValueError."""
    if not DEVICE.fullmatch(requested):
        raise ValueError(f"there is no device {short_repr(requested)} here: use auto, cpu or cuda")
    if requested.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"device {requested} was requested, but torch finds no GPU on this machine: use cpu")
    if requested.startswith("cuda:") and int(requested.removeprefix("cuda:")) >= (num := torch.cuda.device_count()):
        raise ValueError(
            f"device {requested} was requested, but the last GPU here is cuda:{num - 1}: use a lower number"
        )
    return ("cuda" if torch.cuda.is_available() else "cpu") if requested == "auto" else requested


def inference_autocast(device: str | torch.device) -> AbstractContextManager:
    """Context for inference: bfloat16 on a GPU that supports it, as in training, because attention over packed
    sequences is fast in half precision only; float32 elsewhere."""
    if torch.device(device).type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        return torch.autocast("cuda", torch.bfloat16)
    return nullcontext()


@contextmanager
def eagerly() -> Iterator[None]:
    """Runs compiled parts eagerly. Nothing is compiled before torch's compiler is imported, which takes seconds."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Switches a module to evaluation mode, without dropout, and back to its former mode at the end."""
    was_training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(was_training)


def device_of(module: nn.Module) -> torch.device:
    """The device of the module's parameters; the CPU for one without parameters, such as an exported model."""
    return next((each.device for each in module.parameters()), torch.device("cpu"))


def memory_of(device: str | torch.device) -> int:
    """Total memory of a device in bytes; for a CPU that of the machine, or the limit of its container."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = CONTAINER_LIMIT.read_text().strip() if CONTAINER_LIMIT.is_file() else ""
    return min(machine, int(limit)) if limit.isdigit() else machine


def matrix_flops(device: str | torch.device, seconds: float = 0.3) -> float:
    """Measured FLOP/s of large matrix products on this machine: float32 on a CPU, bfloat16 on a GPU."""
    is_gpu = torch.device(device).type == "cuda"
    size, dtype = (8192, torch.bfloat16) if is_gpu else (1024, torch.float32)
    matrix = torch.randn(size, size, dtype=dtype, device=device)

    def multiply() -> float:
        matrix @ matrix
        if is_gpu:
            torch.cuda.synchronize(device)
        return time.monotonic()

    start = now = multiply()  # the first product is the warm-up
    num_products = 0
    while now - start < seconds:
        now, num_products = multiply(), num_products + 1
    return 2.0 * size**3 * num_products / (now - start)


def fastest_seconds(run: Callable[[], object], num_runs: int = 3) -> float:
    """The seconds of the fastest of a few runs on the CPU, to choose a kernel by."""
    seconds = []
    for _ in range(num_runs):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def refuse_beyond_memory(num_bytes: float, device: str | torch.device, subject: str, advice: str) -> None:
    """Raises a ValueError if `num_bytes` exceed the memory of the device. Its message starts with `subject`, which ends
    with "need" or "needs"."""
    if num_bytes > (total := memory_of(device)):
        raise ValueError(f"{subject} {num_bytes / GIB:,.1f} GiB, but {device} has {total / GIB:,.1f} GiB: {advice}")


def current_gpu(device: torch.device) -> AbstractContextManager:
    """Context in which a GPU is the current one, on which Triton launches its kernels and CUDA graphs are captured:
    otherwise that is the first GPU, wherever the tensors are."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


@contextmanager
def warm_up_on_side_stream() -> Iterator[None]:
    """Context that runs kernels on a side stream, which torch requires of the warm-up before a CUDA graph capture. Each
    device has one such stream, because cuBLAS keeps a workspace for every stream that it ever ran on."""
    side = _side_stream(torch.cuda.current_device())
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        yield
    torch.cuda.current_stream().wait_stream(side)


@cache
def _side_stream(device: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
