"""The packed batch: named ragged streams (tokens, values per sequence, anything else), concatenated without padding.

Shapes: T tokens, N sequences, K entries of any stream.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

Values = Tensor | np.ndarray
TOKENS, SEQUENCES = "tokens", "sequences"  # the streams of every packed batch
ENTITIES = "entities"  # the stream of a batch whose texts are linked to a graph


def stream_field(padding: float | None = None, index_into: str | None = None, **default: Any) -> Any:
    """A field of a stream, if it needs more than a type: `padding` is the value of padding entries, where it matters
    (otherwise they may have any value), and `index_into` names the stream that the values are indices into."""
    return field(metadata={"padding": padding, "index_into": index_into}, **default)


@dataclass(frozen=True, kw_only=True)
class Stream:
    """The entries of N sequences, concatenated: those of sequence i are `offsets_host[i]` to `offsets_host[i + 1]`.

    A subclass is a frozen dataclass whose fields hold one value or row per entry: tensors, which move to the device,
    or arrays, which stay on the host; None if absent. The offsets are kept on the host so that computing a size never
    synchronises with the device, and on the device too (`offsets`) if kernels read them.
    """

    offsets_host: np.ndarray  # int64, N + 1
    offsets: Tensor | None = None  # int32, N + 1

    @property
    def values(self) -> dict[str, Values]:
        """The values that are present, by the name of their field."""
        return {name: value for name in _fields(type(self)) if (value := getattr(self, name)) is not None}

    @property
    def num_entries(self) -> int:
        return len(next(iter(self.values.values()))) if self.values else int(self.offsets_host[-1])

    def padding_of(self, name: str) -> float | None:
        """The value of padding entries, or None if any value will do."""
        return _fields(type(self))[name].get("padding")

    def map_tensors(self, function: Callable[[Tensor], Tensor]) -> Self:
        tensors = self.values | {"offsets": self.offsets}
        return dataclasses.replace(
            self, **{name: function(value) for name, value in tensors.items() if isinstance(value, Tensor)}
        )

    def slice(self, first: int, last: int, origins: Mapping[str, int]) -> Self:
        """The entries of sequences `first` to `last` (exclusive); `origins` holds each stream's first entry there."""
        start, stop = int(self.offsets_host[first]), int(self.offsets_host[last])
        values = {name: value[start:stop] for name, value in self.values.items()}
        return dataclasses.replace(
            self,
            **values | {name: values[name] - origins[other] for name, other in self._indices().items()},
            offsets_host=self.offsets_host[first : last + 1] - start,
            offsets=None if self.offsets is None else self.offsets[first : last + 1] - start,
        )

    def padded(self, num_entries: int, num_sequences: int, max_length: int | None = None) -> Self:
        """Followed by padding, to exactly `num_entries` entries and `num_sequences` sequences. A padding sequence has
        at most `max_length` entries; by default the first one has all."""
        num_padding = num_entries - self.num_entries
        if num_padding < 0:
            raise ValueError(f"{self.num_entries} entries do not fit a bucket of {num_entries}")
        ends = self.padding_ends(num_entries, num_sequences, max_length)
        values = {
            name: _concatenate([value, _full(value, num_padding, self.padding_of(name) or 0)])
            for name, value in self.values.items()
        }
        offsets = self.offsets
        if offsets is not None:
            offsets = torch.cat([offsets, to_device(ends.astype(np.int32), offsets.device)])
        offsets_host = np.concatenate([self.offsets_host, ends])
        return dataclasses.replace(self, **values, offsets_host=offsets_host, offsets=offsets)

    def padding_ends(self, num_entries: int, num_sequences: int, max_length: int | None = None) -> np.ndarray:
        """The offset of the end of each padding sequence in a bucket of this size, int64."""
        indices = np.arange(1, num_sequences + 2 - len(self.offsets_host))
        return np.minimum(self.num_entries + (max_length or num_entries) * indices, num_entries)

    @classmethod
    def concatenated(cls, streams: Sequence[Self], origins: Sequence[Mapping[str, int]]) -> Self:
        """The streams of several batches as one; `origins` holds, for each batch, the number of entries before it in
        each stream. All have the same values."""
        first = streams[0]
        starts = to_offsets([stream.num_entries for stream in streams])
        shifted = [stream.offsets_host[:-1] + start for stream, start in zip(streams, starts, strict=False)]
        offsets_host = np.concatenate([*shifted, starts[-1:]])
        values = {name: [stream.values[name] for stream in streams] for name in first.values}
        for name, other in first._indices().items():
            values[name] = [indices + origin[other] for indices, origin in zip(values[name], origins, strict=True)]
        return dataclasses.replace(
            first,
            **{name: _concatenate(parts) for name, parts in values.items()},
            offsets_host=offsets_host,
            offsets=None if first.offsets is None else to_device(offsets_host.astype(np.int32), first.offsets.device),
        )

    def _indices(self) -> dict[str, str]:
        """The present values that are indices, each with the name of the stream that it points into."""
        fields = _fields(type(self))
        return {name: stream for name in self.values if (stream := fields[name].get("index_into"))}


@cache
def _fields(stream: type[Stream]) -> dict[str, Mapping[str, Any]]:
    """The fields of a kind of stream that hold values, with the arguments of `stream_field`."""
    fields = {field.name: field.metadata for field in dataclasses.fields(stream)}
    return {name: metadata for name, metadata in fields.items() if name not in ("offsets_host", "offsets")}


@dataclass(frozen=True)
class Tokens(Stream):
    ids_T: Tensor  # int64
    positions_T: Tensor  # int64, counted from 0 in each sequence
    segments_T: Tensor  # int64, 0 or 1
    word_starts_T: Tensor  # bool, True at the first token of a word
    labels_T: Tensor | None = stream_field(padding=-1, default=None)  # int64, token labels of a task; -1 is ignored


@dataclass(frozen=True)
class Sequences(Stream):
    """One entry per sequence."""

    labels_N: Tensor | None = None  # labels of a task: a class, a number, or a row of them per sequence
    dataset_index_host: np.ndarray | None = None  # int64: index of each sequence in the training set, where needed
    step_index_host: np.ndarray | None = None  # int64: index in the step's batch, which keys random numbers


@dataclass(frozen=True)
class Entities(Stream):
    """The entities that the sequences mention, each aligned to the first token of its mention; a token has at most one.
    Training samples entities on the host, so the host has their ids and positions too.

    Shapes: E entities.
    """

    ids_E: Tensor  # int64, ids of entities in the graph
    indices_E: Tensor = stream_field(index_into=TOKENS)  # int64, indices into the packed tokens, ascending
    ids_host: np.ndarray  # int64
    positions_host: np.ndarray  # int64, positions in the sequence

    @classmethod
    def from_sequences(cls, token_offsets: np.ndarray, entities: Sequence[tuple[np.ndarray, np.ndarray]]) -> Self:
        """From the (positions, ids) of the entities of each sequence; `token_offsets` are the offsets of the
        sequences."""
        counts = [len(positions) for positions, _ in entities]
        empty = (np.zeros(0, np.int64),) * 2
        positions, ids = (np.concatenate(arrays).astype(np.int64) for arrays in zip(empty, *entities, strict=True))
        tokens = positions + np.repeat(token_offsets[: len(counts)], counts)
        return cls.from_arrays(tokens, positions, ids, to_offsets(counts))

    @classmethod
    def from_arrays(cls, tokens: np.ndarray, positions: np.ndarray, ids: np.ndarray, offsets_host: np.ndarray) -> Self:
        offsets = torch.from_numpy(offsets_host.astype(np.int32))
        return cls(
            torch.from_numpy(ids), torch.from_numpy(tokens), ids, positions, offsets_host=offsets_host, offsets=offsets
        )


@dataclass(frozen=True)
class Batch:
    """N packed sequences, as streams by name; the streams have the same sequences. `Tokens` is always there, and its
    values and offsets are attributes of the batch too, as are those of `Sequences`.

    The last `num_padding_sequences` sequences only fill a bucket (see `bucketed`); their entries enter no loss and no
    count.
    """

    streams: dict[str, Stream]
    max_length: int  # upper bound on the tokens per sequence
    group_size: int = 1  # consecutive sequences that are classified together, such as the choices of one question
    num_padding_sequences: int = 0  # sequences at the end that only fill a bucket
    run_fraction: float = 1.0  # fraction of the run's steps that are done, for what depends on it; 1 in validation
    # Number of tokens at the start, whole sequences, that attend to the left only; all others attend to both sides,
    # whatever the model's direction. None: the model's direction for all.
    num_causal: int | None = None

    @property
    def tokens(self) -> Tokens:
        return self.streams[TOKENS]

    @property
    def ids_T(self) -> Tensor:
        return self.tokens.ids_T

    @property
    def positions_T(self) -> Tensor:
        return self.tokens.positions_T

    @property
    def segments_T(self) -> Tensor:
        return self.tokens.segments_T

    @property
    def word_starts_T(self) -> Tensor:
        return self.tokens.word_starts_T

    @property
    def labels_T(self) -> Tensor | None:
        return self.tokens.labels_T

    @property
    def entities(self) -> Entities | None:
        """The entities that the texts mention; None if the texts are not linked to a graph."""
        return self.streams.get(ENTITIES)

    @property
    def offsets(self) -> Tensor:
        return self.tokens.offsets

    @property
    def offsets_host(self) -> np.ndarray:
        return self.tokens.offsets_host

    @property
    def labels_N(self) -> Tensor | None:
        return self.streams[SEQUENCES].labels_N

    @property
    def dataset_index_host(self) -> np.ndarray | None:
        return self.streams[SEQUENCES].dataset_index_host

    @property
    def step_index_host(self) -> np.ndarray:
        return self.streams[SEQUENCES].step_index_host

    @property
    def sequence_T(self) -> Tensor:
        """The index of each token's sequence, int64."""
        indices_N = torch.arange(self.num_sequences, device=self.ids_T.device)
        return torch.repeat_interleave(indices_N, self.lengths_N, output_size=self.num_tokens)

    @property
    def num_tokens(self) -> int:
        return len(self.ids_T)

    @property
    def num_sequences(self) -> int:
        return len(self.offsets_host) - 1

    @property
    def num_real_sequences(self) -> int:
        return self.num_sequences - self.num_padding_sequences

    @property
    def is_uniform(self) -> bool:
        """Whether every non-empty sequence has length `max_length`, as chunks of continuous text do."""
        lengths = np.diff(self.offsets_host)
        return bool(lengths.any() and ((lengths == self.max_length) | (lengths == 0)).all())

    @property
    def max_lengths(self) -> dict[str, int]:
        """The largest number of entries of a padding sequence, for the streams that limit it."""
        return {TOKENS: self.max_length, SEQUENCES: 1}

    @property
    def lengths_N(self) -> Tensor:
        return (self.offsets[1:] - self.offsets[:-1]).long()

    @property
    def num_real_tokens(self) -> int:
        return int(self.offsets_host[self.num_real_sequences])

    def with_streams(self, streams: Mapping[str, Stream]) -> Self:
        """With these streams added, or in place of those of the same name."""
        return dataclasses.replace(self, streams={**self.streams, **streams})

    def with_values(self, stream: str, **values: Any) -> Self:
        """With other values in one stream: `batch.with_values("tokens", ids_T=ids_T)`."""
        return self.with_streams({stream: dataclasses.replace(self.streams[stream], **values)})

    def to(self, device: torch.device, non_blocking: bool = True) -> Self:
        return self._map(lambda stream: stream.map_tensors(lambda x: x.to(device, non_blocking=non_blocking)))

    def pin_memory(self) -> Self:
        return self._map(lambda stream: stream.map_tensors(Tensor.pin_memory))

    def _map(self, function: Callable[[Stream], Stream]) -> Self:
        return self.with_streams({name: function(stream) for name, stream in self.streams.items()})

    def slice(self, first: int, last: int) -> Self:
        """Sequences `first` to `last` (exclusive) as a new batch."""
        origins = {name: int(stream.offsets_host[first]) for name, stream in self.streams.items()}
        num_padding = max(0, last - max(first, self.num_real_sequences))
        part = self._map(lambda stream: stream.slice(first, last, origins))
        num_causal = self.num_causal
        if num_causal is not None:
            num_causal = int(min(max(num_causal - origins[TOKENS], 0), self.offsets_host[last] - origins[TOKENS]))
        return dataclasses.replace(part, num_padding_sequences=num_padding, num_causal=num_causal)

    def as_padding(self) -> Self:
        """All sequences marked as padding: what a rank computes when its part of the batch is empty."""
        return dataclasses.replace(self, num_padding_sequences=self.num_sequences)

    def bucketed(self, num_tokens: int, num_sequences: int, sizes: Mapping[str, int] | None = None) -> Self:
        """The batch followed by padding sequences, to exactly `num_tokens` tokens and `num_sequences` sequences; the
        other streams get as many entries as `sizes` has for them, else no padding.

        A step captured or compiled for one shape then serves every batch that fits in the bucket.
        """
        num_padding_tokens = num_tokens - self.num_tokens
        num_added = num_sequences - self.num_sequences
        if num_padding_tokens < 0 or num_added < 0 or num_added * self.max_length < num_padding_tokens:
            raise ValueError(
                f"{self.num_tokens} tokens in {self.num_sequences} sequences do not fit a bucket of {num_tokens} "
                f"tokens and {num_sequences} sequences of at most {self.max_length}"
            )
        sizes = {name: stream.num_entries for name, stream in self.streams.items()} | dict(sizes or {})
        sizes |= {TOKENS: num_tokens, SEQUENCES: num_sequences}
        padded = {
            name: stream.padded(sizes[name], num_sequences, self.max_lengths.get(name))
            for name, stream in self.streams.items()
        }
        return dataclasses.replace(self, streams=padded, num_padding_sequences=self.num_padding_sequences + num_added)


def concatenate(batches: Sequence[Batch]) -> Batch:
    """The sequences of several batches, which have the same streams and no padding sequences, as one batch. If
    `num_causal` is set, no batch with bidirectional tokens may come before one with causal tokens."""
    first = batches[0]
    num_causal = None if first.num_causal is None else sum(batch.num_causal for batch in batches)
    origins: list[dict[str, int]] = [dict.fromkeys(first.streams, 0)]
    for batch in batches[:-1]:
        origins.append({name: origins[-1][name] + stream.num_entries for name, stream in batch.streams.items()})
    streams = {
        name: stream.concatenated([batch.streams[name] for batch in batches], origins)
        for name, stream in first.streams.items()
    }
    max_length = max(batch.max_length for batch in batches)
    return dataclasses.replace(first, streams=streams, max_length=max_length, num_causal=num_causal)


def pack(
    sequences: Sequence[np.ndarray | Sequence[int]],
    segments: Sequence[np.ndarray | Sequence[int]] | None = None,
    word_starts: Sequence[np.ndarray] | None = None,
    labels: np.ndarray | None = None,
    max_length: int | None = None,
    token_labels: Sequence[np.ndarray] | None = None,
    group_size: int = 1,
    step_index: np.ndarray | None = None,
    entities: Sequence[tuple[np.ndarray, np.ndarray]] | None = None,
    num_causal: int | None = None,
) -> Batch:
    """Packs token sequences into a batch. `segments` defaults to 0 everywhere, `word_starts` to True everywhere,
    `max_length` to that of the longest sequence. Sequence `labels` become int64 if integral, else float32.
    `step_index` (their indices in the step's batch, which key random numbers) defaults to the order of the sequences.
    `entities`: the positions and ids of the entities of each sequence, in the order of positions.
    `num_causal` as in `Batch`.

    >>> pack([np.array([5, 6, 7]), np.array([8, 9])]).offsets_host.tolist()
    [0, 3, 5]
    """
    lengths = np.array([len(sequence) for sequence in sequences], dtype=np.int64)
    offsets = to_offsets(lengths)
    total = int(offsets[-1])
    positions = np.arange(total) - np.repeat(offsets[:-1], lengths)

    def flat(arrays: Sequence[np.ndarray] | None, default: int, dtype: type) -> Tensor:
        values = np.full(total, default, dtype) if arrays is None else np.concatenate(arrays).astype(dtype)
        return torch.from_numpy(values)

    tokens = Tokens(
        ids_T=flat(sequences, 0, np.int64),
        positions_T=torch.from_numpy(positions),
        segments_T=flat(segments, 0, np.int64),
        word_starts_T=flat(word_starts, 1, np.bool_),
        labels_T=None if token_labels is None else flat(token_labels, -1, np.int64),
        offsets_host=offsets,
        offsets=torch.from_numpy(offsets.astype(np.int32)),
    )
    labels_N = None
    if labels is not None:
        is_float = np.issubdtype(np.asarray(labels).dtype, np.floating)
        labels_N = torch.from_numpy(np.array(labels, np.float32 if is_float else np.int64))
    step_index = np.arange(len(lengths)) if step_index is None else np.asarray(step_index, np.int64)
    per_sequence = Sequences(labels_N, step_index_host=step_index, offsets_host=np.arange(len(lengths) + 1))
    streams: dict[str, Stream] = {TOKENS: tokens, SEQUENCES: per_sequence}
    if entities is not None:
        streams[ENTITIES] = Entities.from_sequences(offsets, entities)
    return Batch(streams, int(max_length or lengths.max(initial=1)), group_size, num_causal=num_causal)


def length_batches(
    lengths: Mapping[int, int],
    max_tokens: int,
    num_tokens: Sequence[int] | Mapping[int, int] | None = None,
    longest_first: bool = False,
) -> Iterator[list[int]]:
    """The indices of items of similar length in batches of at most `max_tokens` tokens; an item with more is a batch of
    its own. Neighbours of equal length share one attention call. `lengths` are those of the indices, and `num_tokens`
    defaults to them.

    >>> list(length_batches({0: 3, 1: 1, 2: 2}, max_tokens=3))
    [[1, 2], [0]]
    """
    num_tokens = lengths if num_tokens is None else num_tokens
    batch: list[int] = []
    tokens = 0
    for index in sorted(lengths, key=lengths.__getitem__, reverse=longest_first):
        if batch and tokens + num_tokens[index] > max_tokens:
            yield batch
            batch, tokens = [], 0
        batch.append(index)
        tokens += num_tokens[index]
    if batch:
        yield batch


def part_bounds(num: int, part: tuple[int, int]) -> tuple[int, int]:
    """The first and last (exclusive) of `num` examples in part `part[0]` of `part[1]` parts of about equal size.

    >>> [part_bounds(7, (index, 3)) for index in range(3)]
    [(0, 2), (2, 4), (4, 7)]
    """
    index, count = part
    return num * index // count, num * (index + 1) // count


def to_offsets(counts: Sequence[int] | np.ndarray) -> np.ndarray:
    """The offset of each sequence from its number of entries, and the end: int64, N + 1."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


def _concatenate(values: list[Values]) -> Values:
    return torch.cat(values) if isinstance(values[0], Tensor) else np.concatenate(values)


def _full(values: Values, size: int, padding: float) -> Values:
    shape = (size, *values.shape[1:])
    if isinstance(values, Tensor):
        return values.new_full(shape, padding)
    return np.full(shape, padding, values.dtype)


def to_device(array: np.ndarray, device: torch.device) -> Tensor:
    """Copies to the device asynchronously, from pinned memory."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
