"""One training step: prepare the targets, split into micro-batches, forward and backward on each, clip, update.

Weights change only here and in `captured.py`, which replays the same step as a CUDA graph.
"""

import dataclasses
import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from hornbook.batch import Batch
from hornbook.train.captured import CapturedSteps
from hornbook.train.device import Runtime
from hornbook.train.objective import Objective, StepInputs, TrainingModule
from hornbook.train.optimizer import set_learning_rate
from hornbook.train.randomness import seed_generators, seed_of

TOKEN_BUCKET = 1024  # on CUDA, micro-batches are padded to a multiple of this: at most 2% of 65,536 tokens
ENTRY_BUCKET = 128  # the same for targets and other streams
Result = TypeVar("Result")


@dataclass
class StepResult:
    """Losses of a step, left on the device: reading them would make the host wait."""

    terms: dict[str, Tensor]  # mean loss of each term
    loss: Tensor  # weighted sum of the terms
    grad_norm: Tensor
    num_tokens: int


class Stepper:
    """Runs training steps of one module with one optimizer."""

    def __init__(
        self,
        module: TrainingModule,
        optimizer: torch.optim.Optimizer,
        runtime: Runtime,
        seed: int,
        clip: float,
        micro_tokens: int,
    ):
        self.module = module
        self.parameters = list(module.model.parameters())
        self.optimizer = optimizer
        self.runtime = runtime
        self.seed = seed
        self.clip = clip
        self.micro_tokens = micro_tokens
        parts = {self.objective: False, module.model: True}  # objectives say so, models only if they cannot
        is_capturable = all(getattr(part, "is_capturable", default) for part, default in parts.items())
        self.captured = CapturedSteps(self) if runtime.graphs and is_capturable else None

    @property
    def model(self) -> nn.Module:
        return self.module.model

    @property
    def objective(self) -> Objective:
        return self.module.objective

    def take(self, batch: Batch, number: int, lr: float) -> StepResult:
        """One update on batch `number`. If memory runs out, repeats the step with micro-batches of half the size."""
        return self.retry_on_oom(batch.longest, lambda: self._take(batch, number, lr))

    def retry_on_oom(self, longest: int, compute: Callable[[], Result]) -> Result:
        """Returns `compute()`. Whenever memory runs out, halves `micro_tokens` (to `longest` at least) and retries."""
        while True:
            try:
                return compute()
            except (torch.OutOfMemoryError, RuntimeError) as error:
                if not _is_out_of_memory(error) or self.micro_tokens <= longest:
                    raise
            self.micro_tokens = max(self.micro_tokens // 2, longest)
            self.optimizer.zero_grad(set_to_none=True)
            gc.collect()
            if self.runtime.device.type == "cuda":
                torch.cuda.empty_cache()

    def _take(self, batch: Batch, number: int, lr: float) -> StepResult:
        self.module.train()
        step_inputs = self.objective.prepare(batch, seed_of(self.seed, number, "draw"))
        if self.captured is not None and batch.num_tokens <= self.micro_tokens:
            numbers, names = self.captured.take(step_inputs, number, lr)
            terms = dict(zip(names, numbers[2:], strict=True))
            return StepResult(terms, numbers[0], numbers[1], batch.num_real_tokens)
        counts = {term: torch.where(count > 0, count, 1.0) for term, count in step_inputs.counts().items()}
        weights = self.objective.weights
        terms = dict.fromkeys(weights, 0.0)
        for i, micro_batch in enumerate(self._with_vectors(step_inputs.split(self.micro_tokens), number)):
            seed_generators(seed_of(self.seed, number, i, "dropout"))
            with self.runtime.autocast():
                sums = self.module(self._bucketed(micro_batch))
            sum(weights[term] * sums[term] / counts[term] for term in weights).backward()
            terms = {term: terms[term] + sums[term].detach() / counts[term] for term in weights}
        norm = self.grad_norm()
        if self.clip > 0:
            torch.nn.utils.clip_grads_with_norm_(self.parameters, self.clip, norm)
        set_learning_rate(self.optimizer, lr)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        loss = sum(weights[term] * terms[term] for term in weights)
        return StepResult(terms, loss, norm, batch.num_real_tokens)

    @torch.no_grad()
    def _with_vectors(self, micro_batches: list[StepInputs], number: int) -> list[StepInputs]:
        """Micro-batches of an objective that compares the whole batch, with the vectors of all of them. The second
        forward pass of a micro-batch has the same dropout as this one."""
        if len(micro_batches) == 1 or not getattr(self.objective, "shares_vectors", False):
            return micro_batches
        vectors = []
        for i, micro_batch in enumerate(micro_batches):
            seed_generators(seed_of(self.seed, number, i, "dropout"))
            with self.runtime.autocast():
                vectors.append(self.module(self._bucketed(micro_batch), only_vectors=True)["vectors"])
        shared = {"vectors": torch.cat(vectors)}
        return [dataclasses.replace(each, shared=each.shared | shared) for each in micro_batches]

    def grad_norm(self) -> Tensor:
        return torch.nn.utils.get_total_norm([p.grad for p in self.parameters if p.grad is not None])

    def _bucketed(self, step_inputs: StepInputs) -> StepInputs:
        """On CUDA, pads to a bucket so that compiled code sees few shapes."""
        return bucketed(step_inputs) if self.runtime.device.type == "cuda" else step_inputs


def bucketed(step_inputs: StepInputs, token_bucket: int = TOKEN_BUCKET, entry_bucket: int = ENTRY_BUCKET) -> StepInputs:
    """The step padded with extra tokens, sequences and targets of weight 0, which leave sums and gradients unchanged.
    Tokens are padded to a multiple of `token_bucket`, targets and other streams to a multiple of `entry_bucket`."""
    batch = step_inputs.batch
    num_tokens = -(-batch.num_tokens // token_bucket) * token_bucket
    num_padding_sequences = -(-(num_tokens - batch.num_tokens) // batch.longest)
    num_padding_sequences = -(-num_padding_sequences // batch.group_size) * batch.group_size
    sizes = {name: -(-each.num_entries // entry_bucket) * entry_bucket for name, each in batch.streams.items()}
    padded = batch.bucketed(num_tokens, batch.num_sequences + num_padding_sequences, sizes)
    return dataclasses.replace(step_inputs, batch=padded)


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
