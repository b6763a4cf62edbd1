"""Runs the jobs of a benchmark in several processes that share the device."""

import multiprocessing
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any


def run_jobs(
    run: Callable[..., Any], jobs: Sequence[tuple], num_processes: int
) -> Iterator[tuple[tuple, Any, str | None]]:
    """Yields (job, result of `run(*job)`, None) as the jobs finish, or (job, None, the traceback) if one failed."""
    with ProcessPoolExecutor(num_processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        jobs_by_future = {pool.submit(run, *job): job for job in jobs}
        for future in as_completed(jobs_by_future):
            error = future.exception()
            failure = None if error is None else "".join(traceback.format_exception(error))
            yield jobs_by_future[future], None if failure else future.result(), failure
