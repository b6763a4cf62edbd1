"""Causal language modelling (`clm`; Radford et al. 2018): predicts every next token from the tokens before it. It is
also one of two terms of a hybrid model (GPT-BERT, Charpentier and Samuel 2024, arXiv 2410.24159), and an auxiliary loss
of a task.

clm = - sum over tokens of log p(next token | the tokens up to this one)

The last token of a sequence has no next token, unless the batch has `labels_T`, the next token of every token. With
`labels_T`, the end of a document and the token after a truncated chunk are predicted too.

    objective = ClmObjective()
    step_inputs = objective.prepare(batch, seed)
    objective.loss_sums(model, step_inputs)              # {"clm": ...}
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from hornbook.batch import Batch
from hornbook.config import ValidatedSettings, setting
from hornbook.objectives.masking import Masking
from hornbook.objectives.mlm import VocabularyObjective, summed_loss
from hornbook.objectives.vocabulary_loss import can_fuse_loss, fused_loss
from hornbook.train.objective import Objective, StepInputs, Targets, next_token_targets, next_tokens
from hornbook.train.randomness import token_keys

NEARLY_ALL = 0.95  # fraction of tokens with targets (or padding) above which computing all logits is cheaper


@dataclass(frozen=True)
class ClmSettings(ValidatedSettings, group="objective"):
    mlm_fraction: float = setting(
        0.0,
        "fraction of the text that is read in both directions to predict masked tokens (GPT-BERT); the rest is read "
        "from left to right to predict every next token",
        low=0,
        below=1,
    )


class ClmObjective(VocabularyObjective):
    """Predicts each token of each sequence from those before it."""

    is_capturable = True

    def __init__(self):
        self.weights = {"clm": 1.0}

    def prepare(self, batch: Batch, seed: int) -> StepInputs:
        return StepInputs(batch.with_streams({"clm": next_token_targets(batch)}))

    def loss_sums(self, model: nn.Module, step_inputs: StepInputs, with_metrics: bool = False) -> dict[str, Tensor]:
        x_TD, sums = model(step_inputs.batch), {}
        for term in self.weights:
            targets = step_inputs.targets[term]
            if with_metrics:
                logits_KV = model.vocabulary_logits(x_TD.index_select(0, targets.indices_K))
                sums |= self.term_sums(term, logits_KV, targets, with_metrics)
            else:
                sums[term] = next_token_loss(model, x_TD, targets, self.summed_loss)
        return sums


class HybridObjective(ClmObjective):
    """Masked and next-token prediction in one model (GPT-BERT), which can then be used as an encoder and as a decoder.

    clm = - sum over the tokens read from left to right of log p(next token | the tokens up to this one)
    mlm = - sum over the masked tokens of log p(token | the rest of the text, corrupted)

    A part of every batch is read from left to right, the rest in both directions (`Batch.num_causal`). A masked token
    is predicted at the position before it, so that every position predicts the next token in both parts, with the same
    head. The first token of a sequence has no position before it: if it is masked, it is not predicted. A term weighs
    as much as its share of the text.
    """

    def __init__(self, masking: Masking, mlm_fraction: float):
        super().__init__()
        self.masking = masking
        self.weights = {"clm": 1 - mlm_fraction, "mlm": mlm_fraction}

    def prepare(self, batch: Batch, seed: int) -> StepInputs:
        num_causal_sequences = int(np.searchsorted(batch.offsets_host, batch.num_causal))
        causal, bidirectional = (
            batch.slice(0, num_causal_sequences),
            batch.slice(num_causal_sequences, batch.num_sequences),
        )
        clm = next_token_targets(causal)
        ids_T, mlm = self.masking.prepare(bidirectional, token_keys(bidirectional, seed))
        is_first_K = bidirectional.positions_T[mlm.indices_K] == 0
        num_clm = np.full(bidirectional.num_sequences, clm.offsets_host[-1])
        clm = dataclasses.replace(clm, offsets_host=np.concatenate([clm.offsets_host, num_clm]))
        mlm = Targets(
            mlm.indices_K - (~is_first_K).long() + batch.num_causal,
            mlm.values_K,
            mlm.weights_K * ~is_first_K,
            offsets_host=np.concatenate([np.zeros(num_causal_sequences, np.int64), mlm.offsets_host]),
        )
        corrupted = batch.with_values("tokens", ids_T=torch.cat([causal.ids_T, ids_T]))
        return StepInputs(corrupted.with_streams({"clm": clm, "mlm": mlm}))


class AuxiliaryLanguageModel:
    """A task's objective with language modelling of its texts as an auxiliary loss (Radford et al. 2018, section 3.2).

    task + weight x clm, where clm is the mean over sequences of the mean over their tokens, as in the published code

    `task_objective` is in `tasks/objective.py`. Both terms share one forward pass.
    """

    def __init__(self, task_objective: Objective, weight: float):
        self.task_objective = task_objective
        self.weights = task_objective.weights | {"clm": weight}
        self.is_capturable = task_objective.is_capturable

    def prepare(self, batch: Batch, seed: int) -> StepInputs:
        batch = self.task_objective.prepare(batch, seed).batch
        return StepInputs(batch.with_streams({"clm": next_tokens(batch, each_sequence_once=True)}))

    def loss_sums(self, model: nn.Module, step_inputs: StepInputs, with_metrics: bool = False) -> dict[str, Tensor]:
        x_TD = model(step_inputs.batch)
        outputs = model.outputs_of(x_TD, step_inputs.batch)
        sums = self.task_objective.sums_of(outputs, step_inputs, with_metrics)
        return {**sums, "clm": next_token_loss(model, x_TD, step_inputs.targets["clm"])}


def next_token_loss(
    model: nn.Module, x_TD: Tensor, targets: Targets, loss_of_logits: Callable[..., Tensor] = summed_loss
) -> Tensor:
    """The loss summed over the targets, from the hidden states. Where possible, logits and loss are one fused operation
    (`vocabulary_loss.py`); otherwise `loss_of_logits` computes the loss."""
    has_matrix = model.vocabulary_matrix is not None
    if has_matrix and can_fuse_loss(x_TD) and len(targets.indices_K) > NEARLY_ALL * len(x_TD):
        return fused_loss(x_TD, model.vocabulary_matrix, *_at_every_token(targets, len(x_TD)), model.config.vocab_size)
    x_KD = x_TD.index_select(0, targets.indices_K)
    if has_matrix and can_fuse_loss(x_KD):
        return fused_loss(x_KD, model.vocabulary_matrix, targets.values_K, targets.weights_K, model.config.vocab_size)
    return loss_of_logits(model.vocabulary_logits(x_KD), targets.values_K, targets.weights_K)


def _at_every_token(targets: Targets, num_tokens: int) -> tuple[Tensor, Tensor]:
    """Values and weights of the targets for every token; tokens without a target have weight 0."""
    weights_T = targets.weights_K.new_zeros(num_tokens).index_add_(0, targets.indices_K, targets.weights_K)
    # Padding targets have the position of a real target, so their values must not be added to it.
    values_K = targets.values_K * (targets.weights_K != 0)
    return values_K.new_zeros(num_tokens).index_add_(0, targets.indices_K, values_K), weights_T
