"""The buckets of captured steps: by the step alone, never longer than the model takes, few, wholly filled; and what is
held off while a step is captured."""

import dataclasses
import gc

import numpy as np
import pytest
import torch

from hornbook.batch import pack
from hornbook.models.head_config import HeadConfig
from hornbook.objectives.clm import ClmObjective
from hornbook.tasks.objective import TaskObjective
from hornbook.train.cuda_graphs import _copy_into, _no_garbage_collection, bucket_for, offsets_host, padded_to_bucket
from hornbook.train.objective import StepInputs


def drawn_of(lengths: list[int], group_size: int = 1) -> StepInputs:
    batch = pack(
        [np.ones(length, int) for length in lengths], labels=np.zeros(len(lengths), int), group_size=group_size
    )
    return TaskObjective(HeadConfig("choice" if group_size > 1 else "sequence", 2)).prepare(batch, 0)


def next_tokens_of(lengths: list[int]) -> StepInputs:
    ids = [np.ones(length + 1, int) for length in lengths]
    batch = pack([each[:-1] for each in ids], token_labels=[each[1:] for each in ids])
    return ClmObjective().prepare(batch, 0)


@pytest.mark.parametrize("max_positions", [40, 128, 300, 512])
def test_never_longer_than_the_model_takes(max_positions):
    assert bucket_for(drawn_of([30, 12, max_positions]), max_positions).max_length == min(
        max_positions, max(128, 1 << (max_positions - 1).bit_length())
    )


@pytest.mark.parametrize("group_size", [1, 2, 4])
def test_dead_sequences_take_up_every_dead_token(group_size):
    random = np.random.default_rng(0)
    for _ in range(200):
        lengths = random.integers(1, 100, group_size * random.integers(1, 20)).tolist()
        step_inputs = drawn_of(lengths, group_size)
        bucket = bucket_for(step_inputs, 128)
        assert bucket.tokens >= sum(lengths) and bucket.sequences >= len(lengths)
        assert bucket.sequences % group_size == 0
        assert (bucket.sequences - len(lengths)) * bucket.max_length >= bucket.tokens - sum(lengths)
        assert bucket.tokens - sum(lengths) <= max(128, 0.08 * sum(lengths) + 128)


def test_few_buckets_serve_a_run():
    random = np.random.default_rng(1)
    buckets = {bucket_for(drawn_of(random.integers(20, 90, 32).tolist()), 512) for _ in range(300)}
    assert len(buckets) <= 10


def test_a_filled_bucket_holds_the_step():
    """As `bucketed` pads it, also when the buffers held a larger step before; padding tokens may be anything."""
    shared = {"candidates": torch.arange(3)}
    larger, smaller = (StepInputs(drawn_of(each).batch, shared) for each in ([50, 60, 9, 4], [50, 11, 40]))
    bucket = bucket_for(larger, 128)
    assert bucket == bucket_for(smaller, 128) != bucket_for(StepInputs(larger.batch), 128)
    buffers = padded_to_bucket(larger, bucket)
    _copy_into(smaller, buffers, bucket)
    batch = dataclasses.replace(smaller.batch, max_length=bucket.max_length)
    padded = batch.bucketed(bucket.tokens, bucket.sequences, dict(bucket.entries))
    assert buffers.batch.offsets.equal(padded.offsets) and buffers.batch.num_tokens == 128
    assert buffers.batch.ids_T[:101].equal(padded.ids_T[:101]) and buffers.batch.max_length == 128
    assert buffers.targets["task"].indices_K[:3].tolist() == [0, 50, 61]
    assert buffers.targets["task"].weights_K.equal(padded.streams["task"].weights_K)
    assert buffers.shared["candidates"].tolist() == [0, 1, 2]


def test_few_buckets_serve_documents():
    """Chunks of a fixed length, in which documents end here and there."""
    random = np.random.default_rng(2)
    buckets = set()
    for _ in range(100):
        rows = [
            np.diff([0, *sorted(random.choice(np.arange(1, 256), random.poisson(2), False)), 256]) for _ in range(64)
        ]
        batch = pack([np.ones(length, int) for row in rows for length in row], max_length=256)
        buckets.add(bucket_for(ClmObjective().prepare(batch, 0), 256))
    assert len(buckets) <= 8


def test_even_batches_have_buckets_of_their_own():
    even, uneven = (bucket_for(drawn_of(lengths), 128) for lengths in ([128] * 8, [128] * 7 + [100, 28]))
    assert even.is_uniform and not uneven.is_uniform
    assert not bucket_for(drawn_of([100] * 8), 128).is_uniform  # would be laid out as 128
    assert even.tokens == 1024 and dict(bucket_for(next_tokens_of([128] * 33), 128).entries)["clm"] == 33 * 128


def test_rooms_know_whether_they_are_even():
    even, uneven = (bucket_for(drawn_of(lengths), 128) for lengths in ([128] * 5, [128] * 4 + [100, 28]))
    assert np.diff(offsets_host(even)).tolist() == [128] * 5 + [0] * 3
    assert not offsets_host(uneven).any()


@pytest.mark.parametrize("was_on", [True, False])
def test_nothing_is_collected_while_a_step_is_captured(was_on):
    """What an earlier stage left behind would be destroyed on the device in the middle of a capture."""
    before = gc.isenabled()
    try:
        (gc.enable if was_on else gc.disable)()
        with pytest.raises(RuntimeError), _no_garbage_collection():
            assert not gc.isenabled()
            raise RuntimeError
        assert gc.isenabled() == was_on
    finally:
        (gc.enable if before else gc.disable)()
