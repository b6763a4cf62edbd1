"""The queue of a GPT: requests join and leave one running batch of generation, token by token."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from hornbook.inference.continuous import ContinuousBatch
from hornbook.inference.decoder import DecoderModel
from hornbook.inference.generation import GeneratedSequence, GenerationConfig, fit_prompts
from hornbook.serve.engine import BatchReport, OnText, Queue, QueuedRequest


@dataclass(eq=False)
class _GenerationJob:
    """A request for texts: choice (i, j) is sample j of prompt i."""

    job: QueuedRequest
    prompts: list[list[int]]
    config: GenerationConfig
    waiting: deque[tuple[int, int]]  # choices that have no slot yet
    sequences: dict[tuple[int, int], GeneratedSequence] = field(default_factory=dict)
    started: float = 0.0

    @property
    def is_cancelled(self) -> bool:
        return self.job.is_cancelled

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
        self, prompts: list[list[int]], config: GenerationConfig, on_text: OnText | None = None
    ) -> QueuedRequest:
        """Queues a request of the running event loop: `await job.future` is a list of texts per prompt."""
        loop = asyncio.get_running_loop()
        num_tokens = sum(map(len, prompts)) + config.max_new_tokens * config.num * len(prompts)
        job = QueuedRequest(None, prompts, None, num_tokens, loop, loop.create_future(), on_text)
        choices = deque((place, sample) for place in range(len(prompts)) for sample in range(config.num))
        self._enqueue(_GenerationJob(job, prompts, config, choices))
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
                for generation in self.running:
                    generation.job.finish(error=error)
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
        for generation in [each for each in self.running if each.is_cancelled]:
            for sequence in generation.sequences.values():
                self.batch.remove(sequence)
            generation.job.finish()
            self.running.remove(generation)

    def _join(self) -> None:
        """Gives free slots to the texts that have waited longest."""
        while self.batch.has_free_slot:
            generation = next((each for each in self.running if each.waiting), None) or self._next()
            if generation is None:
                return
            place, sample = choice = generation.waiting.popleft()
            on_text = None if generation.job.on_text is None else partial(generation.job.on_text, place, sample)
            generation.sequences[choice] = self.batch.add(generation.prompts[place], generation.config, sample, on_text)

    def _next(self) -> _GenerationJob | None:
        with self.changed:
            while self.waiting:
                generation = self.waiting.popleft()
                if not generation.is_cancelled:
                    generation.started = time.monotonic()
                    self.running.append(generation)
                    return generation
        return None

    def _finish(self) -> None:
        for generation in [each for each in self.running if each.is_done]:
            found = [
                [
                    generation.sequences[place, sample].result(self.model.eos_id)
                    for sample in range(generation.config.num)
                ]
                for place in range(len(generation.prompts))
            ]
            seconds = time.monotonic() - generation.started
            waited = generation.started - generation.job.queued_at
            self.on_batch(BatchReport(len(self.running), generation.job.num_tokens, seconds, waited))
            self._measure(seconds)
            self.running.remove(generation)
            generation.job.finish(found)
