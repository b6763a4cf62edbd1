"""One training step: prepare the targets, split into micro-batches, forward and backward on each, clip, update.

Weights are updated only here and in `cuda_graphs.py`, which replays the same step as a CUDA graph.
"""

import dataclasses
import gc
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor, nn

from hornbook.batch import Batch
from hornbook.devices import current_gpu
from hornbook.train.cuda_graphs import CapturedSteps, round_up
from hornbook.train.objective import Objective, StepInputs, TrainingModule
from hornbook.train.optimizer import set_learning_rate
from hornbook.train.parallel.gradients import GradientSums
from hornbook.train.parallel.ranks import SINGLE_PROCESS, Ranks, is_out_of_memory
from hornbook.train.randomness import seed_generators, seed_of
from hornbook.train.runtime import Runtime
from hornbook.train.settings import LoopSettings

if TYPE_CHECKING:
    from hornbook.train.parallel.sharding import ShardedModule

TOKEN_BUCKET = 1024  # on CUDA, micro-batches are padded to a multiple of this: at most 2% of 65,536 tokens
ENTRY_BUCKET = 128  # the same for targets and other streams
Result = TypeVar("Result")


@dataclass
class StepResult:
    """Losses of a step, left on the device: reading them would make the host wait."""

    terms: dict[str, Tensor]  # mean loss of each term
    loss: Tensor  # weighted sum of the terms
    grad_norm: Tensor
    num_tokens: int  # of this rank


class StepInterrupted(Exception):
    """A step was abandoned between two micro-batches; the weights are those before it."""


@dataclass(eq=False)
class Stepper:
    """Runs training steps of one module with one optimizer, together with the other `ranks` if there are any. If the
    weights are `sharded`, `module` is the sharded one."""

    module: TrainingModule
    optimizer: torch.optim.Optimizer
    runtime: Runtime
    seed: int
    max_grad_norm: float
    micro_tokens: int
    ranks: Ranks = SINGLE_PROCESS
    sharded: "ShardedModule | None" = None

    def __post_init__(self) -> None:
        sharded = self.sharded
        self.parameters = list(self.model.parameters() if sharded is None else sharded.parameters.values())
        self.gradients = GradientSums(self.ranks, [] if sharded else self.parameters, overlaps=True)
        self.should_stop: Callable[[], object] = lambda: False  # called between micro-batches: a step may take minutes
        # An objective must declare `is_capturable`; a model is capturable unless it declares otherwise.
        is_capturable = getattr(self.objective, "is_capturable", False) and getattr(self.model, "is_capturable", True)
        self.captured = CapturedSteps(self) if self.runtime.cuda_graphs and is_capturable else None

    @property
    def model(self) -> nn.Module:
        return self.module.model

    @property
    def objective(self) -> Objective:
        return self.module.objective

    @property
    def num_captured(self) -> int:
        return 0 if self.captured is None else len(self.captured.captured)

    def close(self) -> None:
        """Breaks the reference cycles of CUDA graphs and hooks, which would keep device memory allocated."""
        self.captured = None
        self.gradients.close()

    def train_step(self, batch: Batch, batch_number: int, lr: float) -> StepResult:
        """One update on a batch. If memory runs out, repeats the step with micro-batches of half the size."""
        # All ranks must stop at the same number of tokens, and their longest sequences differ.
        max_length = batch.max_length if self.ranks.size == 1 else 1
        with current_gpu(self.runtime.device):
            return self.retry_on_oom(max_length, lambda: self._train_step(batch, batch_number, lr))

    def retry_on_oom(self, max_length: int, compute: Callable[[], Result]) -> Result:
        """Returns `compute()`. Whenever memory runs out, halves `micro_tokens` (at least `max_length`) and retries."""
        while True:
            try:
                return compute()
            except (torch.OutOfMemoryError, RuntimeError) as error:
                if not is_out_of_memory(error) or self.micro_tokens <= max_length or self.sharded is not None:
                    raise
            self.micro_tokens = max(self.micro_tokens // 2, max_length)
            self.optimizer.zero_grad(set_to_none=True)
            gc.collect()
            if self.runtime.device.type == "cuda":
                torch.cuda.empty_cache()

    def _train_step(self, batch: Batch, batch_number: int, lr: float) -> StepResult:
        """With one process and one micro-batch, no more than this:

            step_inputs = objective.prepare(batch, seed)
            total_weights = step_inputs.total_weights()
            sums = module(step_inputs)
            loss = sum(weights[term] * sums[term] / total_weights[term] for term in sums)
            loss.backward()
            clip_grads_with_norm_(parameters, max_grad_norm, grad_norm())
            optimizer.step()

        Otherwise sums, total weights and gradients are those of all micro-batches and all ranks. A rank for whose part
        there are no sequences left computes one of padding, which counts nothing.
        """
        self.module.train()
        is_padding, num_tokens = batch.num_real_sequences == 0, batch.num_real_tokens
        batch = dataclasses.replace(batch, num_padding_sequences=0) if is_padding else batch
        step_inputs = self.objective.prepare(batch, seed_of(self.seed, batch_number, "draw"))
        if self.captured is not None and batch.num_tokens <= self.micro_tokens:
            (loss, norm, *losses), names = self.captured.train_step(step_inputs, batch_number, lr)
            return StepResult(dict(zip(names, losses, strict=True)), loss, norm, num_tokens)
        total_weights = step_inputs.total_weights()
        if self.ranks.size > 1:
            total_weights = self.ranks.all_reduce(
                {term: total * (not is_padding) for term, total in total_weights.items()}
            )
        total_weights = {term: torch.where(total > 0, total, 1.0) for term, total in total_weights.items()}
        micro_batches = self._share_vectors(step_inputs.split(self.micro_tokens), batch_number, is_padding)
        backward = partial(self._backward, micro_batches, total_weights, batch_number, is_padding)
        if self.sharded is None:
            terms = self.gradients.summed_after(backward)
        else:
            terms = backward()
            self.sharded.collect_gradients()
        terms = self.ranks.all_reduce(terms)
        norm = self.grad_norm()
        if self.max_grad_norm > 0:
            torch.nn.utils.clip_grads_with_norm_(self.parameters, self.max_grad_norm, norm)
        set_learning_rate(self.optimizer, lr)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        loss = sum(self.objective.weights[term] * terms[term] for term in terms)
        return StepResult(terms, loss, norm, num_tokens)

    def _backward(
        self, micro_batches: list[StepInputs], total_weights: dict[str, Tensor], batch_number: int, is_padding: bool
    ) -> dict[str, Tensor]:
        """Adds the gradients of all micro-batches to those of the parameters. Returns the mean loss of each term or,
        with several ranks, this rank's share of it. Padding (an empty part of a batch) adds nothing."""
        weights = self.objective.weights
        terms = dict.fromkeys(weights, 0.0)
        for i, micro_batch in enumerate(self._with_equal_numbers(micro_batches)):
            if i and self.ranks.size == 1 and self.should_stop():
                raise StepInterrupted
            self._seed_dropout(batch_number, i)
            with self.runtime.autocast():
                sums = self.module(self._bucketed(micro_batch))
            if is_padding or i >= len(micro_batches):
                sums = {term: value * 0.0 for term, value in sums.items()}
            loss = sum(weights[term] * sums[term] / total_weights[term] for term in weights)
            if i + 1 == len(micro_batches) and self.sharded is None:
                self.gradients.start(loss)
            loss.backward()
            terms = {term: terms[term] + sums[term].detach() / total_weights[term] for term in weights}
        return terms

    def _with_equal_numbers(self, micro_batches: list[StepInputs]) -> list[StepInputs]:
        """With sharded weights every rank must run equally many micro-batches, because each one gathers the weights of
        all ranks: shorter lists repeat their last micro-batch, which then does not count."""
        if self.sharded is None:
            return micro_batches
        return micro_batches + micro_batches[-1:] * (self.ranks.max(len(micro_batches)) - len(micro_batches))

    def _seed_dropout(self, batch_number: int, micro_batch: int) -> None:
        """Seeds dropout by (seed, batch number, micro-batch) and, except for the first rank, the rank."""
        rank = self.ranks.rank
        seed_generators(seed_of(self.seed, batch_number, micro_batch, "dropout", *((rank,) if rank else ())))

    @torch.no_grad()
    def _share_vectors(self, micro_batches: list[StepInputs], batch_number: int, is_padding: bool) -> list[StepInputs]:
        """Micro-batches of an objective that compares the whole batch, with the vectors of all of them, on all ranks.
        The second forward pass of a micro-batch has the same dropout as this one."""
        if not getattr(self.objective, "shares_vectors", False) or (len(micro_batches) == 1 and self.ranks.size == 1):
            return micro_batches

        def compute() -> Tensor:
            vectors = []
            for i, micro_batch in enumerate(self._with_equal_numbers(micro_batches)):
                self._seed_dropout(batch_number, i)
                with self.runtime.autocast():
                    vectors.append(self.module(self._bucketed(micro_batch), only_vectors=True)["vectors"])
            return torch.cat(vectors[: len(micro_batches)])

        # Without sharding, which communicates, all ranks learn whether one is out of memory.
        vectors = self.ranks.raise_oom_on_all(compute) if self.sharded is None else compute()
        own = micro_batches[0].shared | {"vectors": vectors}
        # Values of the whole step are in the order of the ranks; an empty part has none.
        shared = {name: self.ranks.all_gather(value[:0] if is_padding else value) for name, value in own.items()}
        return [dataclasses.replace(micro_batch, shared=shared) for micro_batch in micro_batches]

    def grad_norm(self) -> Tensor:
        if self.sharded is not None:
            return self.sharded.grad_norm()
        return torch.nn.utils.get_total_norm([p.grad for p in self.parameters if p.grad is not None])

    def _bucketed(self, step_inputs: StepInputs) -> StepInputs:
        """On CUDA, pads to a bucket so that compiled code sees few shapes."""
        return bucketed(step_inputs) if self.runtime.device.type == "cuda" else step_inputs


def make_stepper(
    module: TrainingModule,
    optimizer: torch.optim.Optimizer,
    settings: LoopSettings,
    runtime: Runtime,
    ranks: Ranks = SINGLE_PROCESS,
    sharded: "ShardedModule | None" = None,
) -> Stepper:
    """The stepper of a run, with activation checkpointing if the settings say so."""
    if settings.parallel.activation_checkpointing:
        from hornbook.train.parallel.sharding import checkpoint_activations

        runtime = checkpoint_activations(module.model, runtime)
    seed, max_grad_norm = settings.runtime.seed, settings.optimizer.max_grad_norm
    return Stepper(module, optimizer, runtime, seed, max_grad_norm, settings.batch.micro_tokens, ranks, sharded)


def bucketed(step_inputs: StepInputs, token_bucket: int = TOKEN_BUCKET, entry_bucket: int = ENTRY_BUCKET) -> StepInputs:
    """The step padded with extra tokens, sequences and targets of weight 0, which leave sums and gradients unchanged.
    Tokens are padded to a multiple of `token_bucket`, targets and other streams to a multiple of `entry_bucket`."""
    batch = step_inputs.batch
    num_tokens = round_up(batch.num_tokens, token_bucket)
    num_padding_sequences = round_up(-(-(num_tokens - batch.num_tokens) // batch.max_length), batch.group_size)
    sizes = {name: round_up(stream.num_entries, entry_bucket) for name, stream in batch.streams.items()}
    padded = batch.bucketed(num_tokens, batch.num_sequences + num_padding_sequences, sizes)
    return dataclasses.replace(step_inputs, batch=padded)
