"""Whole training steps captured as CUDA graphs, one graph per bucket of shapes.

With small batches a large GPU waits for the host: launching the kernels of a step takes several times as long as
running them. A captured step is a single launch. Its shapes are fixed, so each batch is copied into the smallest bucket
that holds it, followed by padding tokens, padding sequences and targets of weight 0.

An objective samples its targets before the captured part, which reads them from fixed buffers. Dropout is sampled
inside the graph: each replay reads the seed that was set before it.
"""

import dataclasses
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hornbook.batch import SEQUENCES, TOKENS, Batch, to_device
from hornbook.devices import warm_up_on_side_stream
from hornbook.train.objective import StepInputs
from hornbook.train.optimizer import set_learning_rate
from hornbook.train.randomness import seed_generators, seed_of

CAPTURE_TOKEN_BUCKET, SEQUENCE_BUCKET, SHORTEST = 128, 8, 128
NUM_WARM_UPS = 2  # before a capture
GROWTH = 1.08  # ratio of consecutive bucket sizes: a compromise between few buckets and little padding


@dataclass(frozen=True)
class Bucket:
    """The shapes of a captured step."""

    tokens: int
    sequences: int
    max_length: int  # upper bound on the sequence lengths
    is_uniform: bool  # all sequences have length `max_length`, and there are no padding tokens
    entries: tuple[tuple[str, int], ...]  # (stream, number of entries)
    num_causal: int | None  # as in `Batch`
    shared: tuple[tuple[str, torch.Size], ...]  # (name, shape) of the values shared by the whole step


@dataclass(frozen=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    step_inputs: StepInputs  # the buffers that the graph reads
    losses: Tensor  # the loss, the gradient norm, then the terms


def bucket_for(step_inputs: StepInputs, max_positions: int) -> Bucket:
    """The smallest bucket for this step. A resumed run uses the same buckets, and therefore the same dropout."""
    batch = step_inputs.batch
    max_length = min(max_positions, max(SHORTEST, 1 << (batch.max_length - 1).bit_length()))
    # At most all sequences at full length, so that a batch of full sequences needs no padding.
    tokens = min(_bucket_size(batch.num_tokens), round_up(batch.num_sequences * max_length, CAPTURE_TOKEN_BUCKET))
    # Padding sequences cover all padding tokens: attention leaves tokens outside any sequence uninitialised.
    num_padding_sequences = -(-(tokens - batch.num_tokens) // max_length)
    # The number of sequences may vary between batches (documents in a chunk), so it is rounded up too.
    min_sequences = batch.num_sequences + num_padding_sequences
    multiple = max(SEQUENCE_BUCKET, (1 << min_sequences.bit_length()) >> 4)
    sequences = round_up(round_up(min_sequences, multiple), batch.group_size)
    is_uniform = batch.is_uniform and batch.max_length == max_length and batch.num_tokens == tokens
    entries = {name: _entry_bucket_size(stream.num_entries, tokens) for name, stream in batch.streams.items()}
    entries |= {TOKENS: tokens, SEQUENCES: sequences}
    shared = tuple((name, value.shape) for name, value in step_inputs.shared.items())
    return Bucket(tokens, sequences, max_length, is_uniform, tuple(entries.items()), batch.num_causal, shared)


def _bucket_size(number: int) -> int:
    """The smallest bucket size of at least `number`."""
    size = CAPTURE_TOKEN_BUCKET
    while size < number:
        size = round_up(int(size * GROWTH), CAPTURE_TOKEN_BUCKET)
    return size


def _entry_bucket_size(number: int, tokens: int) -> int:
    """As `_bucket_size`, but at most one entry per token if the step itself has no more."""
    return min(_bucket_size(number), tokens) if number <= tokens else _bucket_size(number)


def round_up(number: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is at least `number`."""
    return -(-number // multiple) * multiple


class CapturedSteps:
    """Runs the steps of a `Stepper` that fit into one micro-batch."""

    def __init__(self, stepper):
        self.stepper = stepper
        self.captured: dict[Bucket, _Captured] = {}
        self.pool = None

    def train_step(self, step_inputs: StepInputs, batch_number: int, lr: float) -> tuple[Tensor, list[str]]:
        """One update. Returns a tensor of the loss, the gradient norm and the terms, and the names of the terms."""
        if not self.captured:
            self._prepare_optimizer()
        bucket = bucket_for(step_inputs, self.stepper.model.config.max_positions)
        if bucket not in self.captured:
            self.captured[bucket] = self._capture(padded_to_bucket(step_inputs, bucket))
        captured = self.captured[bucket]
        _copy_into(step_inputs, captured.step_inputs, bucket)
        set_learning_rate(self.stepper.optimizer, lr)
        seed_generators(seed_of(self.stepper.seed, batch_number, 0, "dropout"))
        captured.graph.replay()
        return captured.losses.clone(), list(self.stepper.objective.weights)

    def _prepare_optimizer(self) -> None:
        """Puts the learning rate into a device tensor, which the captured step reads."""
        for group in self.stepper.optimizer.param_groups:
            group["capturable"] = True
            group["lr"] = torch.zeros((), device=self.stepper.runtime.device)

    def _capture(self, step_inputs: StepInputs) -> _Captured:
        stepper = self.stepper
        stepper.module.train()
        with warm_up_on_side_stream():  # loads and compiles every kernel for these shapes; changes no weights
            for _ in range(NUM_WARM_UPS):
                self._loss(step_inputs)[0].backward()
                stepper.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with _no_garbage_collection(), torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
            loss, terms = self._loss(step_inputs)
            loss.backward()
            norm = self._update()
            losses = torch.stack([loss.detach(), norm, *terms]).float()
        stepper.optimizer.zero_grad(set_to_none=True)
        self.pool = self.pool or graph.pool()
        return _Captured(graph, step_inputs, losses)

    def _update(self) -> Tensor:
        """Clips and updates. The optimizer's kernel scales the gradient as it reads it, which saves a pass over it."""
        stepper = self.stepper
        norm = stepper.grad_norm()
        if stepper.max_grad_norm > 0:
            stepper.optimizer.grad_scale = (norm / stepper.max_grad_norm).clamp(min=1)
        stepper.optimizer.step()
        stepper.optimizer.grad_scale = None
        return norm

    def _loss(self, step_inputs: StepInputs) -> tuple[Tensor, list[Tensor]]:
        stepper = self.stepper
        weights = stepper.objective.weights
        total_weights = {
            term: torch.where(total > 0, total, 1.0) for term, total in step_inputs.total_weights().items()
        }
        with stepper.runtime.autocast():
            sums = stepper.module(step_inputs)
        terms = {term: sums[term] / total_weights[term] for term in weights}
        return sum(weights[term] * terms[term] for term in weights), [each.detach() for each in terms.values()]


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Disables garbage collection: destroying a graph of an earlier stage during a capture may invalidate it."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def padded_to_bucket(step_inputs: StepInputs, bucket: Bucket) -> StepInputs:
    """The step copied into new buffers of the bucket's size, without values on the host, which a graph cannot read."""
    batch = dataclasses.replace(step_inputs.batch, max_length=bucket.max_length)
    sizes, streams = dict(bucket.entries), {}
    for name, stream in batch.streams.items():
        padded = stream.padded(sizes[name], bucket.sequences, batch.max_lengths.get(name))
        on_host = [field for field, value in stream.values.items() if not isinstance(value, Tensor)]
        zeros = np.zeros(bucket.sequences + 1, np.int64)
        streams[name] = dataclasses.replace(padded, **dict.fromkeys(on_host), offsets_host=zeros)
    streams[TOKENS] = dataclasses.replace(streams[TOKENS], offsets_host=offsets_host(bucket))
    buffers = Batch(streams, bucket.max_length, batch.group_size, num_causal=bucket.num_causal)
    return StepInputs(buffers, {name: value.clone() for name, value in step_inputs.shared.items()})


def offsets_host(bucket: Bucket) -> np.ndarray:
    """Host offsets of a bucket's buffers. A captured step reads the offsets from the device, and uses those of the host
    only to tell whether all lengths are equal."""
    if not bucket.is_uniform:
        return np.zeros(bucket.sequences + 1, np.int64)
    return np.minimum(bucket.max_length * np.arange(bucket.sequences + 1), bucket.tokens)


def _copy_into(step_inputs: StepInputs, buffers: StepInputs, bucket: Bucket) -> None:
    """Copies a step into the buffers. Padding entries keep their previous values, as they enter no loss, unless their
    field has a `padding` value, as the weights of targets do."""
    sizes = dict(bucket.entries)
    for name, buffer_stream in buffers.batch.streams.items():
        stream = step_inputs.batch.streams[name]
        for field_name, buffer in buffer_stream.values.items():
            value = stream.values[field_name]
            if (padding := stream.padding_of(field_name)) is not None:
                buffer[len(value) :].fill_(padding)
            buffer[: len(value)].copy_(value, non_blocking=True)
        if buffer_stream.offsets is not None:
            ends = stream.padding_ends(sizes[name], bucket.sequences, buffers.batch.max_lengths.get(name))
            offsets = np.concatenate([stream.offsets_host, ends]).astype(np.int32)
            buffer_stream.offsets.copy_(to_device(offsets, buffer_stream.offsets.device), non_blocking=True)
    for name, buffer in buffers.shared.items():
        buffer.copy_(step_inputs.shared[name], non_blocking=True)
