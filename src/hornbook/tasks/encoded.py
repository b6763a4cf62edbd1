"""Examples as token sequences with targets, in batches for the model."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from hornbook.batch import Batch

Outputs = list[np.ndarray]  # of a model, one per group; for tokens and spans, per sequence
ALL = slice(None)
Scorer = Callable[..., dict[str, float]]  # scores of the examples with these indices; by default, of all


@dataclass(frozen=True)
class EncodedExamples:
    """Examples as token sequences. Each `group_size` consecutive sequences form one group, which is scored together
    (such as the choices of one question); `example_ids` is the index of each sequence's example (one may have several
    windows). Targets are None if labels are unknown."""

    ids: list[np.ndarray]
    segments: list[np.ndarray]
    example_ids: np.ndarray
    num_examples: int
    labels: np.ndarray | None = None  # one value or row per sequence
    token_labels: list[np.ndarray] | None = None
    group_size: int = 1
    num_truncated: int = 0  # number of truncated texts
    entities: list[tuple[np.ndarray, np.ndarray]] | None = None  # per sequence: positions, numbers in a graph
    decode_info: list[Any] = field(default_factory=list)  # per sequence, what `decode` needs; depends on the task kind
    # Streams besides tokens, such as schema graphs: `extra_streams.streams(sequences)` gives those of these sequences.
    extra_streams: Any = None

    @property
    def num_groups(self) -> int:
        """Number of groups of `group_size` sequences; the batch size counts groups, and groups are shuffled."""
        return len(self.ids) // self.group_size

    def sequences_of(self, groups: Iterable[int]) -> list[int]:
        """The indices of the sequences of these groups."""
        return [group * self.group_size + i for group in groups for i in range(self.group_size)]

    def length_batches(self, max_tokens: int) -> Iterator[list[int]]:
        """All groups in batches of at most `max_tokens` tokens, those of short sequences first; a longer group is a
        batch of its own."""
        from hornbook.batch import length_batches  # imports torch, which readers of data and reports do not need

        lengths = np.array([len(each) for each in self.ids]).reshape(-1, self.group_size)
        longest = dict(enumerate(lengths.max(1, initial=0).tolist()))
        return length_batches(longest, max_tokens, lengths.sum(1).tolist())

    def batch(self, groups: Sequence[int], with_dataset_index: bool = False) -> "Batch":
        """These groups as a packed batch, sorted by length: neighbours of equal length are cheap on a CPU. With
        `with_dataset_index`, `dataset_index_host` holds the indices of the batch's sequences."""
        size = {group: sum(len(self.ids[i]) for i in self.sequences_of([group])) for group in groups}
        chosen = self.sequences_of(sorted(groups, key=size.get))
        batch = self.packed(chosen)
        if with_dataset_index:
            batch = batch.with_values("sequences", dataset_index_host=np.array(chosen, np.int64))
        return batch

    def packed(self, sequences: Sequence[int]) -> "Batch":
        """These sequences, in this order, as a packed batch."""
        from hornbook.batch import pack

        batch = pack(
            [self.ids[i] for i in sequences],
            [self.segments[i] for i in sequences],
            labels=None if self.labels is None else self.labels[list(sequences)],
            token_labels=None if self.token_labels is None else [self.token_labels[i] for i in sequences],
            group_size=self.group_size,
            entities=None if self.entities is None else [self.entities[i] for i in sequences],
        )
        return batch if self.extra_streams is None else batch.with_streams(self.extra_streams.streams(sequences))


def mean_scorer(values: Mapping[str, np.ndarray]) -> Scorer:
    """The scorer of metrics that are means over the examples, from the value of each example by metric."""
    return lambda chosen=ALL: {name: float(each[chosen].mean()) for name, each in values.items()}


def softmax(logits: np.ndarray) -> np.ndarray:
    """Softmax over the last axis."""
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def sigmoid(logits: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # exp is infinite for MASKED_LOGIT, as of a label that training lacks
        return 1 / (1 + np.exp(-logits))


def l2_normalized(vectors: np.ndarray) -> np.ndarray:
    """The vectors of the last axis divided by their Euclidean norm; a vector of zeros is unchanged.

    >>> l2_normalized(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
