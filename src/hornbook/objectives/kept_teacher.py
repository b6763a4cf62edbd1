"""What a teacher makes of labelled examples, as rows of numbers that can be kept: one for each unit (the sequences that
are judged together) and one for each token.

| column | of a unit | of a token |
|---|---|---|
| `answers` | what its head says of a sequence or of endings | scores of tags, or of start and end |
| `answerable` | whether a question has an answer | |
| `hidden-3` | | what comes out of block 3; `hidden-0` goes into the first |
| `qkv-3` | | queries, keys and values of block 3 end to end |

Shapes: U units, T tokens, W numbers of a row, N sequences, S longest sequence, H heads, C width of a head.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hornbook.batch import Batch
from hornbook.models.outputs import MASKED_LOGIT, Output, to_padded
from hornbook.models.transformer import Transformer, TransformerConfig
from hornbook.objectives.matching import Match

ANSWERS, ANSWERABLE = "answers", "answerable"
NUMBER_BYTES = 4  # float32, so that nothing but rounding tells a kept row from a fresh one


@dataclass(frozen=True)
class Columns:
    """The columns of a row by name, with how many numbers each has."""

    units: dict[str, int]
    tokens: dict[str, int]

    def hold(self, names: set[str]) -> bool:
        return names <= {*self.units, *self.tokens}

    def only(self, names: set[str]) -> "Columns":
        """Of these the named ones."""
        names = names | ({ANSWERABLE} if ANSWERS in names else set())
        return Columns(*({name: each[name] for name in each if name in names} for each in (self.units, self.tokens)))

    def num_bytes(self, num_units: int, num_tokens: int) -> int:
        return NUMBER_BYTES * (num_units * sum(self.units.values()) + num_tokens * sum(self.tokens.values()))


class KeptTeacher(Protocol):
    """Rows of the examples that a student is trained on, by the number of the unit or of the sequence."""

    columns: Columns

    def units(self, units: np.ndarray, columns: Columns) -> np.ndarray:
        """Of these columns, float32, U x W."""
        ...

    def tokens(self, sequences: np.ndarray, columns: Columns) -> np.ndarray:
        """The same of all tokens of these sequences end to end, T x W."""
        ...


def needed(matches: Mapping[str, Match], layers: Mapping[str, list[tuple[int, int]]]) -> set[str]:
    """The columns that matches ask for, by their layers (of the student, of the teacher)."""
    found = set()
    for term, match in matches.items():
        if match.quantity == "logits":
            found.add(ANSWERS)
        kind = "hidden" if match.quantity in ("hidden", "embeddings") else "qkv"
        found |= {f"{kind}-{of_teacher}" for _, of_teacher in layers[term]}
    return found


def columns_for(names: set[str], output: Output, teacher: TransformerConfig, group_size: int) -> Columns:
    """Where the named columns stand for a task's output, and how wide they are."""
    units: dict[str, int] = {}
    tokens = {name: (3 if name.startswith("qkv") else 1) * teacher.width for name in sorted(names - {ANSWERS})}
    if ANSWERS in names:
        if output.kind in ("sequence", "choice"):
            units[ANSWERS] = group_size if output.kind == "choice" else output.num_labels
        else:
            tokens[ANSWERS] = 2 if output.kind == "spans" else output.num_labels
        if output.answerable:
            units[ANSWERABLE] = 2
    return Columns(units, tokens)


def teacher_rows(teacher: Transformer, columns: Columns, batch: Batch) -> tuple[Tensor | None, Tensor | None]:
    """The rows of a batch without dead sequences: of its units, U x W, and of its tokens, T x W."""
    hidden: list[Tensor] = []
    qkv: dict[int, Tensor | None] = {int(name[4:]): None for name in columns.tokens if name.startswith("qkv-")}
    x_TD = teacher(batch, hidden, qkv=qkv)
    found = {f"hidden-{layer}": each for layer, each in enumerate(hidden)}
    found |= {f"qkv-{layer}": each.flatten(1) for layer, each in qkv.items()}
    if ANSWERS in columns.units or ANSWERS in columns.tokens:
        answers = teacher.outputs_of(x_TD, batch)
        if teacher.output.answerable:
            found[ANSWERABLE] = answers[:, -1]
        found[ANSWERS] = _at_tokens(answers, batch) if teacher.output.kind == "spans" else answers

    def row(names: Mapping[str, int]) -> Tensor | None:
        return torch.cat([found[name].float() for name in names], 1) if names else None

    return row(columns.units), row(columns.tokens)


def _at_tokens(scores_NS2: Tensor, batch: Batch) -> Tensor:
    """Of a rectangle what stands at tokens, T x 2."""
    lengths = (batch.starts[1:] - batch.starts[:-1]).long()
    sequences_T = torch.repeat_interleave(torch.arange(batch.num_sequences, device=lengths.device), lengths)
    return scores_NS2.flatten(0, 1).index_select(0, sequences_T * scores_NS2.shape[1] + batch.positions_T)


@dataclass(frozen=True)
class TeacherOutputs:
    """Rows as a pass of the teacher would have left them."""

    hidden: dict[int, Tensor]
    qkv: dict[int, Tensor]
    answers: Tensor | None


def unpack_rows(
    columns: Columns, units: Tensor | None, tokens: Tensor | None, output: Output, num_heads: int, batch: Batch
) -> TeacherOutputs:
    """The columns of kept rows in the shapes of a pass over the batch, which may have dead sequences at its end."""
    num_tokens = batch.num_tokens
    if tokens is not None:
        tokens = F.pad(tokens[:num_tokens], (0, 0, 0, max(0, num_tokens - len(tokens))))
    of_units = {} if units is None else dict(zip(columns.units, units.split([*columns.units.values()], 1), strict=True))
    of_tokens = {}
    if tokens is not None:
        of_tokens = dict(zip(columns.tokens, tokens.split([*columns.tokens.values()], 1), strict=True))
    hidden = {int(name[7:]): each for name, each in of_tokens.items() if name.startswith("hidden-")}
    qkv = {
        int(name[4:]): each.unflatten(1, (3, num_heads, -1))
        for name, each in of_tokens.items()
        if name.startswith("qkv-")
    }
    answers = of_units.get(ANSWERS, of_tokens.get(ANSWERS))
    if output.kind == "spans" and answers is not None:
        scores_NS2, mask_NS = to_padded(answers, batch)
        answers = scores_NS2.masked_fill(~mask_NS[..., None], MASKED_LOGIT)
        if output.answerable:
            has_answer_N2 = of_units[ANSWERABLE]
            missing = max(0, len(answers) - len(has_answer_N2))
            has_answer_N2 = F.pad(has_answer_N2[: len(answers)], (0, 0, 0, missing))
            answers = torch.cat([answers, has_answer_N2[:, None]], 1)
    return TeacherOutputs(hidden, qkv, answers)
