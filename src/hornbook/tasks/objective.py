"""The loss of a task head, as the training loop expects it: summed, with counts known before the forward pass.

    sequence, choice   - log p(class)                       (Devlin et al. 2018, section 4.1 and 4.4)
    multi-label        - mean over classes of log p(present or absent)
    regression         (output - target)^2
    tokens             - log p(tag) at each word's first token
    spans              - (log p(start) + log p(end)) / 2; with an answerability classifier, spans count only where
                       there is an answer, and - log p(answerable) is added

Model outputs and targets are both in sequence order with padding sequences last, so they are paired up to the shorter
of the two. Shapes: N sequences, T tokens, K targets, L labels, S longest sequence.
"""

import numpy as np
import torch
from torch import Tensor, nn

from hornbook.batch import Batch
from hornbook.models.head_config import HeadConfig
from hornbook.models.heads import HEADS, upcast
from hornbook.train.objective import StepInputs, Targets, group_targets


class TaskObjective:
    """A single loss term, `task`. `class_weights` (L): weight of each class in the loss."""

    def __init__(self, head_config: HeadConfig, class_weights: Tensor | None = None):
        self.weights = {"task": 1.0}
        # Targets are part of the batch, so a CUDA graph can replay them; but an LSTM needs the lengths on the host.
        self.is_capturable = head_config.layers != "bilstm" and head_config.graph is None
        self.head_config = head_config
        self.class_weights = class_weights

    def prepare(self, batch: Batch, seed: int) -> StepInputs:
        targets = self._token_targets(batch) if batch.labels_T is not None else self._targets(batch)
        return StepInputs(batch.with_streams({"task": targets}))

    def _token_targets(self, batch: Batch) -> Targets:
        values_T = batch.labels_T.clamp(min=0)
        weights_T = (batch.labels_T >= 0).float() * self._class_weights(values_T)
        positions_T = torch.arange(batch.num_tokens, device=values_T.device)
        return Targets(positions_T, values_T, weights_T, offsets_host=batch.offsets_host)

    def _targets(self, batch: Batch) -> Targets:
        """One target per group of sequences; an unknown class (-1) has weight 0."""
        values, weights = batch.labels_N[:: batch.group_size][: batch.num_real_sequences // batch.group_size], None
        if self.head_config.output_type.of_sequences and self.head_config.problem_type == "single_label_classification":
            weights = (values >= 0).float()
            values = values.clamp(min=0)
            weights = weights * self._class_weights(values)
        return group_targets(batch, values, weights)

    def _class_weights(self, values: Tensor) -> Tensor | float:
        if self.class_weights is None:
            return 1.0
        self.class_weights = self.class_weights.to(values.device)
        return self.class_weights[values]

    def loss_sums(self, model: nn.Module, step_inputs: StepInputs, with_metrics: bool = False) -> dict[str, Tensor]:
        return self.sums_of(model.outputs(step_inputs.batch), step_inputs, with_metrics)

    def sums_of(self, outputs: Tensor, step_inputs: StepInputs, with_metrics: bool = False) -> dict[str, Tensor]:
        """`loss_sums` from the model outputs."""
        outputs = upcast(outputs)
        targets = step_inputs.targets["task"]
        num = min(len(outputs), len(targets.values_K))
        outputs, values, weights = outputs[:num], targets.values_K[:num], targets.weights_K[:num]
        losses, is_correct = HEADS[self.head_config.output].losses(self.head_config, outputs, values)
        metrics = {"task_accuracy": (is_correct * weights).sum()} if with_metrics else {}
        return {"task": (losses * weights).sum(), **metrics}


def balanced_class_weights(labels: np.ndarray, num_labels: int) -> Tensor:
    """Weights (L) that give every class the same total weight: N / (L x number of its examples)."""
    known = labels[labels >= 0]
    counts = np.bincount(known, minlength=num_labels)
    return torch.from_numpy(len(known) / (num_labels * np.maximum(counts, 1))).float()
