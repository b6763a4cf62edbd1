"""Worker processes of a build that can be resumed."""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any, Self

from hornbook.lifecycle.stopping import die_with_parent, starting_children


class WorkerPool:
    """Spawned processes that end with this one and do not import its main script; with 0 workers, this process does the
    work. As a context, it ends the workers when all submitted work is done, after an error immediately."""

    def __init__(self, workers: int, initializer: Callable[..., None] = die_with_parent, initargs: tuple = ()):
        context = get_context("spawn")
        self._executor = ProcessPoolExecutor(workers, context, initializer, initargs) if workers else None

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future:
        if self._executor is None:
            future = Future()
            future.set_result(function(*arguments))
            return future
        with starting_children(), main_hidden():
            return self._executor.submit(function, *arguments)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        try:
            if self._executor and error is None:
                self._executor.shutdown(wait=True)
        finally:
            self.kill()

    def kill(self) -> None:
        """Ends the workers immediately and discards their work, unless they have ended already."""
        if self._executor:
            for process in list((self._executor._processes or {}).values()):
                process.kill()
            self._executor.shutdown(wait=True, cancel_futures=True)


_hiding = threading.Lock()


@contextlib.contextmanager
def main_hidden() -> Iterator[None]:
    """Context in which spawned processes do not import the user's main script, which would run it again."""
    with _hiding:
        main = sys.modules["__main__"]
        hidden = {name: vars(main).pop(name) for name in ("__spec__", "__file__") if name in vars(main)}
        main.__spec__ = None
        try:
            yield
        finally:
            vars(main).pop("__spec__")
            vars(main).update(hidden)


@contextlib.contextmanager
def explaining_interruptions(progress: Callable[[], str] = lambda: "") -> Iterator[None]:
    """Context in which the error of a build that was interrupted says how to resume it, after its `progress`."""
    try:
        yield
    except BrokenProcessPool:
        raise ValueError(
            f"a worker process was killed, probably for lack of memory{progress()}: run the same command again to "
            "resume, with fewer workers if it happens again"
        ) from None
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped{progress()}: run the same command again to resume") from None
