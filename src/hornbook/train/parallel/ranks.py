"""The processes (ranks) of one run, as `torchrun` starts them. All of them run the same command on the same inputs.

Rank 0, the main one, locks, writes and prints; what the others write is discarded. Decisions that depend on the clock,
on a signal or on files that the main rank writes are made by it or agreed between all. Each rank makes and trains on
its own part of a batch; counts of targets and gradients are summed over ranks, never averaged, so the number of ranks
changes nothing but rounding (and which random numbers dropout draws).

Sums of gradients are on the device (NCCL on CUDA), agreements on the CPU (Gloo): no rank waits for its device to learn
what the others decided. A run without torchrun is one rank, for which everything here does nothing.
"""

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from hornbook.lifecycle.locking import discard_writes
from hornbook.train.parallel.torchrun import num_processes, num_restarts

P = ParamSpec("P")
Result = TypeVar("Result")
HOST_TIMEOUT = timedelta(days=1)  # how long ranks wait for the main one, such as while it caches a teacher's outputs


class OtherRankFailed(RuntimeError):
    """Another rank of the run has ended, with an error of its own."""


@dataclass(frozen=True)
class Ranks:
    """The ranks of a run, seen from one of them. `cpu_group` is the group for agreements between them."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0  # within its machine, and so the number of its GPU
    cpu_group: dist.ProcessGroup | None = None

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def own_part(self, make_batch: Callable) -> Callable:
        """`make_batch` for this rank's part of each batch."""
        return make_batch if self.size == 1 else functools.partial(make_batch, part=(self.rank, self.size))

    def only_main(self, function: Callable) -> Callable:
        """A function of the main rank, such as one that prints; on the others it does nothing."""
        return function if self.is_main else lambda *_, **__: None

    def sum(self, *numbers: int) -> list[int]:
        """Each number summed over the ranks."""
        return self._reduce(numbers, dist.ReduceOp.SUM)

    def max(self, number: int) -> int:
        """The largest value of a number on any rank."""
        return self._reduce([number], dist.ReduceOp.MAX)[0]

    def _reduce(self, numbers: Sequence[int], operation: dist.ReduceOp.RedOpType) -> list[int]:
        if self.size == 1:
            return list(numbers)
        reduced = torch.tensor(numbers, dtype=torch.int64)
        with collective():
            dist.all_reduce(reduced, operation, group=self.cpu_group)
        return reduced.tolist()

    def from_main(self, compute: Callable[[], Result]) -> Result:
        """What `compute` returns on the main rank; the others do not call it."""
        if self.size == 1:
            return compute()
        values: list[Any] = [compute() if self.is_main else None]
        with collective():
            dist.broadcast_object_list(values, 0, group=self.cpu_group)
        return values[0]

    @contextlib.contextmanager
    def main_first(self) -> Iterator[None]:
        """A block that the main rank runs first; the others run it when the main rank has finished."""
        if not self.is_main:
            self.sum(0)
        yield
        if self.is_main:
            self.sum(0)

    def raise_oom_on_all(self, compute: Callable[[], Result]) -> Result:
        """`compute()`, which must not communicate. If memory runs out on one rank, all raise, to repeat a step."""
        if self.size == 1:
            return compute()
        result, error = unless_out_of_memory(compute)
        (num_failed,) = self.sum(error is not None)
        if num_failed:
            raise torch.OutOfMemoryError(error or "out of memory on another rank")
        return result

    def all_reduce(self, values: dict[str, Tensor]) -> dict[str, Tensor]:
        """Each of these numbers on the device, summed over the ranks."""
        if self.size == 1 or not values:
            return values
        stacked = torch.stack(list(values.values()))
        with collective():
            dist.all_reduce(stacked)
        return dict(zip(values, stacked.unbind(), strict=True))

    @torch.no_grad()
    def all_gather(self, values: Tensor) -> Tensor:
        """The rows of all ranks, in their order; each may have another number of rows."""
        if self.size == 1:
            return values
        with collective():
            lengths = [0] * self.size
            dist.all_gather_object(lengths, len(values), group=self.cpu_group)
            padded = values.new_zeros((max(lengths), *values.shape[1:]))
            padded[: len(values)] = values
            found = [torch.empty_like(padded) for _ in range(self.size)]
            dist.all_gather(found, padded)
        return torch.cat([each[:length] for each, length in zip(found, lengths, strict=True)])

    @torch.no_grad()
    def broadcast(self, tensors: Sequence[Tensor]) -> None:
        """Overwrites the tensors with those of the main rank."""
        for tensor in tensors if self.size > 1 else ():
            with collective():
                dist.broadcast(tensor, 0)


def is_out_of_memory(error: Exception) -> bool:
    on_cpu = ("can't allocate memory", "not enough memory")
    return isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in on_cpu)


def unless_out_of_memory(compute: Callable[[], Result]) -> tuple[Result | None, str | None]:
    """(what `compute` returns, None), or (None, the error message) if memory runs out. The error itself, which would
    keep the tensors of the computation in memory, is gone."""
    try:
        return compute(), None
    except (torch.OutOfMemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return None, str(error)


@contextlib.contextmanager
def collective() -> Iterator[None]:
    """Around communication, which fails when another rank is gone."""
    try:
        yield
    except RuntimeError as error:
        if os.environ.get("HORNBOOK_TRACEBACK"):
            raise
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise OtherRankFailed(f"stopped, as another process of the run has ended ({reason})") from None


SINGLE_PROCESS = Ranks()


def current_ranks() -> Ranks:
    """The ranks that torchrun started, connected with each other; `SINGLE_PROCESS` for a run in one process. From the
    first call on, ranks other than the main one lock nothing, and what they write is discarded."""
    return SINGLE_PROCESS if _is_single_process else _connected_ranks()


_is_single_process = False


@contextlib.contextmanager
def single_process() -> Iterator[None]:
    """A block that only this rank runs."""
    global _is_single_process
    _is_single_process = True
    try:
        yield
    finally:
        _is_single_process = False


@functools.cache
def _connected_ranks() -> Ranks:
    if num_processes() == 1:
        return SINGLE_PROCESS
    rank, size, local_rank = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    if torch.cuda.is_available():
        if local_rank >= torch.cuda.device_count():
            raise ValueError(
                f"torchrun started more processes here than there are GPUs ({torch.cuda.device_count()}): lower "
                "--nproc-per-node"
            )
        torch.cuda.set_device(local_rank)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    with collective():
        store, *_ = next(dist.rendezvous("env://"))
        # torchrun may keep the store, with the addresses of processes that are gone, when it starts a run again.
        store = dist.PrefixStore(f"hornbook/{num_restarts()}/{size}", store)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size)
        cpu_group = dist.new_group(backend="gloo", timeout=HOST_TIMEOUT)
    if rank:
        discard_writes()
    return Ranks(rank, size, local_rank, cpu_group)


def connects_ranks(function: Callable[P, Result]) -> Callable[P, Result]:
    """Decorator that connects the ranks before anything else, such as the lock of a folder."""

    @functools.wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> Result:
        current_ranks()
        return function(*arguments, **named)

    return call
