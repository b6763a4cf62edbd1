"""The denoising entity auto-encoder of ERNIE (`dea`; Zhang et al. 2019, arXiv 1905.07129), next to the masked language
model and the sentence task.

Of the alignments between tokens and entities, 5% get a random entity of the graph, 15% are removed, the rest are kept.
At the first token of each mention the model predicts the entity that the text mentions, among all entities that the
texts of the step mention (C, the candidates):

dea = - sum over mentions of log softmax_C((A w + a) . e_c)

where w is the hidden state of the token and e_c the input vector of a candidate. What is drawn for a mention depends on
(seed, example, position) only. It is drawn on the host, which then knows how many entities remain.

    objective = ErnieObjective(masking, ErnieSettings(), has_vector)
    step_inputs = objective.prepare(batch, seed)         # step_inputs.shared["candidates"]
    objective.loss_sums(model, step_inputs)                   # {"mlm": ..., "nsp": ..., "dea": ...}
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from hornbook.batch import ENTITIES, Batch, Entities, to_device, to_offsets
from hornbook.config import setting
from hornbook.objectives.masking import Masking
from hornbook.objectives.mlm import MlmObjective, MlmSettings
from hornbook.train.objective import StepInputs, Targets
from hornbook.train.randomness import NUM_BITS, keys_at, random_bits

TERM, CANDIDATES = "dea", "candidates"


@dataclass(frozen=True)
class ErnieSettings(MlmSettings):
    entity_weight: float = setting(1.0, "weight of the loss of predicted entities; 0: none (ablation)", low=0, high=1e6)
    replaced_fraction: float = setting(0.05, "fraction of the alignments that get a random entity", low=0, high=1)
    unlinked_fraction: float = setting(0.15, "fraction of the alignments that are removed", low=0, high=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.replaced_fraction + self.unlinked_fraction > 1:
            raise ValueError(
                "objective.replaced_fraction and objective.unlinked_fraction together must be at most 1, "
                f"not {self.replaced_fraction} and {self.unlinked_fraction}"
            )


class ErnieObjective(MlmObjective):
    """MLM, a sentence task and the prediction of entities, from one forward pass. `has_vector` tells which entities of
    the graph have a vector; mentions of others are ignored."""

    is_capturable = False

    def __init__(self, masking: Masking, settings: ErnieSettings, has_vector: np.ndarray):
        super().__init__(masking, settings.sentence, settings.sentence_weight)
        self.settings, self.has_vector = settings, has_vector
        self.known = np.flatnonzero(has_vector)
        if settings.entity_weight:
            self.weights = {**self.weights, TERM: settings.entity_weight}

    def prepare(self, batch: Batch, seed: int) -> StepInputs:
        step_inputs, device = super().prepare(batch, seed), batch.ids_T.device
        sequence_E, positions, ids = self._known_mentions(batch)
        tokens = batch.offsets_host[sequence_E] + positions
        keys = keys_at(torch.from_numpy(batch.step_index_host[sequence_E]), torch.from_numpy(positions), seed)
        read_ids, is_read = self._changed_alignments(ids, keys)
        counts = np.bincount(sequence_E[is_read], minlength=batch.num_sequences)
        read = Entities.from_arrays(tokens[is_read], positions[is_read], read_ids[is_read], to_offsets(counts))
        streams = {ENTITIES: read.map_tensors(lambda x: to_device(x.numpy(), device))}
        if TERM not in self.weights:
            return StepInputs(step_inputs.batch.with_streams(streams))
        candidates, values = np.unique(ids, return_inverse=True)
        candidates = candidates if len(ids) else np.zeros(1, np.int64)  # a softmax needs at least one
        offsets_host = to_offsets(np.bincount(sequence_E, minlength=batch.num_sequences))
        weights_K = torch.ones(len(ids), device=device)
        indices_K, values_K = (to_device(each.astype(np.int64), device) for each in (tokens, values))
        streams[TERM] = Targets(indices_K, values_K, weights_K, offsets_host=offsets_host)
        shared = {CANDIDATES: to_device(candidates, device)}
        return StepInputs(step_inputs.batch.with_streams(streams), shared)

    def _known_mentions(self, batch: Batch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(sequence, position in it, entity) of the mentions of entities with a vector, without padding."""
        entities, num_real = batch.entities, int(batch.entities.offsets_host[batch.num_real_sequences])
        sequence_E = np.repeat(np.arange(batch.num_sequences), np.diff(entities.offsets_host))
        arrays = [each[:num_real] for each in (sequence_E, entities.positions_host, entities.ids_host)]
        is_known = self.has_vector[arrays[-1]]
        return tuple(each[is_known] for each in arrays)

    def _changed_alignments(self, ids: np.ndarray, keys: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """(entity that the model reads, whether it reads one at all) of each mention."""
        change, other = random_bits(keys, "alignment", "random entity").numpy()
        fractions = np.cumsum([self.settings.replaced_fraction, self.settings.unlinked_fraction])
        replaced_below, unlinked_below = np.round(fractions * 2**NUM_BITS)
        random_ids = self.known[other * len(self.known) >> NUM_BITS] if len(ids) else ids
        is_replaced = change < replaced_below
        return np.where(is_replaced, random_ids, ids), is_replaced | (change >= unlinked_below)

    def _logits(self, model: nn.Module, x_TD: Tensor, step_inputs: StepInputs) -> dict[str, Tensor]:
        logits = super()._logits(model, x_TD, step_inputs)
        if TERM in self.weights:
            x_KD = x_TD.index_select(0, step_inputs.targets[TERM].indices_K)
            logits[TERM] = model.entity_logits(x_KD, step_inputs.shared[CANDIDATES])
        return logits
