"""Masked language modelling (`mlm`), optionally with one of two sentence tasks: whether the second segment follows the
first (`nsp`, Devlin et al. 2018), or whether two consecutive segments were swapped (`sop`, Lan et al. 2019).

mlm = - sum over masked tokens of log p(token | the corrupted text)
nsp, sop = - sum over sequences of log p(label | [CLS])

Label 0 means that the second segment really follows the first, as in `transformers`. The loss is the sum over terms of
weight x sum / count.

    objective = MlmObjective(Masking(MaskingSettings(), vocab_size, mask_id, special_ids), sentence="nsp")
    step_inputs = objective.prepare(batch, seed)
    objective.loss_sums(model, step_inputs)              # {"mlm": ..., "nsp": ...}
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hornbook.batch import Batch
from hornbook.config import ValidatedSettings, setting
from hornbook.models.heads import upcast
from hornbook.objectives.masking import Masking
from hornbook.train.objective import StepInputs, Targets, group_targets
from hornbook.train.randomness import token_keys

SentenceTask = Literal["none", "nsp", "sop"]


@dataclass(frozen=True)
class MlmSettings(ValidatedSettings, group="objective"):
    sentence: SentenceTask = setting(
        "nsp", "sentence task: whether the second segment follows the first (nsp) or the two were swapped (sop)"
    )
    sentence_weight: float = setting(1.0, "weight of the sentence task's loss, relative to mlm", low=0, high=1e6)


def summed_loss(logits_KV: Tensor, values_K: Tensor, weights_K: Tensor) -> Tensor:
    """Weighted cross-entropy, summed over the targets, in at least float32."""
    return (F.cross_entropy(upcast(logits_KV), values_K, reduction="none") * weights_K).sum()


class VocabularyObjective:
    """The base of objectives with losses over the vocabulary. `compile` compiles the functions named in `compiled`,
    which otherwise make several passes over the logits."""

    compiled: tuple[str, ...] = ("summed_loss",)
    summed_loss = staticmethod(summed_loss)

    def term_sums(self, term: str, logits_KV: Tensor, targets: Targets, with_metrics: bool) -> dict[str, Tensor]:
        """Loss and perhaps accuracy of a term, summed over its targets: `{"mlm": ..., "mlm_accuracy": ...}`. With
        metrics, for validation, the loss is not compiled: compiling it once more, without gradients, takes seconds."""
        loss = summed_loss if with_metrics else self.summed_loss
        sums = {term: loss(logits_KV, targets.values_K, targets.weights_K)}
        if with_metrics:
            sums[f"{term}_accuracy"] = ((logits_KV.argmax(-1) == targets.values_K) * targets.weights_K).sum()
        return sums

    def compile(self) -> None:
        for name in self.compiled:
            setattr(self, name, torch.compile(getattr(self, name), dynamic=True))


class MlmObjective(VocabularyObjective):
    """MLM, optionally with a sentence task computed from the same forward pass."""

    is_capturable = True

    def __init__(self, masking: Masking, sentence: SentenceTask, sentence_weight: float = 1.0):
        self.masking = masking
        self.sentence = None if sentence == "none" else sentence
        self.weights = {"mlm": 1.0} | ({self.sentence: sentence_weight} if self.sentence else {})

    def prepare(self, batch: Batch, seed: int) -> StepInputs:
        ids_T, mlm = self.masking.prepare(batch, token_keys(batch, seed))
        targets = {"mlm": mlm}
        if self.sentence:
            targets[self.sentence] = group_targets(batch, batch.labels_N[: batch.num_real_sequences])
        return StepInputs(batch.with_values("tokens", ids_T=ids_T).with_streams(targets))

    def loss_sums(self, model: nn.Module, step_inputs: StepInputs, with_metrics: bool = False) -> dict[str, Tensor]:
        sums = {}
        for term, logits in self._logits(model, model(step_inputs.batch), step_inputs).items():
            sums |= self.term_sums(term, logits, step_inputs.targets[term], with_metrics)
        return sums

    def _logits(self, model: nn.Module, x_TD: Tensor, step_inputs: StepInputs) -> dict[str, Tensor]:
        """The logits at the targets of each term, from the hidden states."""
        logits = {"mlm": model.vocabulary_logits(x_TD.index_select(0, step_inputs.targets["mlm"].indices_K))}
        if self.sentence:
            logits[self.sentence] = model.sentence_logits(x_TD[step_inputs.targets[self.sentence].indices_K])
        return logits
