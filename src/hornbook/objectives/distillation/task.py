"""Distillation on a task: the losses of `objective.py`, with or instead of the loss of the hard labels; and a teacher's
outputs on labelled examples as rows of numbers that can be cached, one row per group of sequences that are classified
together, and one row per token.

| column | of a group | of a token |
|---|---|---|
| `task_logits` | logits of a sequence or of the choices | logits of tags, or of start and end |
| `answerable` | logits of whether a question has an answer | |
| `hidden-3` | | output of block 3; `hidden-0` is the input of the first block |
| `qkv-3` | | queries, keys and values of block 3, concatenated |

Shapes: G groups, T tokens, W row width, N sequences, K targets, D width.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hornbook.batch import Batch
from hornbook.models.head_config import HeadConfig
from hornbook.models.heads import HEADS
from hornbook.models.transformer import Transformer, TransformerConfig
from hornbook.objectives.distillation.losses import output_losses
from hornbook.objectives.distillation.matching import Match, StageRecipe
from hornbook.objectives.distillation.objective import Distillation, ForwardPass, ModelOutputs
from hornbook.train.objective import Objective, StepInputs, Targets, all_token_targets

GROUPS, TOKENS = "teacher-groups", "teacher-tokens"  # targets whose values are cached rows of the teacher
TASK_LOGITS, ANSWERABLE = "task_logits", "answerable"
NUMBER_BYTES = 4  # float32, so that cached rows differ from new ones by rounding only


@dataclass(frozen=True)
class TeacherColumns:
    """The columns of the rows of groups and of tokens: name -> width."""

    groups: dict[str, int]
    tokens: dict[str, int]

    def hold(self, names: set[str]) -> bool:
        return names <= {*self.groups, *self.tokens}

    def only(self, names: set[str]) -> "TeacherColumns":
        names = names | ({ANSWERABLE} if TASK_LOGITS in names else set())
        return TeacherColumns(
            *({name: each[name] for name in each if name in names} for each in (self.groups, self.tokens))
        )

    def num_bytes(self, num_groups: int, num_tokens: int) -> int:
        return NUMBER_BYTES * (num_groups * sum(self.groups.values()) + num_tokens * sum(self.tokens.values()))


class CachedRows(Protocol):
    """Cached rows of a student's training examples, by index of the group or of the sequence."""

    columns: TeacherColumns

    def groups(self, groups: np.ndarray, columns: TeacherColumns) -> np.ndarray:
        """The columns of these groups, float32, G x W."""
        ...

    def tokens(self, sequences: np.ndarray, columns: TeacherColumns) -> np.ndarray:
        """The columns of all tokens of these sequences, concatenated, float32, T x W."""
        ...


class TaskDistillation(Distillation):
    """Distillation on a task: the hard-label loss is that of the task, and the logits are those of the task head.

    `task_objective` is in `tasks/objective.py`. If the teacher cache has everything that the recipe matches, the
    teacher's outputs on cached examples are read from it instead of running the teacher.
    """

    hard_label_term = "task"

    def __init__(
        self,
        task_objective: Objective,
        head_config: HeadConfig,
        recipe: StageRecipe,
        student: TransformerConfig,
        teacher: TransformerConfig,
        teacher_cache: CachedRows | None = None,
    ):
        super().__init__(recipe, student, teacher)
        self.task_objective, self.head_config = task_objective, head_config
        names = needed_columns(self.matches, self.layers)
        is_cached = teacher_cache is not None and teacher_cache.columns.hold(names)
        self.teacher_cache = teacher_cache if is_cached else None
        self.columns = teacher_cache.columns.only(names) if is_cached else None
        self.num_heads = teacher.num_heads
        self.is_capturable = task_objective.is_capturable

    def prepare(self, batch: Batch, seed: int) -> StepInputs:
        step_inputs = self.task_objective.prepare(batch, seed)
        targets = step_inputs.targets | self._token_targets(batch)
        targets |= {term: targets["task"] for term, match in self.matches.items() if match.quantity == "logits"}
        if self.teacher_cache is not None and batch.dataset_index_host is not None:
            targets |= self._cached_targets(batch, targets["task"])
        return StepInputs(step_inputs.batch.with_streams(targets))

    def _cached_targets(self, batch: Batch, task_targets: Targets) -> dict[str, Targets]:
        """Cached rows of the teacher as target values, which are split and padded together with the batch."""
        device, targets, indices = batch.ids_T.device, {}, batch.dataset_index_host
        if self.columns.groups:
            rows = self.teacher_cache.groups(indices[:: batch.group_size] // batch.group_size, self.columns)
            targets[GROUPS] = dataclasses.replace(task_targets, values_K=torch.from_numpy(rows).to(device))
        if self.columns.tokens:
            rows = self.teacher_cache.tokens(indices, self.columns)
            targets[TOKENS] = dataclasses.replace(all_token_targets(batch), values_K=torch.from_numpy(rows).to(device))
        return targets

    def _teacher_pass(self, teacher: Transformer, step_inputs: StepInputs) -> ModelOutputs:
        """The teacher's outputs, from the cache if the batch has cached rows."""
        if not self.matches:
            return ModelOutputs([], {})
        targets = step_inputs.targets
        if GROUPS not in targets and TOKENS not in targets:
            return super()._teacher_pass(teacher, step_inputs)
        groups, tokens = (targets[name].values_K if name in targets else None for name in (GROUPS, TOKENS))
        return unpack_rows(self.columns, groups, tokens, self.head_config, self.num_heads, step_inputs.batch)

    def _task_logits(self, model: Transformer, outputs: ModelOutputs, batch: Batch) -> Tensor:
        """The outputs of the task head, computed once so that all terms have the same dropout."""
        if outputs.task_logits is None:
            outputs.task_logits = model.outputs_of(outputs.x_TD, batch)
        return outputs.task_logits

    def _hard_label_sums(self, forward: ForwardPass, with_metrics: bool) -> dict[str, Tensor]:
        task_logits = self._task_logits(forward.model.student, forward.student, forward.step_inputs.batch)
        return self.task_objective.sums_of(task_logits, forward.step_inputs, with_metrics)

    def _logits_sum(self, term: str, match: Match, forward: ForwardPass) -> Tensor:
        batch, model = forward.step_inputs.batch, forward.model
        with torch.no_grad():
            teacher_logits = self._task_logits(model.teacher, forward.teacher, batch)
        student_logits = self._task_logits(model.student, forward.student, batch)
        weights_K = forward.step_inputs.targets[term].weights_K
        num = min(len(student_logits), len(weights_K))
        return (
            output_losses(self.head_config, match, student_logits[:num], teacher_logits[:num]) * weights_K[:num]
        ).sum()


def needed_columns(matches: Mapping[str, Match], layers: Mapping[str, list[tuple[int, int]]]) -> set[str]:
    """The names of the columns that the matches need; `layers` holds the (student, teacher) layer pairs of each
    term."""
    names = set()
    for term, match in matches.items():
        if match.quantity == "logits":
            names.add(TASK_LOGITS)
        kind = "hidden" if match.quantity in ("hidden", "embeddings") else "qkv"
        names |= {f"{kind}-{teacher_layer}" for _, teacher_layer in layers[term]}
    return names


def columns_for(
    names: set[str], head_config: HeadConfig, teacher: TransformerConfig, group_size: int
) -> TeacherColumns:
    """The named columns for a task's output, with their widths."""
    groups: dict[str, int] = {}
    tokens = {name: (3 if name.startswith("qkv") else 1) * teacher.width for name in sorted(names - {TASK_LOGITS})}
    if TASK_LOGITS in names:
        per_group, per_token = HEADS[head_config.output].cache_widths(head_config, group_size)
        groups |= {TASK_LOGITS: per_group} if per_group else {}
        tokens |= {TASK_LOGITS: per_token} if per_token else {}
        if head_config.has_answer_classifier:
            groups[ANSWERABLE] = 2
    return TeacherColumns(groups, tokens)


def compute_rows(teacher: Transformer, columns: TeacherColumns, batch: Batch) -> tuple[Tensor | None, Tensor | None]:
    """The rows of a batch without padding sequences: of its groups, G x W, and of its tokens, T x W."""
    hidden: list[Tensor] = []
    qkv: dict[int, Tensor | None] = {int(name[4:]): None for name in columns.tokens if name.startswith("qkv-")}
    x_TD = teacher(batch, hidden, qkv=qkv)
    values = {f"hidden-{layer}": each for layer, each in enumerate(hidden)}
    values |= {f"qkv-{layer}": each.flatten(1) for layer, each in qkv.items()}
    if TASK_LOGITS in columns.groups or TASK_LOGITS in columns.tokens:
        task_logits = teacher.outputs_of(x_TD, batch)
        if teacher.head_config.has_answer_classifier:
            values[ANSWERABLE] = task_logits[:, -1]
        values[TASK_LOGITS] = HEADS[teacher.head_config.output].to_cache_rows(task_logits, batch)

    def rows(names: Mapping[str, int]) -> Tensor | None:
        return torch.cat([values[name].float() for name in names], 1) if names else None

    return rows(columns.groups), rows(columns.tokens)


def unpack_rows(
    columns: TeacherColumns,
    groups: Tensor | None,
    tokens: Tensor | None,
    head_config: HeadConfig,
    num_heads: int,
    batch: Batch,
) -> ModelOutputs:
    """The columns of cached rows in the shapes of a forward pass over the batch, which may have padding sequences."""
    if tokens is not None:
        num_missing = max(0, batch.num_tokens - len(tokens))
        tokens = F.pad(tokens[: batch.num_tokens], (0, 0, 0, num_missing))

    def split(rows: Tensor | None, widths: Mapping[str, int]) -> dict[str, Tensor]:
        return {} if rows is None else dict(zip(widths, rows.split([*widths.values()], 1), strict=True))

    of_groups, of_tokens = split(groups, columns.groups), split(tokens, columns.tokens)
    hidden = {int(name[7:]): each for name, each in of_tokens.items() if name.startswith("hidden-")}
    qkv = {
        int(name[4:]): each.unflatten(1, (3, num_heads, -1))
        for name, each in of_tokens.items()
        if name.startswith("qkv-")
    }
    task_logits = of_groups.get(TASK_LOGITS, of_tokens.get(TASK_LOGITS))
    if task_logits is not None:
        task_logits = HEADS[head_config.output].from_cache_rows(task_logits, batch)
        if head_config.has_answer_classifier:
            has_answer_N2 = of_groups[ANSWERABLE]
            num_missing = max(0, len(task_logits) - len(has_answer_N2))
            has_answer_N2 = F.pad(has_answer_N2[: len(task_logits)], (0, 0, 0, num_missing))
            task_logits = torch.cat([task_logits, has_answer_N2[:, None]], 1)
    return ModelOutputs(hidden, qkv, task_logits)
