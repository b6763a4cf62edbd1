"""Masked and next-token prediction in one model (GPT-BERT, Charpentier and Samuel 2024, arXiv 2410.24159), which can
then be used as an encoder and as a decoder.

clm = - sum over the tokens read from left to right of log p(next token | the tokens up to this one)
mlm = - sum over the masked tokens of log p(token | the rest of the text, corrupted)

A part of every batch is read from left to right, the rest in both directions (`Batch.num_causal`). A masked token is
predicted at the position before it, so that every position predicts the next token in both parts, with the same head.
The first token of a sequence has no position before it: if it is masked, it is not predicted. A term weighs as much as
its share of the text.

    objective = HybridObjective(Masking(MaskingSettings(), vocab_size, mask_id, special_ids), mlm_fraction=0.5)
    step_inputs = objective.prepare(batch, seed)
    objective.loss_sums(model, step_inputs)              # {"clm": ..., "mlm": ...}
"""

import dataclasses

import numpy as np
import torch

from hornbook.batch import Batch
from hornbook.objectives.clm import ClmObjective, next_token_targets
from hornbook.objectives.masking import Masking
from hornbook.train.objective import StepInputs, Targets
from hornbook.train.randomness import token_keys


class HybridObjective(ClmObjective):
    """Next-token prediction on the sequences read from left to right, masked prediction on the others."""

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
        is_first_K = bidirectional.positions_T[mlm.positions_K] == 0
        num_clm = np.full(bidirectional.num_sequences, clm.offsets_host[-1])
        clm = dataclasses.replace(clm, offsets_host=np.concatenate([clm.offsets_host, num_clm]))
        mlm = Targets(
            mlm.positions_K - (~is_first_K).long() + batch.num_causal,
            mlm.values_K,
            mlm.weights_K * ~is_first_K,
            offsets_host=np.concatenate([np.zeros(num_causal_sequences, np.int64), mlm.offsets_host]),
        )
        corrupted = batch.with_values("tokens", ids_T=torch.cat([causal.ids_T, ids_T]))
        return StepInputs(corrupted.with_streams({"clm": clm, "mlm": mlm}))
