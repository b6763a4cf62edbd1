"""Device, precision and compilation, decided in one place, with a one-line explanation."""

import contextlib
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from hornbook.devices import chosen_device
from hornbook.files import num_cores
from hornbook.train.parallel.ranks import current_ranks
from hornbook.train.settings import RuntimeSettings

# Compiling takes 20 to 40 s per shape and saves about a quarter of the time at the width of BERT-base: it pays from
# about this much work on, and sooner for narrower layers, which spend more of their time on what compiling fuses.
COMPILE_PAYS_FROM_FLOPS, BASE_WIDTH = 4e16, 768


@dataclass(frozen=True)
class Runtime:
    """Where and how a run computes."""

    device: torch.device
    precision: torch.dtype
    compiles: bool
    threads: int
    loader_workers: int
    description: str  # one line for the log
    cuda_graphs: bool = False  # capture whole steps as CUDA graphs, where the objective allows it
    keeps_casts: bool = True  # autocast keeps its copies of weights, 2 bytes per parameter, during a forward pass

    def autocast(self) -> contextlib.AbstractContextManager:
        if self.precision == torch.float32:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, self.precision, cache_enabled=self.keeps_casts)

    def to_record(self) -> dict[str, Any]:
        """The runtime in run.json; a resumed run uses the same `threads` and `compiles`, on which its bits depend."""
        return {
            "device": str(self.device),
            "threads": self.threads,
            "compiles": self.compiles,
            "reason": self.description,
        }


def choose_runtime(
    settings: RuntimeSettings,
    planned_flops: float,
    recorded: Mapping[str, Any] | None = None,
    width: int = BASE_WIDTH,
) -> Runtime:
    """The runtime for these settings. A resumed run passes the `recorded` runtime it started with, as its results
    depend on `threads` and `compiles`; `planned_flops` and the model's `width` decide whether compiling pays."""
    device, ranks, recorded = torch.device(chosen_device(settings.device)), current_ranks(), recorded or {}
    if ranks.size > 1 and device.type == "cuda":
        device = torch.device("cuda", ranks.local_rank)
    environment = int(os.environ.get("OMP_NUM_THREADS") or 0)
    threads = settings.threads or recorded.get("threads") or environment or num_cores()
    if device.type == "cpu":
        runtime = _on_cpu(device, settings, threads)
    else:
        pays = compiling_pays(planned_flops, width)
        runtime = _on_cuda(device, settings, pays, threads, recorded.get("compiles"))
    if ranks.size == 1:
        return runtime
    return replace(runtime, description=f"{ranks.size} processes, each on {runtime.description}")


def compiling_pays(planned_flops: float, width: int) -> bool:
    return planned_flops >= COMPILE_PAYS_FROM_FLOPS * min(1.0, width / BASE_WIDTH)


def _on_cpu(device: torch.device, settings: RuntimeSettings, threads: int) -> Runtime:
    if settings.precision == "bfloat16":
        raise ValueError("runtime.precision=bfloat16 needs CUDA; on a CPU set runtime.precision=float32")
    compiles = settings.compile == "yes"
    cores = "1 thread" if threads == 1 else f"{threads} threads"
    description = f"CPU, {cores}, float32, deterministic" + (", compiled" if compiles else "")
    return Runtime(device, torch.float32, compiles, threads, max(settings.loader_workers, 0), description)


def _on_cuda(
    device: torch.device, settings: RuntimeSettings, pays: bool, threads: int, compiled: bool | None
) -> Runtime:
    has_bfloat16 = torch.cuda.is_bf16_supported(including_emulation=False)
    half = settings.precision == "bfloat16" or (settings.precision == "auto" and has_bfloat16)
    if settings.compile == "yes" and not half:
        raise ValueError("runtime.compile=yes needs bfloat16 on CUDA: leave out runtime.precision, or runtime.compile")
    # In float32, attention loops over the sequences of each batch, which does not compile.
    compiles = half and (settings.compile == "yes" or (settings.compile == "auto" and pays))
    compiles = compiles if compiled is None else compiled
    details = [
        torch.cuda.get_device_name(device),
        "bfloat16 autocast" if half else "float32 (TF32 matrix products)",
        "compiled" if compiles else "not compiled",
    ]
    if half and settings.compile == "auto" and not compiles:
        details[-1] += " (the run is too short for it to pay)"
    workers = settings.loader_workers if settings.loader_workers >= 0 else 4
    cuda_graphs = half and settings.cuda_graphs and current_ranks().size == 1  # a captured step does not communicate
    if cuda_graphs:
        details.append("steps captured as CUDA graphs where a batch fits into one micro-batch")
    precision = torch.bfloat16 if half else torch.float32
    return Runtime(device, precision, compiles, threads, workers, ", ".join(details), cuda_graphs)


@contextlib.contextmanager
def torch_settings_restored() -> Iterator[None]:
    """Context manager or decorator around a run that restores what `configure_torch` changes, also after an error."""
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    determinism = _determinism()
    fills = torch.utils.deterministic.fill_uninitialized_memory
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)
        if _determinism() != determinism:  # the call imports torch's compiler, which Ctrl-C may have left half imported
            torch.use_deterministic_algorithms(determinism[0], warn_only=determinism[1])
        torch.utils.deterministic.fill_uninitialized_memory = fills


def _determinism() -> tuple[bool, bool]:
    """Whether only deterministic algorithms are allowed, and whether others only cause a warning."""
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def configure_torch(runtime: Runtime) -> None:
    """Sets the number of threads and, on a CPU, deterministic algorithms. Call it in `torch_settings_restored`."""
    torch.set_num_threads(runtime.threads)
    if runtime.device.type == "cpu":
        torch.use_deterministic_algorithms(True)
        # Every tensor is written before it is read; filling it first would cost 8% of a small model's step.
        torch.utils.deterministic.fill_uninitialized_memory = False
    else:
        torch.use_deterministic_algorithms(False)
        torch.set_float32_matmul_precision("high")
    # The compiler's advice on its own lowering of a softmax, for its developers.
    warnings.filterwarnings("ignore", r"\s*Online softmax is disabled", UserWarning)
