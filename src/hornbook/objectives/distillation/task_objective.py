"""Distillation on a task: the losses of `objective.py`, with or instead of the loss of the hard labels.

Shapes: T tokens, K targets, D width.
"""

import dataclasses

import torch
from torch import Tensor

from hornbook.batch import Batch
from hornbook.models.head_config import HeadConfig
from hornbook.models.transformer import Transformer, TransformerConfig
from hornbook.objectives.distillation.losses import output_losses
from hornbook.objectives.distillation.matching import Match, StageRecipe
from hornbook.objectives.distillation.objective import Distillation, ForwardPass, ModelOutputs
from hornbook.objectives.distillation.teacher_rows import CachedRows, needed_columns, unpack_rows
from hornbook.objectives.mlm import every_token
from hornbook.train.objective import Objective, StepInputs, Targets

GROUPS, TOKENS = "teacher-groups", "teacher-tokens"  # targets whose values are cached rows of the teacher


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
            targets[TOKENS] = dataclasses.replace(every_token(batch), values_K=torch.from_numpy(rows).to(device))
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

    def _hard_label_metrics(self, forward: ForwardPass) -> dict[str, Tensor]:
        task_logits = self._task_logits(forward.model.student, forward.student, forward.step_inputs.batch)
        losses, is_right, weights = self.task_objective.losses(task_logits, forward.step_inputs)
        return {"task": (losses * weights).sum(), "task_accuracy": (is_right * weights).sum()}

    def _logits_sum(self, term: str, match: Match, forward: ForwardPass) -> Tensor:
        batch, model = forward.step_inputs.batch, forward.model
        with torch.no_grad():
            theirs = self._task_logits(model.teacher, forward.teacher, batch)
        ours = self._task_logits(model.student, forward.student, batch)
        weights_K = forward.step_inputs.targets[term].weights_K
        num = min(len(ours), len(weights_K))
        return (output_losses(self.head_config, match, ours[:num], theirs[:num]) * weights_K[:num]).sum()
