"""One step: draw the targets, split, run each part forward and back, clip, update. Only here do weights change."""

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from hornbook.batch import Batch
from hornbook.train.captured import CapturedSteps
from hornbook.train.device import Runtime
from hornbook.train.objective import Objective, StepInputs
from hornbook.train.optimizer import set_rate
from hornbook.train.randomness import seed_of

TOKEN_BUCKET = (
    1024  # on CUDA, parts are filled up with dead tokens to a multiple of this: of a part of 65,536 at most 2% are dead
)
TARGET_BUCKET = 128
Result = TypeVar("Result")


@dataclass
class StepResult:
    """Still on the device: reading a number would make the host wait."""

    terms: dict[str, Tensor]  # mean loss of each term
    loss: Tensor  # their weighted sum
    grad_norm: Tensor
    num_tokens: int


class Stepper:
    """Takes steps with one model, objective and optimizer."""

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        optimizer: torch.optim.Optimizer,
        runtime: Runtime,
        seed: int,
        clip: float,
        micro_tokens: int,
    ):
        self.model = model
        self.objective = objective
        self.optimizer = optimizer
        self.runtime = runtime
        self.seed = seed
        self.clip = clip
        self.micro_tokens = micro_tokens
        self.generator = torch.Generator(runtime.device)
        self.captured = CapturedSteps(self) if runtime.graphs and getattr(objective, "is_capturable", False) else None

    def take(self, batch: Batch, number: int, lr: float) -> StepResult:
        """One update on batch `number`. When memory runs out, the same step again in parts of half the size."""
        return self.retry_on_oom(batch.longest, lambda: self._take(batch, number, lr))

    def retry_on_oom(self, longest: int, compute: Callable[[], Result]) -> Result:
        """What `compute` answers; as often as memory runs out, `micro_tokens` halves and it is asked again."""
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
        self.model.train()
        self.generator.manual_seed(seed_of(self.seed, number, "draw"))
        step_inputs = self.objective.prepare(batch, self.generator)
        if self.captured is not None and batch.num_tokens <= self.micro_tokens:
            numbers, names = self.captured.take(step_inputs, number, lr)
            terms = dict(zip(names, numbers[2:], strict=True))
            return StepResult(terms, numbers[0], numbers[1], batch.num_real_tokens)
        counts = {term: torch.where(count > 0, count, 1.0) for term, count in step_inputs.counts().items()}
        weights = self.objective.weights
        terms = dict.fromkeys(weights, 0.0)
        for i, part in enumerate(step_inputs.split(self.micro_tokens)):
            torch.manual_seed(seed_of(self.seed, number, i, "dropout"))
            with self.runtime.autocast():
                sums = self.objective.sums(self.model, self._shaped(part))
            sum(weights[term] * sums[term] / counts[term] for term in weights).backward()
            terms = {term: terms[term] + sums[term].detach() / counts[term] for term in weights}
        norm = self.grad_norm()
        if self.clip > 0:
            held = [p for p in self.model.parameters() if p.grad is not None]
            torch.nn.utils.clip_grads_with_norm_(held, self.clip, norm)
        set_rate(self.optimizer, lr)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        loss = sum(weights[term] * terms[term] for term in weights)
        return StepResult(terms, loss, norm, batch.num_real_tokens)

    def grad_norm(self) -> Tensor:
        return torch.nn.utils.get_total_norm([p.grad for p in self.model.parameters() if p.grad is not None])

    def _shaped(self, step_inputs: StepInputs) -> StepInputs:
        """On CUDA, filled up to a bucket, so that compiled code meets few shapes."""
        return bucketed(step_inputs) if self.runtime.device.type == "cuda" else step_inputs


def bucketed(
    step_inputs: StepInputs, token_bucket: int = TOKEN_BUCKET, target_bucket: int = TARGET_BUCKET
) -> StepInputs:
    """The same step with dead tokens, dead sequences and targets of weight 0 at the end: same sums, same gradients."""
    batch = step_inputs.batch
    num_tokens = -(-batch.num_tokens // token_bucket) * token_bucket
    num_padding_sequences = -(-(num_tokens - batch.num_tokens) // batch.longest)
    num_padding_sequences = -(-num_padding_sequences // batch.group_size) * batch.group_size
    filled = batch.bucketed(num_tokens, batch.num_sequences + num_padding_sequences)
    targets = {
        term: target.padded_to(-(-len(target.positions_K) // target_bucket) * target_bucket, filled.num_sequences)
        for term, target in step_inputs.targets.items()
    }
    return StepInputs(filled, targets)


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
