"""The next token (`clm`, causal language modelling; Radford et al. 2018), predicted from all that stands before it.

clm = - sum over tokens of log p(the token after it | the tokens up to it)

The token after the last one of a sequence is unknown, unless the batch says it: `labels_T` then holds, for every token,
the one after it, so that the end of a document is predicted too, and so is the token behind a chunk that was cut.

    objective = NextToken()
    drawn = objective.prepare(batch, generator)
    objective.sums(model, drawn)                    # {"clm": ...}
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from hornbook.batch import Batch
from hornbook.objectives.mlm import summed_loss
from hornbook.objectives.vocabulary_loss import fused_loss, is_fused
from hornbook.train.objective import Objective, StepInputs, Targets

NEARLY_ALL = 0.95  # of the tokens have targets, with those that fill a bucket up: scoring all costs less than picking


@dataclass(frozen=True)
class ClmSettings:
    """There is nothing to choose: every token is predicted."""


class ClmObjective:
    """Each token of each sequence from those before it."""

    is_capturable = True

    def __init__(self):
        self.weights = {"clm": 1.0}
        self.summed_loss = summed_loss

    def compile(self) -> None:
        """Fuses the loss over the vocabulary, which otherwise goes over the scores several times."""
        self.summed_loss = torch.compile(summed_loss, dynamic=True)

    def prepare(self, batch: Batch, generator: torch.Generator) -> StepInputs:
        return StepInputs(batch, {"clm": tokens_after(batch)})

    def sums(self, model: nn.Module, step_inputs: StepInputs) -> dict[str, Tensor]:
        return {"clm": next_token_loss(model, model(step_inputs.batch), step_inputs.targets["clm"], self.summed_loss)}

    def evaluate(self, model: nn.Module, step_inputs: StepInputs) -> dict[str, Tensor]:
        targets = step_inputs.targets["clm"]
        logits = model.clm_logits(model(step_inputs.batch).index_select(0, targets.positions_K))
        return {
            "clm": summed_loss(logits, targets.values_K, targets.weights_K),
            "clm_accuracy": ((logits.argmax(-1) == targets.values_K) * targets.weights_K).sum(),
        }


class AuxiliaryLanguageModel:
    """A task's own objective and, beside it, the next tokens of its texts (Radford et al. 2018, section 3.2).

    task + weight x clm, clm = mean over the sequences of the mean over their tokens, as in its published code

    `own` is the objective of the task (`tasks/objective.py`), which draws its targets and knows its losses. Both terms
    are read off one pass through the model.
    """

    def __init__(self, own: Objective, weight: float):
        self.own = own
        self.weights = own.weights | {"clm": weight}
        self.is_capturable = own.is_capturable

    def prepare(self, batch: Batch, generator: torch.Generator) -> StepInputs:
        step_inputs = self.own.prepare(batch, generator)
        return StepInputs(
            step_inputs.batch, step_inputs.targets | {"clm": next_tokens(step_inputs.batch, each_sequence_once=True)}
        )

    def sums(self, model: nn.Module, step_inputs: StepInputs) -> dict[str, Tensor]:
        found = self.evaluate(model, step_inputs)
        return {term: found[term] for term in self.weights}

    def evaluate(self, model: nn.Module, step_inputs: StepInputs) -> dict[str, Tensor]:
        x_TD, targets = model(step_inputs.batch), step_inputs.targets["clm"]
        losses, is_right, weights = self.own.losses(model.outputs_of(x_TD, step_inputs.batch), step_inputs)
        return {
            "task": (losses * weights).sum(),
            "task_accuracy": (is_right * weights).sum(),
            "clm": next_token_loss(model, x_TD, targets),
        }


def next_token_loss(
    model: nn.Module, x_TD: Tensor, targets: Targets, plain: Callable[..., Tensor] = summed_loss
) -> Tensor:
    """The summed loss of the targets from the hidden states, in one piece with the scores where that runs."""
    has_matrix = model.clm_matrix is not None
    if has_matrix and is_fused(x_TD) and len(targets.positions_K) > NEARLY_ALL * len(x_TD):
        return fused_loss(x_TD, model.clm_matrix, *_at_every_token(targets, len(x_TD)), model.config.vocab_size)
    x_KD = x_TD.index_select(0, targets.positions_K)
    if has_matrix and is_fused(x_KD):
        return fused_loss(x_KD, model.clm_matrix, targets.values_K, targets.weights_K, model.config.vocab_size)
    return plain(model.clm_logits(x_KD), targets.values_K, targets.weights_K)


def _at_every_token(targets: Targets, num_tokens: int) -> tuple[Tensor, Tensor]:
    """Values and weights for each token, weight 0 where it has no target."""
    weights_T = targets.weights_K.new_zeros(num_tokens).index_add_(0, targets.positions_K, targets.weights_K)
    # What fills a bucket up lies at some token that has a target of its own: it adds nothing there.
    values_K = targets.values_K * (targets.weights_K != 0)
    return values_K.new_zeros(num_tokens).index_add_(0, targets.positions_K, values_K), weights_T


def tokens_after(batch: Batch) -> Targets:
    """Of each token the one after it, as far as the sequence goes or the batch says."""
    return next_tokens(batch) if batch.labels_T is None else stated_tokens(batch)


def next_tokens(batch: Batch, each_sequence_once: bool = False) -> Targets:
    """At every token of a sequence but the last, the one after it; each counts once, or each sequence does in all."""
    device, num_real = batch.ids_T.device, batch.num_real_sequences
    num_targets = np.maximum(np.diff(batch.starts_host[: num_real + 1]) - 1, 0)
    starts_host = np.concatenate([[0], np.cumsum(num_targets), np.full(batch.num_padding_sequences, num_targets.sum())])
    starts_N = batch.starts[:num_real].long()
    num_targets_N = (batch.starts[1 : num_real + 1] - starts_N - 1).clamp(min=0)
    sequence_K = torch.repeat_interleave(
        torch.arange(num_real, device=device), num_targets_N, output_size=int(starts_host[-1])
    )
    # As far into its sequence as target k is behind the first target of it.
    moved_N = starts_N - (num_targets_N.cumsum(0) - num_targets_N)
    positions_K = torch.arange(len(sequence_K), device=device) + moved_N[sequence_K]
    values_K = batch.ids_T[positions_K + 1]
    weights_K = 1 / num_targets_N[sequence_K] if each_sequence_once else torch.ones(len(values_K), device=device)
    return Targets(positions_K, values_K, weights_K, starts_host)


def stated_tokens(batch: Batch) -> Targets:
    """At every token what the batch says comes after it; -1 is no token."""
    values_K = batch.labels_T[: batch.num_real_tokens]
    starts_host = np.minimum(batch.starts_host, batch.num_real_tokens)
    positions_K = torch.arange(len(values_K), device=values_K.device)
    return Targets(positions_K, values_K.clamp(min=0), (values_K >= 0).float(), starts_host)
