"""Peak memory of a block of code (CUDA tensors if there are any, otherwise resident memory of the process), and
releasing unused memory."""

import gc
import resource
import sys
from pathlib import Path

import torch

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"  # tells Linux to reset the peak resident size to the current one


class PeakMemory:
    """Measures the peak memory of a block: `bytes`, and `of` what kind of memory.

    with PeakMemory() as peak:
        ...
    peak.bytes, peak.of
    """

    bytes: int = 0
    of: str = ""

    def __enter__(self) -> "PeakMemory":
        release_memory()  # memory of earlier work does not count
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        self.is_reset = _reset_peak()
        return self

    def __exit__(self, *_: object) -> None:
        if torch.cuda.is_available() and (peak := torch.cuda.max_memory_allocated()):
            self.bytes, self.of = peak, "tensors on the device"
        elif self.is_reset:
            line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
            self.bytes, self.of = 1024 * int(line.split()[1]), "resident memory of the process"
        else:
            unit = 1 if sys.platform == "darwin" else 1024
            self.bytes = unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            self.of = "resident memory of the process, since its start"
        release_memory()


def release_memory() -> None:
    """Collects reference cycles and empties the CUDA cache, because other processes share the device."""
    gc.collect()
    if torch.cuda.is_initialized():
        torch._C._cuda_clearCublasWorkspaces()  # otherwise they keep their memory blocks alive, also those of graphs
        torch.cuda.empty_cache()


def _reset_peak() -> bool:
    try:
        CLEAR.write_text(RESET_PEAK)
        return "VmHWM:" in STATUS.read_text()
    except OSError:
        return False
