"""Ranks as processes of their own, as torchrun would start them; and torchrun itself."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from forked import context, do_not_wait_for_the_disk, draw_fewer_resamples

SOURCE = Path(__file__).parents[2] / "src"
MANY_SECONDS = 240


def start_ranks(size: int, function: Callable, *arguments: object) -> list:
    """One process for each rank, which calls the function."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": size, "MASTER_ADDR": "localhost", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "test"}
    ranks = [shared | {"RANK": rank, "LOCAL_RANK": rank} for rank in range(size)]
    processes = [context.Process(target=_run_rank, args=(env, function, arguments)) for env in ranks]
    for process in processes:
        process.start()
    return processes


def ended(processes: Sequence) -> list[int]:
    """The exit status of each process, none of which may wait for another for ever."""
    for process in processes:
        process.join(MANY_SECONDS)
    late = [process for process in processes if process.exitcode is None]
    for process in late:
        process.kill()
    assert not late, "a process has not ended"
    return [process.exitcode for process in processes]


def run_ranks(size: int, function: Callable, *arguments: object) -> None:
    assert set(ended(start_ranks(size, function, *arguments))) == {0}


def _run_rank(env: dict, function: Callable, arguments: tuple) -> None:
    os.environ.update({name: str(value) for name, value in env.items()})
    torch.set_num_threads(1)
    draw_fewer_resamples()
    do_not_wait_for_the_disk()
    function(*arguments)


def torchrun(*words: object, num: int = 2, restarts: int = 0) -> subprocess.Popen:
    """`torchrun -m hornbook ...` with its output captured."""
    options = ["--nproc-per-node", str(num), "--max-restarts", str(restarts), "--monitor-interval", "0.1"]
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        "localhost:0",
    ]
    return subprocess.Popen(
        [*command, *options, "-m", "hornbook", *map(str, words)],
        env=os.environ | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
