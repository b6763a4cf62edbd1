"""What a task is: five small methods between the examples of a file and the official score.

    output      what it wants of a model                        -> models.outputs.Output
    encode      examples to token sequences with targets        -> Features
    decode      the model's numbers to predictions, one for each example, in their order
    scorer      predictions beside the right answers            -> a function from chosen examples to scores
    describe    a prediction as a row for a person

Nothing here knows a family: the model supplies its published head for the output that a task names.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from hornbook.batch import Batch, pack
from hornbook.models.outputs import Output
from hornbook.tasks.records import Example
from hornbook.text.tokenizer import Tokenizer

Scorer = Callable[[np.ndarray | None], dict[str, float]]  # scores of the examples with these numbers, or of all


@dataclass(frozen=True)
class Features:
    """Examples as token sequences. Neighbouring sequences, `num_together` at a time, are judged together; `owners` says
    which example each belongs to (an example may have several windows). Targets are None where labels are not known."""

    ids: list[np.ndarray]
    segments: list[np.ndarray]
    owners: np.ndarray
    num_examples: int
    labels: np.ndarray | None = None  # one or a row for each sequence
    token_labels: list[np.ndarray] | None = None
    group_size: int = 1
    num_cut: int = 0  # texts that were cut to fit
    places: list[Any] = field(default_factory=list)  # what decoding needs of each sequence, by kind of task

    @property
    def num_units(self) -> int:
        """What is shuffled and counted in a batch: groups of sequences that stand together."""
        return len(self.ids) // self.group_size

    def batch(self, units: Sequence[int], numbered: bool = False) -> Batch:
        """These units as a packed batch, the short ones first: equal lengths side by side are cheap on a CPU. When
        `numbered`, the batch says which sequences of the features it holds."""
        together = self.group_size
        size = {unit: sum(len(self.ids[unit * together + i]) for i in range(together)) for unit in units}
        chosen = [unit * together + i for unit in sorted(units, key=size.get) for i in range(together)]
        batch = self.packed(chosen)
        return replace(batch, numbers_host=np.array(chosen, np.int64)) if numbered else batch

    def packed(self, sequences: Sequence[int]) -> Batch:
        """These sequences in this order."""
        return pack(
            [self.ids[i] for i in sequences],
            [self.segments[i] for i in sequences],
            labels=None if self.labels is None else self.labels[list(sequences)],
            token_labels=None if self.token_labels is None else [self.token_labels[i] for i in sequences],
            group_size=self.group_size,
        )


class Task(Protocol):
    """Implemented in `classification`, `spans`, `tagging` and `choice`."""

    output: Output
    measures: tuple[str, ...]  # what is reported, the first of which decides

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, longest: int) -> Features: ...

    def decode(self, found: list[np.ndarray], features: Features, examples: Sequence[Example]) -> list: ...

    def scorer(self, examples: Sequence[Example], predictions: list) -> Scorer: ...

    def describe(self, example: Example, prediction: Any) -> dict[str, Any]: ...


def softmax(scores: np.ndarray) -> np.ndarray:
    """Over the last axis."""
    shifted = np.exp(scores - scores.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)
