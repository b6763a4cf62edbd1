"""The packed batch: sequences concatenated into one flat tensor of tokens, with the offset of each. No padding.

Shapes: T tokens, N sequences, K target positions.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """N packed sequences: sequence i is tokens `starts[i]` to `starts[i + 1]`.

    The offsets are stored twice: on the device (`starts`) for the kernels, and on the host (`starts_host`) so that
    computing a size never synchronises with the device. The last `num_padding_sequences` sequences only fill a bucket
    (see `bucketed`); their tokens enter no loss and no count.
    """

    ids_T: Tensor  # int64
    positions_T: Tensor  # int64, counted from 0 in each sequence
    segments_T: Tensor  # int64, 0 or 1
    word_starts_T: Tensor  # bool, True at the first token of a word
    starts: Tensor  # int32, N + 1
    starts_host: np.ndarray  # int64, N + 1
    longest: int  # upper bound on the sequence lengths
    labels_N: Tensor | None = None  # sequence labels of a task: a class, a number, or a row of them per sequence
    labels_T: Tensor | None = None  # int64, token labels of a task; -1 is ignored
    group_size: int = 1  # consecutive sequences that are classified together, such as the endings of one question
    num_padding_sequences: int = 0  # sequences at the end that only fill a bucket
    numbers_host: np.ndarray | None = None  # int64, N: index of each sequence in the training set, where needed

    @property
    def num_tokens(self) -> int:
        return len(self.ids_T)

    @property
    def num_sequences(self) -> int:
        return len(self.starts_host) - 1

    @property
    def num_real_sequences(self) -> int:
        return self.num_sequences - self.num_padding_sequences

    @property
    def is_uniform(self) -> bool:
        """Whether every non-empty sequence has length `longest`, as chunks of continuous text do."""
        lengths = np.diff(self.starts_host)
        return bool(lengths.any() and ((lengths == self.longest) | (lengths == 0)).all())

    @property
    def lengths_N(self) -> Tensor:
        return (self.starts[1:] - self.starts[:-1]).long()

    @property
    def num_real_tokens(self) -> int:
        return int(self.starts_host[self.num_real_sequences])

    def to(self, device: torch.device, non_blocking: bool = True) -> "Batch":
        return self._map_tensors(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "Batch":
        return self._map_tensors(lambda tensor: tensor.pin_memory())

    def _map_tensors(self, function: Callable[[Tensor], Tensor]) -> "Batch":
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return dataclasses.replace(
            self, **{name: function(value) for name, value in fields.items() if isinstance(value, Tensor)}
        )

    def slice(self, first: int, last: int) -> "Batch":
        """Sequences `first` to `last` (exclusive) as a new batch."""
        start, stop = int(self.starts_host[first]), int(self.starts_host[last])
        return Batch(
            ids_T=self.ids_T[start:stop],
            positions_T=self.positions_T[start:stop],
            segments_T=self.segments_T[start:stop],
            word_starts_T=self.word_starts_T[start:stop],
            starts=self.starts[first : last + 1] - start,
            starts_host=self.starts_host[first : last + 1] - start,
            longest=self.longest,
            labels_N=None if self.labels_N is None else self.labels_N[first:last],
            labels_T=None if self.labels_T is None else self.labels_T[start:stop],
            group_size=self.group_size,
            num_padding_sequences=max(0, last - max(first, self.num_real_sequences)),
            numbers_host=None if self.numbers_host is None else self.numbers_host[first:last],
        )

    def bucketed(self, num_tokens: int, num_sequences: int) -> "Batch":
        """The batch followed by padding sequences, to exactly `num_tokens` tokens and `num_sequences` sequences.

        A step captured or compiled for one shape then serves every batch that fits in the bucket.
        """
        num_padding_tokens = num_tokens - self.num_tokens
        num_added = num_sequences - self.num_sequences
        if num_padding_tokens < 0 or num_added < 0 or num_added * self.longest < num_padding_tokens:
            raise ValueError(
                f"{self.num_tokens} tokens in {self.num_sequences} sequences do not fit a bucket of {num_tokens} "
                f"tokens and {num_sequences} sequences of at most {self.longest}"
            )
        ends = np.minimum(self.num_tokens + self.longest * np.arange(1, num_added + 1), num_tokens)
        starts_host = np.concatenate([self.starts_host, ends])
        device = self.ids_T.device
        new_starts = torch.from_numpy(ends.astype(np.int32)).to(device, non_blocking=True)
        positions = torch.arange(num_padding_tokens, device=device) % self.longest
        labels, token_labels = self.labels_N, self.labels_T
        if labels is not None:
            labels = torch.cat([labels, labels.new_zeros((num_added, *labels.shape[1:]))])
        if token_labels is not None:
            token_labels = torch.cat([token_labels, token_labels.new_full((num_padding_tokens,), -1)])
        return Batch(
            ids_T=torch.cat([self.ids_T, self.ids_T.new_zeros(num_padding_tokens)]),
            positions_T=torch.cat([self.positions_T, positions]),
            segments_T=torch.cat([self.segments_T, self.segments_T.new_zeros(num_padding_tokens)]),
            word_starts_T=torch.cat([self.word_starts_T, self.word_starts_T.new_zeros(num_padding_tokens)]),
            starts=torch.cat([self.starts, new_starts]),
            starts_host=starts_host,
            longest=self.longest,
            labels_N=labels,
            labels_T=token_labels,
            group_size=self.group_size,
            num_padding_sequences=self.num_padding_sequences + num_added,
        )


def pack(
    sequences: Sequence[np.ndarray],
    segments: Sequence[np.ndarray] | None = None,
    word_starts: Sequence[np.ndarray] | None = None,
    labels: np.ndarray | None = None,
    longest: int | None = None,
    token_labels: Sequence[np.ndarray] | None = None,
    group_size: int = 1,
) -> Batch:
    """Packs token sequences into a batch. `segments` defaults to 0 everywhere, `word_starts` to True everywhere,
    `longest` to the length of the longest sequence. Sequence `labels` become int64 if integral, else float32.

    >>> pack([np.array([5, 6, 7]), np.array([8, 9])]).starts_host.tolist()
    [0, 3, 5]
    """
    lengths = np.array([len(sequence) for sequence in sequences], dtype=np.int64)
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    total = int(starts[-1])
    positions = np.arange(total) - np.repeat(starts[:-1], lengths)

    def flat(arrays: Sequence[np.ndarray] | None, default: int, dtype: type) -> Tensor:
        values = np.full(total, default, dtype) if arrays is None else np.concatenate(arrays).astype(dtype)
        return torch.from_numpy(values)

    return Batch(
        ids_T=flat(sequences, 0, np.int64),
        positions_T=torch.from_numpy(positions),
        segments_T=flat(segments, 0, np.int64),
        word_starts_T=flat(word_starts, 1, np.bool_),
        starts=torch.from_numpy(starts.astype(np.int32)),
        starts_host=starts,
        longest=int(longest or lengths.max(initial=1)),
        labels_N=None if labels is None else torch.from_numpy(_int64_or_float32(np.asarray(labels))),
        labels_T=None if token_labels is None else flat(token_labels, -1, np.int64),
        group_size=group_size,
    )


def _int64_or_float32(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float32 if np.issubdtype(values.dtype, np.floating) else np.int64)
