"""The queue of a GPT: requests join and leave one running batch of generation, token by token."""

import itertools
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from hornbook.inference.continuous import ContinuousBatch
from hornbook.inference.decoder import DecoderModel
from hornbook.inference.generation import GeneratedSequence, GenerationConfig, OnToken, fit_prompts
from hornbook.serve.engine import BatchReport, Queue, QueuedRequest


@dataclass(eq=False, kw_only=True)
class _GenerationJob(QueuedRequest):
    """A request for texts: choice (i, j) is sample j of prompt i."""

    prompts: list[list[int]]
    config: GenerationConfig
    on_text: OnToken | None
    sequences: dict[tuple[int, int], GeneratedSequence] = field(default_factory=dict)
    started: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        choices = itertools.product(range(len(self.prompts)), range(self.config.num))
        self.waiting = deque(choices)  # choices that have no slot yet

    @property
    def is_done(self) -> bool:
        return not self.waiting and all(each.finish_reason for each in self.sequences.values())


class GenerationEngine(Queue):
    """The queue of one GPT and the thread that generates, `num_slots` texts at a time. A request that is cancelled
    frees its slots before the next token."""

    def __init__(
        self,
        model: DecoderModel,
        num_slots: int,
        max_queue: int,
        on_batch: Callable[[BatchReport], None] = lambda report: None,
    ):
        super().__init__(max_queue, on_batch, num_slots)
        self.model = model
        self.batch = self._new_batch()
        self.running: list[_GenerationJob] = []  # requests with at least one slot
        self.thread.start()

    @property
    def num_running(self) -> int:
        return len(self.running)

    def encode(self, prompts: list[str]) -> list[list[int]]:
        """The token ids of prompts; a `ValueError` if one does not fit into the context."""
        return fit_prompts(self.model.prompt_ids(prompts), self.model.model.config.max_positions, slide=False)

    def submit(
        self, prompts: list[list[int]], config: GenerationConfig, on_text: OnToken | None = None
    ) -> QueuedRequest:
        """Queues a request: `await job.future` is a list of texts per prompt."""
        num_tokens = sum(map(len, prompts)) + config.max_new_tokens * config.num * len(prompts)
        job = _GenerationJob(prompts=prompts, config=config, on_text=on_text, num_tokens=num_tokens)
        self._enqueue(job)
        return job

    def _new_batch(self) -> ContinuousBatch:
        return ContinuousBatch(self.model.model, self.model.tokenizer, self.model.eos_id, self.num_slots)

    def _work(self) -> None:
        while self._has_work():
            try:
                self._free_cancelled()
                self._join()
                self.batch.step()
            except Exception as error:  # of the model: whatever runs cannot be continued
                for job in self.running:
                    job.finish(error=error)
                self.running, self.batch = [], self._new_batch()
            self._finish()

    def _has_work(self) -> bool:
        """Waits until there is a request; False when the engine is closed and has none."""
        with self.changed:
            while not self.running and not self.waiting:
                if self.is_closed:
                    return False
                self.changed.wait()
            return True

    def _free_cancelled(self) -> None:
        for job in [each for each in self.running if each.is_cancelled]:
            for sequence in job.sequences.values():
                self.batch.remove(sequence)
            job.finish()
            self.running.remove(job)

    def _join(self) -> None:
        """Gives free slots to the texts that have waited longest."""
        while self.batch.has_free_slot:
            job = next((each for each in self.running if each.waiting), None) or self._next()
            if job is None:
                return
            i, sample = job.waiting.popleft()
            on_text = job.on_text and partial(job.on_text, i, sample)
            job.sequences[i, sample] = self.batch.add(job.prompts[i], job.config, sample, on_text)

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
                [job.sequences[i, sample].result() for sample in range(job.config.num)] for i in range(len(job.prompts))
            ]
            seconds = time.monotonic() - job.started
            self.on_batch(BatchReport(len(self.running), job.num_tokens, seconds, job.started - job.queued_at))
            self._measure(seconds)
            self.running.remove(job)
            job.finish(texts)
