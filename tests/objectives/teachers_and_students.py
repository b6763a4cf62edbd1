"""Small teachers and students, and a batch that both read."""

import numpy as np
import torch

from hornbook.batch import Batch, pack
from hornbook.models.bert import Bert
from hornbook.models.distillation_pair import DistillationPair
from hornbook.models.encoder import Encoder
from hornbook.models.head_config import HeadConfig
from hornbook.objectives.distillation.matching import StageRecipe
from hornbook.objectives.distillation.objective import CorpusDistillation, pair_for
from hornbook.objectives.masking import Masking, MaskingSettings

VOCABULARY, MASK, SPECIAL = 70, 4, [0, 1, 2, 3, 4]
LENGTHS = [12, 30, 7, 21]
QUERIES, KEYS, VALUES = range(3)


def encoder(kind: type[Encoder], seed: int, heads=("mlm",), head_config: HeadConfig | None = None, **size) -> Encoder:
    usual = {"num_layers": 2, "width": 24, "num_heads": 2, "inner_width": 32, "max_positions": 32, "init_std": 0.3}
    config = kind.config_class(VOCABULARY, **usual | {"dropout": 0.0, "attention_dropout": 0.0} | size)
    if head_config is not None:
        heads = kind.heads_for(head_config)
    model = kind(config, heads, head_config)
    model.initialize(torch.Generator().manual_seed(seed))
    return model.double().eval()


def teacher_of(seed: int = 1, **overrides) -> Encoder:
    return encoder(Bert, seed, **{"num_layers": 4, "width": 40, "num_heads": 2} | overrides)


def batch_of(seed: int = 0, **labels) -> Batch:
    random = np.random.default_rng(seed)
    ids = [np.concatenate([[2], random.integers(5, VOCABULARY, n - 2), [3]]) for n in LENGTHS]
    return pack(ids, [(np.arange(n) >= n // 2).astype(int) for n in LENGTHS], max_length=32, **labels)


def corpus_objective(recipe: StageRecipe, student: Encoder, teacher: Encoder, soft_targets="all") -> CorpusDistillation:
    masking = Masking(MaskingSettings(probability=0.3), VOCABULARY, MASK, SPECIAL)
    return CorpusDistillation(masking, recipe, student.config, teacher.config, soft_targets)


def pair_of(objective, student: Encoder, teacher: Encoder) -> DistillationPair:
    pair = pair_for(objective.recipe, student, teacher)
    pair.initialize_projections(torch.Generator().manual_seed(5))
    return pair.double()


def drawn_of(objective, batch: Batch | None = None):
    return objective.prepare(batch or batch_of(), 0)


def alone(batch: Batch) -> list[Batch]:
    """Each sequence as a separate batch."""
    return [batch.slice(i, i + 1) for i in range(batch.num_sequences)]


def qkv_by_hand(model: Encoder, batch: Batch, layer: int) -> list[torch.Tensor]:
    """Queries, keys and values of a layer, H x S x C, from what goes into it."""
    attention = model.blocks[layer - 1].attention
    rows = attention.qkv(model.hidden_states(batch)[layer - 1]).chunk(3, -1)
    return [row.unflatten(-1, (attention.num_heads, -1)).transpose(0, 1) for row in rows]
