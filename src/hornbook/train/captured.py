"""Whole steps captured as CUDA graphs, a few buckets of shapes for a whole run.

A small batch keeps a large GPU waiting for the host: launching the kernels of a step takes several times as long as
running them. A captured step is launched at once. Its shapes are fixed, so a batch is laid into the smallest bucket
that holds it, with dead tokens, dead sequences and targets of weight 0 behind it.

What an objective draws it draws before the captured part, which reads it from where it was laid. Dropout is drawn
inside: each replay reads the seed that was set before it.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hornbook.batch import Batch
from hornbook.devices import warm_up_on_side_stream
from hornbook.train.objective import StepInputs, Targets
from hornbook.train.optimizer import set_rate
from hornbook.train.randomness import seed_of

TOKEN_BUCKET, SEQUENCE_BUCKET, SHORTEST = 128, 8, 128
NUM_WARM_UPS = 2  # before a capture
GROWTH = 1.08  # each bucket holds about so much more than the one before: few buckets, little that is dead


@dataclass(frozen=True)
class Bucket:
    """Room for so many tokens in so many sequences of at most `longest`, and for so many targets."""

    tokens: int
    sequences: int
    longest: int
    is_even: bool  # all sequences are of length `longest`, and no token is dead
    targets: tuple[tuple[str, int], ...]  # of each term


@dataclass(frozen=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    step_inputs: StepInputs  # lies where the graph reads
    numbers: Tensor  # the loss, the gradient's norm, then the terms


def bucket_for(step_inputs: StepInputs, max_positions: int) -> Bucket:
    """The smallest bucket for this step, by the step alone: after a resume it is the same, and so is its dropout."""
    batch = step_inputs.batch
    together = batch.group_size
    longest = min(max_positions, max(SHORTEST, 1 << (batch.longest - 1).bit_length()))
    # No more than all sequences at their longest, which a batch of full ones is.
    tokens = min(_bucket_size(batch.num_tokens), _round_up(batch.num_sequences * longest, TOKEN_BUCKET))
    # Dead sequences take up all that is left: a token outside any sequence would hold no number at all.
    num_padding_sequences = -(-(tokens - batch.num_tokens) // longest)
    # Where the number of sequences differs from batch to batch, as of documents in a chunk, it is rounded too.
    least = batch.num_sequences + num_padding_sequences
    sequences = _round_up(_round_up(least, max(SEQUENCE_BUCKET, (1 << least.bit_length()) >> 4)), together)
    is_even = batch.is_even and batch.longest == longest and batch.num_tokens == tokens
    targets = tuple(
        (term, _target_bucket_size(len(each.values_K), tokens)) for term, each in step_inputs.targets.items()
    )
    return Bucket(tokens, sequences, longest, is_even, targets)


def _bucket_size(number: int) -> int:
    """The smallest of a few sizes that holds so many."""
    size = TOKEN_BUCKET
    while size < number:
        size = _round_up(int(size * GROWTH), TOKEN_BUCKET)
    return size


def _target_bucket_size(number: int, tokens: int) -> int:
    """No more than one for each token, where a step has no more."""
    return min(_bucket_size(number), tokens) if number <= tokens else _bucket_size(number)


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


class CapturedSteps:
    """Takes the steps of a `Stepper` that fit in one part."""

    def __init__(self, stepper):
        self.stepper = stepper
        self.captured: dict[Bucket, _Captured] = {}
        self.pool = None

    def take(self, step_inputs: StepInputs, number: int, lr: float) -> tuple[Tensor, list[str]]:
        """One update; the loss, the gradient's norm and the terms as one tensor, and the terms' names."""
        if not self.captured:
            self._prepare_optimizer()
        bucket = bucket_for(step_inputs, self.stepper.model.config.max_positions)
        if bucket not in self.captured:
            self.captured[bucket] = self._capture(padded_to_bucket(step_inputs, bucket))
        captured = self.captured[bucket]
        _copy_into(step_inputs, captured.step_inputs, bucket)
        set_rate(self.stepper.optimizer, lr)
        torch.manual_seed(seed_of(self.stepper.seed, number, 0, "dropout"))
        captured.graph.replay()
        return captured.numbers.clone(), list(self.stepper.objective.weights)

    def _prepare_optimizer(self) -> None:
        """The rate lies on the device, where a captured step reads it."""
        for group in self.stepper.optimizer.param_groups:
            group["capturable"] = True
            group["lr"] = torch.zeros((), device=self.stepper.runtime.device)

    def _capture(self, step_inputs: StepInputs) -> _Captured:
        stepper = self.stepper
        stepper.model.train()
        with warm_up_on_side_stream():  # loads, and compiles, every kernel of these shapes; changes no weight
            for _ in range(NUM_WARM_UPS):
                self._loss(step_inputs)[0].backward()
                stepper.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with _no_garbage_collection(), torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
            loss, terms = self._loss(step_inputs)
            loss.backward()
            norm = self._update()
            numbers = torch.stack([loss.detach(), norm, *terms]).float()
        stepper.optimizer.zero_grad(set_to_none=True)
        self.pool = self.pool or graph.pool()
        return _Captured(graph, step_inputs, numbers)

    def _update(self) -> Tensor:
        """Clips and updates. The optimizer's kernel divides the gradient as it reads it, which saves a pass over it."""
        stepper = self.stepper
        norm = stepper.grad_norm()
        if stepper.clip > 0:
            stepper.optimizer.grad_scale = (norm / stepper.clip).clamp(min=1)
        stepper.optimizer.step()
        stepper.optimizer.grad_scale = None
        return norm

    def _loss(self, step_inputs: StepInputs) -> tuple[Tensor, list[Tensor]]:
        stepper = self.stepper
        weights = stepper.objective.weights
        counts = {term: torch.where(count > 0, count, 1.0) for term, count in step_inputs.counts().items()}
        with stepper.runtime.autocast():
            sums = stepper.objective.sums(stepper.model, step_inputs)
        terms = {term: sums[term] / counts[term] for term in weights}
        return sum(weights[term] * terms[term] for term in weights), [each.detach() for each in terms.values()]


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Graphs of an earlier stage of the run may lie about; a capture in which one is destroyed may be lost."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def padded_to_bucket(step_inputs: StepInputs, bucket: Bucket) -> StepInputs:
    """The step in a bucket: tensors of the bucket's size that nothing else uses."""
    batch = step_inputs.batch
    device = batch.ids_T.device

    def buffer(tensor: Tensor | None, size: int) -> Tensor | None:
        return None if tensor is None else torch.zeros((size, *tensor.shape[1:]), dtype=tensor.dtype, device=device)

    buffers_batch = Batch(
        ids_T=buffer(batch.ids_T, bucket.tokens),
        positions_T=buffer(batch.positions_T, bucket.tokens),
        segments_T=buffer(batch.segments_T, bucket.tokens),
        word_starts_T=buffer(batch.word_starts_T, bucket.tokens),
        starts=buffer(batch.starts, bucket.sequences + 1),
        starts_host=starts_host(bucket),
        longest=bucket.longest,
        group_size=batch.group_size,
    )
    targets = {
        term: Targets(
            buffer(step_inputs.targets[term].positions_K, size),
            buffer(step_inputs.targets[term].values_K, size),
            buffer(step_inputs.targets[term].weights_K, size),
            np.zeros(bucket.sequences + 1, np.int64),
        )
        for term, size in bucket.targets
    }
    buffers = StepInputs(buffers_batch, targets)
    _copy_into(step_inputs, buffers, bucket)
    return buffers


def starts_host(bucket: Bucket) -> np.ndarray:
    """A captured step reads offsets on the device, and of those on the host only whether all lengths are the same."""
    if not bucket.is_even:
        return np.zeros(bucket.sequences + 1, np.int64)
    return np.minimum(bucket.longest * np.arange(bucket.sequences + 1), bucket.tokens)


def _copy_into(step_inputs: StepInputs, into: StepInputs, bucket: Bucket) -> None:
    """Copies a step over the last one. Dead tokens keep what lies there: they enter no loss."""
    batch, buffer = step_inputs.batch, into.batch
    for name in ("ids_T", "positions_T", "segments_T"):
        getattr(buffer, name)[: batch.num_tokens].copy_(getattr(batch, name), non_blocking=True)
    num_padding_sequences = bucket.sequences - batch.num_sequences
    ends = np.minimum(batch.num_tokens + bucket.longest * np.arange(1, num_padding_sequences + 1), bucket.tokens)
    starts = np.concatenate([batch.starts_host, ends]).astype(np.int32)
    buffer.starts.copy_(torch.from_numpy(starts).pin_memory(), non_blocking=True)
    for term, targets in step_inputs.targets.items():
        there = into.targets[term]
        there.positions_K[: len(targets.positions_K)].copy_(targets.positions_K, non_blocking=True)
        there.values_K[: len(targets.values_K)].copy_(targets.values_K, non_blocking=True)
        there.weights_K.zero_()
        there.weights_K[: len(targets.weights_K)].copy_(targets.weights_K, non_blocking=True)
