"""Batches in order, made ahead of time by worker processes. The loader's whole state is one integer: the next batch."""

from collections.abc import Callable, Iterable, Iterator

import torch
from torch.utils.data import DataLoader, Dataset

from hornbook.batch import Batch
from hornbook.lifecycle.stopping import die_with_parent, ignore


class _Numbered(Dataset):
    """Lets `DataLoader` ask for batch k."""

    def __init__(self, make: Callable[[int], Batch]):
        self.make = make

    def __getitem__(self, number: int) -> Batch:
        return self.make(number)


def batches(
    make: Callable[[int], Batch], numbers: Iterable[int], num_workers: int, device: torch.device
) -> Iterator[Batch]:
    """`make(k)` for each k in `numbers`, in that order, whatever the number of workers; on the device."""
    loader = DataLoader(
        _Numbered(make),
        sampler=numbers,
        batch_size=None,
        collate_fn=_as_it_is,
        num_workers=num_workers,
        prefetch_factor=4 if num_workers else None,
        pin_memory=device.type == "cuda",
        worker_init_fn=_start_worker,
    )
    for batch in loader:
        yield batch.to(device)


def _as_it_is(batch: Batch) -> Batch:
    return batch


def _start_worker(_: int) -> None:
    """A worker needs one thread. It leaves signals, which reach all processes of a group, to the main process: that
    saves before it stops."""
    ignore()
    die_with_parent()
    torch.set_num_threads(1)
