"""Fine-tunings side by side, in processes that share the device."""

import concurrent.futures
import multiprocessing
import os
import time
import traceback
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor

from hornbook.experiments.memory import give_back
from hornbook.experiments.pieces import Finetuning, finetuned
from hornbook.lifecycle.stopping import die_with_parent, starting_children
from hornbook.train import signals

SECONDS_A_LOOK = 0.5  # between looks at whether a person wants to stop
MOST_TRIES = 3  # of a fine-tuning whose process, or another one beside it, was killed
LOST_DEVICE = "CUDA error"  # in the words of an error after which a process cannot use the device again
Told = Callable[[Finetuning, dict | Exception], None]


class Pool:
    """Processes that stay for the next group of fine-tunings. Only this one heeds signals, and tells them to stop."""

    def __init__(self, num_processes: int):
        self.num_processes = num_processes
        self.executor: ProcessPoolExecutor | None = None
        self.stop_asked = None

    def run(
        self, jobs: list[Finetuning], is_to_stop: Callable[[], bool], tell: Told, log: Callable[[str], None]
    ) -> bool:
        """Tells what each found, or what went wrong with it. False where they were stopped. Where a process is killed
        or loses its device, those that were lost with it are run again."""
        for number in range(1, MOST_TRIES + 1):
            is_stopped, lost = self._tried(jobs, is_to_stop, tell, log)
            if is_stopped or not lost:
                return not is_stopped
            jobs = [job for job in jobs if any(job is each for each, _ in lost)]  # in their order
            if number < MOST_TRIES:
                log(f"note: a process was killed or lost its device; {len(jobs)} fine-tunings begin again")
        for job, error in lost:
            tell(job, error)
        return True

    def _tried(
        self, jobs: list[Finetuning], is_to_stop: Callable[[], bool], tell: Told, log: Callable[[str], None]
    ) -> tuple[bool, list[tuple[Finetuning, Exception]]]:
        """(whether they were stopped, those that were lost with a process, and how)."""
        waiting = self._submitted(jobs)
        is_stopped, is_told, lost = False, False, []
        while waiting:
            done, _ = concurrent.futures.wait(waiting, SECONDS_A_LOOK, concurrent.futures.FIRST_COMPLETED)
            for future in done:
                job = waiting.pop(future)
                try:
                    found = future.result()
                except BrokenExecutor as error:
                    lost.append((job, error))
                except Exception as error:
                    tell(job, error)
                else:
                    is_stopped |= found is None
                    if found is not None:
                        tell(job, found)
            is_stopped |= is_to_stop()
            if is_stopped and not is_told:
                is_told = True
                self.stop_asked.set()
                log("stopping: what runs is saved first")
                for future in [each for each in waiting if each.cancel()]:
                    del waiting[future]
        if lost:
            self.close()  # it takes no more work; the next group gets another
        return is_stopped, lost

    def _submitted(self, jobs: list[Finetuning]) -> dict[Future, Finetuning]:
        if self.executor is None:
            context = multiprocessing.get_context("spawn")
            self.stop_asked = context.Event()
            self.executor = ProcessPoolExecutor(self.num_processes, context, _begin, (self.stop_asked,))
        with starting_children():
            return {self.executor.submit(_run, job): job for job in jobs}

    def close(self) -> None:
        if self.executor is not None:
            self.stop_asked.set()
            self.executor.shutdown(cancel_futures=True)
            self.executor = None


# ---- in a process of the pool

_stop_asked = None  # an event that the parent sets


def _begin(stop_asked) -> None:
    """A parent that was killed outright leaves nobody behind to write into its folders."""
    global _stop_asked
    die_with_parent()
    _stop_asked = stop_asked
    signals.leave_alone()


def _run(job: Finetuning) -> dict | None:
    """None where it was stopped, also before it began: a pool holds some that can no longer be cancelled."""

    def is_to_stop(_: object = None) -> bool:
        return _stop_asked.is_set() or (job.until is not None and time.time() > job.until)

    if is_to_stop():
        return None
    try:
        return finetuned(job, is_to_stop)
    except RuntimeError as error:
        if LOST_DEVICE not in str(error):
            raise
        traceback.print_exc()
        os._exit(1)  # nothing runs on the device in this process any more
    finally:
        give_back()  # this process stays, and the next arm's pre-training has the device beside it
