"""Loads batches in order, prefetched by worker processes. The loader's only state is the number of the next batch."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch.utils.data import DataLoader

from hornbook.batch import Batch
from hornbook.lifecycle.stopping import die_with_parent, ignore_signals, kill_at_exit


def batches(
    make_batch: Callable[[int], Batch], indices: Sequence[int], num_workers: int, device: torch.device
) -> Iterator[Batch]:
    """Yields `make_batch(k)` on the device for each k in `indices`, in order for any number of workers."""
    if num_workers:
        kill_at_exit()
    loader = DataLoader(
        indices,
        batch_size=None,  # so `collate_fn` is called with a single index
        collate_fn=make_batch,
        num_workers=num_workers,
        prefetch_factor=4 if num_workers else None,
        pin_memory=device.type == "cuda",
        worker_init_fn=_start_worker,
    )
    for batch in loader:
        yield batch.to(device)


def _start_worker(_: int) -> None:
    """Gives the worker one thread, and leaves signals, which reach the whole process group, to the main process, which
    saves a checkpoint before it stops."""
    ignore_signals()
    die_with_parent()
    torch.set_num_threads(1)
