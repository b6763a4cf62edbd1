"""Queues requests and runs them in batches by token count, each model in a thread of its own; a GPT has a second one,
in which requests join and leave a running batch of generation, token by token.

A job is one request: its items, and the operation that answers them. The thread takes the oldest job and adds later
ones with the same key (operation and settings) while the batch has at most `batch_tokens` tokens; then it runs the
operation once. If a batch fails, its jobs are run one by one, so that an invalid request fails alone.
"""

import asyncio
import contextlib
import itertools
import math
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hornbook.inference.continuous import ContinuousBatch
from hornbook.inference.decoder import DecoderModel
from hornbook.inference.generation import GeneratedSequence, GenerationConfig, OnText, fit_prompts
from hornbook.lifecycle.run_folder import ignore

Operation = Callable[[list], Sequence[Any]]  # one result per item
SMOOTHING = 0.9  # of the mean time per job


class QueueFull(Exception):
    """The queue is full; `seconds` is when a slot is expected to be free."""

    def __init__(self, seconds: int):
        super().__init__(f"the server is busy: try again in {seconds} s")
        self.seconds = seconds


@dataclass(eq=False, kw_only=True)
class Job:
    """One request, submitted from the running event loop; `await job.future` gives its result."""

    num_tokens: int
    is_cancelled: bool = False  # the client is gone, or its time is up
    queued_at: float = field(default_factory=time.monotonic)
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    def __post_init__(self) -> None:
        self.future = self.loop.create_future()

    def cancel(self) -> None:
        self.is_cancelled = True

    def finish(self, result: Any = None, error: Exception | None = None) -> None:
        """Answers the job, from another thread; nothing happens if nobody waits for it any more."""

        def answer() -> None:
            if not self.future.done():
                if self.is_cancelled:
                    self.future.cancel()
                elif error is not None:
                    self.future.set_exception(error)
                else:
                    self.future.set_result(result)

        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(answer)


@dataclass(eq=False, kw_only=True)
class _OperationJob(Job):
    key: Hashable  # jobs with the same key may run in one batch
    items: list
    run: Operation


@dataclass(frozen=True)
class BatchReport:
    """The size and times of a batch, for the metrics."""

    num_jobs: int
    num_tokens: int
    seconds: float
    waited: float  # seconds that its oldest job waited


class Engine:
    """Waiting jobs and the daemon thread that works on them. A subclass has `_work`, which the thread runs, and calls
    `self.thread.start()` at the end of its `__init__`."""

    num_running: int  # requests that are being computed

    def __init__(self, max_queue: int, on_batch: Callable[[BatchReport], None], num_slots: int = 1):
        self.max_queue, self.on_batch, self.num_slots = max_queue, on_batch, num_slots
        self.waiting: deque = deque()
        self.changed = threading.Condition()
        self.is_closed = False
        self.seconds_per_job = 0.1
        self.thread = threading.Thread(target=self._work, daemon=True)

    def close(self) -> None:
        """Ends the thread after the jobs that are queued."""
        with self.changed:
            self.is_closed = True
            self.changed.notify()
        self.thread.join()

    def _enqueue(self, job: Job) -> None:
        with self.changed:
            self._drop_cancelled()
            if len(self.waiting) >= self.max_queue:
                seconds = self.seconds_per_job * len(self.waiting) / self.num_slots
                raise QueueFull(max(1, math.ceil(seconds)))
            self.waiting.append(job)
            self.changed.notify()

    def _drop_cancelled(self) -> None:
        self.waiting = deque(job for job in self.waiting if not job.is_cancelled)

    def _wait_for_work(self) -> bool:
        """Waits, with the lock held, until there is a request; False when the queue is closed and has none."""
        self._drop_cancelled()
        while not (self.waiting or self.num_running):
            if self.is_closed:
                return False
            self.changed.wait()
            self._drop_cancelled()
        return True

    def _measure(self, seconds: float) -> None:
        """Adds the time that a job took to the mean."""
        self.seconds_per_job = SMOOTHING * self.seconds_per_job + (1 - SMOOTHING) * seconds

    def _work(self) -> None:
        raise NotImplementedError


class BatchEngine(Engine):
    """The queue of one model and its thread.

    >>> import asyncio
    >>> engine = BatchEngine(batch_tokens=100, max_queue=10)
    >>> async def ask():
    ...     lengths = lambda items: [len(item) for item in items]
    ...     return await engine.submit("length", ["a", "abc"], lengths, 4).future
    >>> asyncio.run(ask())
    [1, 3]
    >>> engine.close()
    """

    def __init__(self, batch_tokens: int, max_queue: int, on_batch: Callable[[BatchReport], None] = ignore):
        super().__init__(max_queue, on_batch)
        self.batch_tokens = batch_tokens
        self.num_running = 0
        self.thread.start()

    def submit(self, key: Hashable, items: list, run: Operation, num_tokens: int) -> Job:
        """Queues a job and returns it: `await job.future` is one result per item."""
        job = _OperationJob(key=key, items=items, run=run, num_tokens=num_tokens)
        self._enqueue(job)
        return job

    def _work(self) -> None:
        while (jobs := self._next()) is not None:
            started = time.monotonic()
            try:
                self._answer(jobs)
            finally:
                seconds = time.monotonic() - started
                with self.changed:
                    self.num_running -= len(jobs)
                    self._measure(seconds / len(jobs))
                num_tokens = sum(job.num_tokens for job in jobs)
                waited = started - min(job.queued_at for job in jobs)
                self.on_batch(BatchReport(len(jobs), num_tokens, seconds, waited))

    def _next(self) -> list[_OperationJob] | None:
        """The jobs of the next batch; None when the engine is closed."""
        with self.changed:
            if not self._wait_for_work():
                return None
            jobs, left, key = [], deque(), self.waiting[0].key
            num_tokens = 0
            for job in self.waiting:
                if job.key == key and (not jobs or num_tokens + job.num_tokens <= self.batch_tokens):
                    jobs.append(job)
                    num_tokens += job.num_tokens
                else:
                    left.append(job)
            self.waiting = left
            self.num_running += len(jobs)
            return jobs

    def _answer(self, jobs: list[_OperationJob]) -> None:
        try:
            results = iter(jobs[0].run([item for job in jobs for item in job.items]))
            for job in jobs:
                job.finish([next(results) for _ in job.items])
            return
        except Exception as error:
            if len(jobs) == 1:
                jobs[0].finish(error=error)
                return
        for job in jobs:  # after the error, which would keep the tensors of the failed batch in memory
            self._answer([job])


@dataclass(eq=False, kw_only=True)
class _GenerationJob(Job):
    """A request for texts: choice (i, j) is sample j of prompt i."""

    prompts: list[list[int]]
    config: GenerationConfig
    on_text: OnText | None
    sequences: dict[tuple[int, int], GeneratedSequence] = field(default_factory=dict)
    started: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        choices = itertools.product(range(len(self.prompts)), range(self.config.num_return_sequences))
        self.waiting = deque(choices)  # choices that have no slot yet

    @property
    def is_done(self) -> bool:
        return not self.waiting and all(each.finish_reason for each in self.sequences.values())


class GenerationEngine(Engine):
    """The queue of one GPT and the thread that generates, `num_slots` texts at a time. A request that is cancelled
    frees its slots before the next token."""

    def __init__(
        self,
        model: DecoderModel,
        num_slots: int,
        max_queue: int,
        on_batch: Callable[[BatchReport], None] = ignore,
    ):
        super().__init__(max_queue, on_batch, num_slots)
        self.model = model
        self.batch: ContinuousBatch | None = self._new_batch()  # None after a failure, until the next request
        self.running: list[_GenerationJob] = []  # requests with at least one slot
        self.thread.start()

    @property
    def num_running(self) -> int:
        return len(self.running)

    def encode(self, prompts: list[str]) -> list[list[int]]:
        """The token ids of prompts; a `ValueError` if one does not fit into the context."""
        return fit_prompts(self.model.prompt_ids(prompts), self.model.model.config.max_positions, slide=None)

    def submit(self, prompts: list[list[int]], config: GenerationConfig, on_text: OnText | None = None) -> Job:
        """Queues a request: `await job.future` is a list of texts per prompt."""
        num_tokens = sum(map(len, prompts)) + config.max_new_tokens * config.num_return_sequences * len(prompts)
        job = _GenerationJob(prompts=prompts, config=config, on_text=on_text, num_tokens=num_tokens)
        self._enqueue(job)
        return job

    def _new_batch(self) -> ContinuousBatch:
        return ContinuousBatch(self.model.model, self.model.tokenizer, self.model.eos_id, self.num_slots)

    def _work(self) -> None:
        while True:
            with self.changed:
                if not self._wait_for_work():
                    return
            try:
                self._free_cancelled()
                self._join()
                if self.running:
                    self.batch.step()
            except Exception as error:  # of the model: whatever runs cannot be continued
                self.batch = None
                traceback.clear_frames(error.__traceback__)  # which would keep the cache of the batch in memory
                for job in self.running:
                    job.finish(error=error)
                self.running = []
            self._finish()

    def _free_cancelled(self) -> None:
        for job in [each for each in self.running if each.is_cancelled]:
            self._end(job)

    def _end(self, job: _GenerationJob, error: Exception | None = None) -> None:
        """Ends a request before its texts are complete, and frees its slots."""
        for sequence in job.sequences.values():
            self.batch.remove(sequence)
        self.running.remove(job)
        job.finish(error=error)

    def _join(self) -> None:
        """Gives free slots to the texts that have waited longest."""
        while self.batch is None or self.batch.has_free_slot:
            job = next((each for each in self.running if each.waiting), None) or self._next()
            if job is None:
                return
            if self.batch is None:
                self.batch = self._new_batch()
            i, sample = job.waiting.popleft()
            on_text = job.on_text and partial(job.on_text, i, sample)
            try:
                job.sequences[i, sample] = self.batch.add(job.prompts[i], job.config, sample, on_text)
            except Exception as error:  # of this prompt: the other requests continue
                self._end(job, error)

    def _next(self) -> _GenerationJob | None:
        with self.changed:
            while self.waiting:
                job = self.waiting.popleft()
                if not job.is_cancelled:
                    job.started = time.monotonic()
                    self.running.append(job)
                    return job
        return None

    def _finish(self) -> None:
        for job in [each for each in self.running if each.is_done]:
            texts = [
                [job.sequences[i, sample].result() for sample in range(job.config.num_return_sequences)]
                for i in range(len(job.prompts))
            ]
            seconds = time.monotonic() - job.started
            self.on_batch(BatchReport(len(self.running), job.num_tokens, seconds, job.started - job.queued_at))
            self._measure(seconds)
            self.running.remove(job)
            job.finish(texts)
