"""The most memory that a stretch of work took: on CUDA what its tensors took, elsewhere what the process took. And
memory given back that nothing holds any more."""

import gc
import resource
import sys
from pathlib import Path

import torch

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
FORGET_PEAK = "5"  # to Linux: the peak of the resident size starts again from what it is now


class PeakMemory:
    """
    with PeakMemory() as peak:
        ...
    peak.bytes, peak.of
    """

    bytes: int = 0
    of: str = ""

    def __enter__(self) -> "PeakMemory":
        give_back()  # what earlier work left is not this one's
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        self.is_reset = _forget_peak()
        return self

    def __exit__(self, *_: object) -> None:
        if torch.cuda.is_available() and (found := torch.cuda.max_memory_allocated()):
            self.bytes, self.of = found, "tensors on the device"
        elif self.is_reset:
            line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
            self.bytes, self.of = 1024 * int(line.split()[1]), "resident memory of the process"
        else:
            unit = 1 if sys.platform == "darwin" else 1024
            self.bytes = unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            self.of = "resident memory of the process, since it began"
        give_back()


def give_back() -> None:
    """What lies in cycles, and what torch keeps of a device's memory for later: others work on it too."""
    gc.collect()
    if torch.cuda.is_initialized():
        torch._C._cuda_clearCublasWorkspaces()  # else they keep the blocks that they lie in, graphs' among them
        torch.cuda.empty_cache()


def _forget_peak() -> bool:
    try:
        CLEAR.write_text(FORGET_PEAK)
        return "VmHWM:" in STATUS.read_text()
    except OSError:
        return False
