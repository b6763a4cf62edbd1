"""Loads batches in order, prefetched by worker processes. The loader's only state is the number of the next batch."""

from collections.abc import Callable, Iterable, Iterator

import torch
from torch.utils.data import DataLoader, Dataset

from hornbook.batch import Batch
from hornbook.lifecycle.stopping import die_with_parent, ignore_signals, kill_at_exit


class _Batches(Dataset):
    """A `Dataset` whose item k is batch k."""

    def __init__(self, make_batch: Callable[[int], Batch]):
        self.make_batch = make_batch

    def __getitem__(self, index: int) -> Batch:
        return self.make_batch(index)


def batches(
    make_batch: Callable[[int], Batch], indices: Iterable[int], num_workers: int, device: torch.device
) -> Iterator[Batch]:
    """Yields `make_batch(k)` on the device for each k in `indices`, in order for any number of workers."""
    if num_workers:
        kill_at_exit()
    loader = DataLoader(
        _Batches(make_batch),
        sampler=indices,
        batch_size=None,
        collate_fn=_identity,
        num_workers=num_workers,
        prefetch_factor=4 if num_workers else None,
        pin_memory=device.type == "cuda",
        worker_init_fn=_start_worker,
    )
    for batch in loader:
        yield batch.to(device)


def _identity(batch: Batch) -> Batch:
    return batch


def _start_worker(_: int) -> None:
    """Gives the worker one thread, and leaves signals, which reach the whole process group, to the main process, which
    saves a checkpoint before it stops."""
    ignore_signals()
    die_with_parent()
    torch.set_num_threads(1)
