"""Runs fine-tunings in parallel, in processes that share the device."""

import concurrent.futures
import multiprocessing
import os
import time
import traceback
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor

from hornbook.evaluation.experiments.jobs import FinetuningArguments, release_memory, run_finetuning
from hornbook.lifecycle.run_folder import Log
from hornbook.lifecycle.stopping import die_with_parent, disable_signal_handlers, starting_children
from hornbook.train.job import Stopped

POLL_SECONDS = 0.5  # interval at which a stop request is checked
MAX_TRIES = 3  # of a fine-tuning run lost because a process of the pool was killed
OnResult = Callable[[FinetuningArguments, dict | Exception], None]


class Pool:
    """Worker processes, reused between groups of fine-tunings. Only the parent handles signals, and stops them."""

    def __init__(self, num_processes: int):
        self.num_processes = num_processes
        self.executor: ProcessPoolExecutor | None = None
        self.stop_event = None

    def run(
        self,
        jobs: list[FinetuningArguments],
        should_stop: Callable[[], bool],
        on_result: OnResult,
        log: Log,
    ) -> bool:
        """Runs the jobs and passes each result or exception to `on_result`; returns False if they were stopped.

        Jobs lost because a process was killed or lost its device are run again, at most `MAX_TRIES` times in all.
        """
        for attempt in range(1, MAX_TRIES + 1):
            is_stopped, lost = self._run_once(jobs, should_stop, on_result, log)
            if is_stopped or not lost:
                return not is_stopped
            jobs = [job for job in jobs if any(job is each for each, _ in lost)]  # in the original order
            if attempt < MAX_TRIES:
                log(f"note: a process was killed or lost its device; restarting {len(jobs)} fine-tuning runs")
        for job, error in lost:
            on_result(job, error)
        return True

    def _run_once(
        self,
        jobs: list[FinetuningArguments],
        should_stop: Callable[[], bool],
        on_result: OnResult,
        log: Log,
    ) -> tuple[bool, list[tuple[FinetuningArguments, Exception]]]:
        """Returns (whether the jobs were stopped, lost jobs with their exceptions)."""
        waiting = self._submit(jobs)
        is_stopped, is_requested, lost = False, False, []
        while waiting:
            done, _ = concurrent.futures.wait(waiting, POLL_SECONDS, concurrent.futures.FIRST_COMPLETED)
            for future in done:
                job = waiting.pop(future)
                try:
                    result = future.result()
                except BrokenExecutor as error:
                    lost.append((job, error))
                except Exception as error:
                    on_result(job, error)
                else:
                    is_stopped |= result is None
                    if result is not None:
                        on_result(job, result)
            is_stopped |= should_stop()
            if is_stopped and not is_requested:
                is_requested = True
                self.stop_event.set()
                log("stopping: saving the fine-tuning runs in progress")
                for future in [each for each in waiting if each.cancel()]:
                    del waiting[future]
        if lost:
            self.close()  # a broken executor accepts no jobs; the next call starts a new one
        return is_stopped, lost

    def _submit(self, jobs: list[FinetuningArguments]) -> dict[Future, FinetuningArguments]:
        if self.executor is None:
            context = multiprocessing.get_context("spawn")
            self.stop_event = context.Event()
            self.executor = ProcessPoolExecutor(self.num_processes, context, _start_worker, (self.stop_event,))
        with starting_children():
            return {self.executor.submit(_run, job): job for job in jobs}

    def close(self) -> None:
        if self.executor is not None:
            self.stop_event.set()
            self.executor.shutdown(cancel_futures=True)
            self.executor = None


# ---- in a worker process

_stop_event = None  # set by the parent


def _start_worker(stop_event) -> None:
    """Initialises a worker. It dies with its parent, so no worker keeps writing after the parent was killed."""
    global _stop_event
    die_with_parent()
    _stop_event = stop_event
    disable_signal_handlers()


def _run(arguments: FinetuningArguments) -> dict | None:
    """Runs one job; None if it was stopped, also before it started, because queued jobs cannot always be cancelled."""

    def should_stop(_: object = None) -> bool:
        return _stop_event.is_set() or (arguments.until is not None and time.time() > arguments.until)

    if should_stop():
        return None
    try:
        return run_finetuning(arguments, should_stop)
    except Stopped:
        return None
    except RuntimeError as error:
        if "CUDA error" not in str(error):
            raise
        traceback.print_exc()
        os._exit(1)  # after such an error, this process cannot use the device any more
    finally:
        release_memory()  # the process stays alive while the next arm is pre-trained on the device
