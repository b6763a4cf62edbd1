"""Jobs that several processes share, on one machine or several with a common file system: a job belongs to
the process that holds its lock. The operating system releases it when the process ends for any reason, so that another
one takes the job over."""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import ParamSpec, TypeVar

from filelock import FileLock, Timeout

from hornbook.lifecycle.locking import is_locked, locking, run_lock

JOB_LOCKS = ".job_locks"  # in the folder of the work: a lock file per job
WAIT_SECONDS = 2.0  # between two checks for jobs that the other processes have finished

P = ParamSpec("P")
R = TypeVar("R")


def lock_or_join_output_folder(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator like `lock_output_folder`; with the argument `join`, other processes may join instead."""
    return locking(_lock_or_join, function, "join")


@contextlib.contextmanager
def _lock_or_join(folder: str | Path, join: bool = False) -> Iterator[None]:
    if join:
        JobLocks(folder).join()
        yield
        return
    with run_lock(folder):
        JobLocks(folder).refuse()
        yield


class JobLocks:
    """The locks of jobs in a folder that processes share (`--join`). If it is not shared, its process has every job."""

    def __init__(self, folder: str | Path, is_shared: bool = True):
        self.folder, self.is_shared = Path(folder) / JOB_LOCKS, is_shared

    def join(self) -> None:
        """Raises a `ValueError` if a process that does not share works in the folder."""
        if self.folder.parent.is_dir() and is_locked(self.folder.parent):
            raise ValueError(
                f"a process that does not share its runs is writing to {self.folder.parent}: stop it, and start it "
                "again with join=True"
            )
        self.folder.mkdir(parents=True, exist_ok=True)

    def refuse(self) -> None:
        """Raises a `ValueError` if processes share the folder now; called by one that does not."""
        for file in self.folder.glob("*.lock"):
            with self.take(file.name.removesuffix(".lock")) as is_mine:
                if not is_mine:
                    raise ValueError(
                        f"other processes are writing to {self.folder.parent}: add join=True to work with them"
                    )

    @contextlib.contextmanager
    def take(self, job: str) -> Iterator[bool]:
        """Yields whether the job belongs to this process, until the block ends."""
        if not self.is_shared:
            yield True
            return
        lock = FileLock(self.folder / f"{job}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            yield False
            return
        try:
            yield True
        finally:
            lock.release()

    def share(
        self,
        missing: Callable[[], Iterable[str]],
        is_done: Callable[[str], bool],
        should_stop: Callable[[], bool],
        log: Callable[[str], None],
    ) -> Iterator[str]:
        """Yields jobs one after another, each while it belongs to this process, until `missing()` is empty or
        `should_stop()`. `missing()` yields the jobs that can be worked on now: not done, and not given up by this
        process. Those of other processes are waited for."""
        is_waiting = False
        while not should_stop():
            has_yielded = num_others = 0
            for job in missing():
                with self.take(job) as is_mine:
                    if not is_mine:
                        num_others += 1
                    elif not is_done(job):  # by another process, a moment ago
                        has_yielded, is_waiting = True, False
                        yield job
                if should_stop():
                    return
            if has_yielded:
                continue
            if not num_others:
                return
            if not is_waiting:
                is_waiting = True
                log(f"waiting for {num_others} job{'s' * (num_others > 1)} of other processes")
            deadline = time.monotonic() + WAIT_SECONDS
            while time.monotonic() < deadline and not should_stop():
                time.sleep(0.1)

    def wait_for(self, job: str) -> contextlib.AbstractContextManager:
        """Context in which the job belongs to this process; it waits while another process has the job."""
        return FileLock(self.folder / f"{job}.lock") if self.is_shared else contextlib.nullcontext()
