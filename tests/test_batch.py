import itertools
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from hornbook.batch import Batch, Stream, concatenate, pack, stream_field, to_offsets

TENSORS = ("ids_T", "positions_T", "segments_T", "word_starts_T", "offsets", "labels_N")


@pytest.fixture
def batch(random) -> Batch:
    lengths = [5, 1, 7, 3]
    return pack(
        [random.integers(5, 100, length).astype(np.uint16) for length in lengths],
        [np.arange(length) // 4 for length in lengths],
        [random.random(length) < 0.5 for length in lengths],
        np.array([1, 0, 0, 1]),
        max_length=8,
    )


def test_pack_lays_sequences_end_to_end():
    batch = pack([np.array([5, 6, 7]), np.array([8]), np.array([9, 10])])
    assert batch.ids_T.tolist() == [5, 6, 7, 8, 9, 10] and batch.ids_T.dtype == torch.int64
    assert batch.positions_T.tolist() == [0, 1, 2, 0, 0, 1]
    assert batch.segments_T.tolist() == [0] * 6 and batch.word_starts_T.tolist() == [True] * 6
    assert batch.offsets.tolist() == [0, 3, 4, 6] and batch.offsets.dtype == torch.int32
    assert batch.offsets_host.tolist() == [0, 3, 4, 6] and batch.offsets_host.dtype == np.int64
    assert batch.max_length == 3 and batch.labels_N is None
    assert (batch.num_tokens, batch.num_sequences, batch.num_real_sequences, batch.num_real_tokens) == (6, 3, 3, 6)


def test_pack_takes_what_it_is_given(batch):
    assert batch.max_length == 8 and batch.labels_N.tolist() == [1, 0, 0, 1]
    assert batch.segments_T.tolist() == [0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0]
    types = [getattr(batch, name).dtype for name in TENSORS]
    assert types == [torch.int64, torch.int64, torch.int64, torch.bool, torch.int32, torch.int64]


def test_parts_are_batches_of_their_own(batch):
    part = batch.slice(1, 3)
    assert part.num_sequences == 2 and part.offsets_host.tolist() == part.offsets.tolist() == [0, 1, 8]
    assert part.offsets.dtype == torch.int32 and part.max_length == 8
    assert part.labels_N.tolist() == [0, 0] and part.positions_T.tolist() == [0, *range(7)]
    for name in ("ids_T", "positions_T", "segments_T", "word_starts_T"):
        joined = torch.cat([getattr(batch.slice(i, i + 1), name) for i in range(4)])
        assert joined.equal(getattr(batch, name))
    assert batch.offsets_host.tolist() == [0, 5, 6, 13, 16]  # unchanged
    assert pack([np.array([1])]).slice(0, 1).labels_N is None


def test_to_moves_every_tensor(batch):
    moved = batch.to(torch.device("meta"))
    assert all(getattr(moved, name).device.type == "meta" for name in TENSORS)
    assert np.array_equal(moved.offsets_host, batch.offsets_host) and moved.max_length == 8
    back = batch.to(torch.device("cpu"))
    assert all(getattr(back, name).equal(getattr(batch, name)) for name in TENSORS)


def test_bucketed_adds_dead_sequences(batch):
    filled = batch.bucketed(36, 8)
    assert (filled.num_tokens, filled.num_sequences) == (36, 8)
    assert (filled.num_padding_sequences, filled.num_real_sequences, filled.num_real_tokens) == (4, 4, 16)
    # 20 dead tokens in sequences of at most 8, and one left empty
    assert filled.offsets_host.tolist() == filled.offsets.tolist() == [0, 5, 6, 13, 16, 24, 32, 36, 36]
    assert filled.offsets.dtype == torch.int32 and filled.offsets_host.dtype == np.int64
    assert not filled.ids_T[16:].any() and not filled.segments_T[16:].any() and not filled.word_starts_T[16:].any()
    assert filled.labels_N.tolist() == [1, 0, 0, 1, 0, 0, 0, 0] and filled.max_length == 8
    for name in ("ids_T", "positions_T", "segments_T", "word_starts_T"):
        assert getattr(filled, name)[:16].equal(getattr(batch, name))
        assert getattr(filled, name).dtype == getattr(batch, name).dtype
    again = filled.bucketed(40, 10)
    assert again.num_padding_sequences == 6 and again.num_real_tokens == 16


def test_a_bucket_that_is_full_already(batch):
    filled = batch.bucketed(16, 4)
    assert filled.num_padding_sequences == 0 and all(
        getattr(filled, name).equal(getattr(batch, name)) for name in TENSORS
    )
    assert pack([np.array([1, 2])]).bucketed(4, 2).labels_N is None


def test_parts_of_a_bucketed_batch_know_their_dead(batch):
    filled = batch.bucketed(36, 8)
    assert [filled.slice(a, b).num_padding_sequences for a, b in ((0, 8), (0, 4), (2, 5), (5, 8))] == [4, 0, 1, 3]
    assert filled.slice(2, 5).num_real_tokens == 10


@pytest.mark.parametrize(("num_tokens", "num_sequences"), [(15, 8), (36, 3), (36, 4), (36, 6), (17, 4)])
def test_a_bucket_that_is_too_small(batch, num_tokens, num_sequences):
    with pytest.raises(ValueError, match="16 tokens in 4 sequences do not fit a bucket"):
        batch.bucketed(num_tokens, num_sequences)


def test_a_batch_knows_whether_its_sequences_are_of_one_length():
    chunks = pack([np.arange(4)] * 3)
    assert chunks.is_uniform and chunks.slice(1, 3).is_uniform and chunks.bucketed(12, 8).is_uniform
    assert not pack([np.arange(4), np.arange(3)]).is_uniform and not pack([np.arange(4)], max_length=5).is_uniform
    assert not chunks.bucketed(14, 8).is_uniform  # two dead tokens
    assert not chunks.with_values("tokens", offsets_host=np.zeros(4, np.int64)).is_uniform  # no sequence says nothing


@dataclass(frozen=True)
class Entities(Stream):
    """A made-up stream: entities, each at a token, with a vector."""

    ids_E: torch.Tensor
    indices_E: torch.Tensor = stream_field(index_into="tokens")
    vectors_EC: torch.Tensor = stream_field(padding=7)
    names_host: np.ndarray | None = None


@pytest.fixture
def with_entities(batch) -> Batch:
    """Two entities in the first sequence, none in the second, one in the third and the fourth."""
    offsets_host = to_offsets([2, 0, 1, 1])
    entities = Entities(
        torch.tensor([100, 101, 102, 103]),
        torch.tensor([1, 4, 8, 15]),
        torch.arange(8.0).reshape(4, 2),
        np.array(["a", "b", "c", "d"]),
        offsets_host=offsets_host,
        offsets=torch.from_numpy(offsets_host).int(),
    )
    return batch.with_streams({"entities": entities})


def same(one: Batch, two: Batch) -> bool:
    assert one.streams.keys() == two.streams.keys()
    for name, stream in one.streams.items():
        other = two.streams[name]
        assert type(stream) is type(other) and stream.values.keys() == other.values.keys()
        for field, value in stream.values.items():
            assert np.array_equal(value, other.values[field]) and value.dtype == other.values[field].dtype, (
                name,
                field,
            )
        assert np.array_equal(stream.offsets_host, other.offsets_host)
        assert stream.offsets is other.offsets is None or stream.offsets.equal(other.offsets)
    return True


def test_a_stream_is_sliced_with_the_batch(with_entities):
    part = with_entities.slice(2, 4)
    entities = part.streams["entities"]
    assert entities.ids_E.tolist() == [102, 103] and entities.names_host.tolist() == ["c", "d"]
    assert entities.indices_E.tolist() == [2, 9]  # sequence 2 starts at token 6
    assert part.ids_T[entities.indices_E].equal(with_entities.ids_T[torch.tensor([8, 15])])
    assert entities.offsets_host.tolist() == entities.offsets.tolist() == [0, 1, 2]


@pytest.mark.parametrize("cuts", [(0, 4), (0, 1, 4), (0, 1, 2, 3, 4)])
def test_concatenated_slices_are_the_batch(cuts, with_entities):
    numbered = with_entities.with_values("sequences", dataset_index_host=np.array([9, 8, 7, 6]))
    for whole in (with_entities, numbered, pack([np.arange(3)] * 4)):
        assert same(concatenate([whole.slice(a, b) for a, b in itertools.pairwise(cuts)]), whole)


def test_a_stream_is_padded_and_moved_with_the_batch(with_entities):
    filled = with_entities.bucketed(36, 8, {"entities": 6})
    entities = filled.streams["entities"]
    assert entities.ids_E.tolist() == [100, 101, 102, 103, 0, 0] and entities.vectors_EC[4:].eq(7).all()
    assert entities.offsets.tolist() == entities.offsets_host.tolist() == [0, 2, 2, 3, 4, 6, 6, 6, 6]
    assert same(filled.slice(0, 4), with_entities)
    assert with_entities.bucketed(36, 8).streams["entities"].num_entries == 4
    with pytest.raises(ValueError, match="4 entries do not fit a bucket of 3"):
        with_entities.bucketed(36, 8, {"entities": 3})
    moved = with_entities.to(torch.device("meta")).streams["entities"]
    assert moved.vectors_EC.device.type == moved.offsets.device.type == "meta" and moved.names_host is not None
