"""Every family in a small size, here and in `transformers`, for tests that hold of all of them."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import transformers

from hornbook.interop.folder import first_names
from hornbook.models.albert import Albert
from hornbook.models.bert import Bert
from hornbook.models.distilbert import Distilbert
from hornbook.models.electra import Electra
from hornbook.models.encoder import Encoder, EncoderConfig
from hornbook.models.head_config import HeadConfig
from hornbook.models.roberta import Roberta
from hornbook.models.transformer import VOCABULARY_PADDING

VOCABULARY, POSITIONS = 90, 32  # 90 is not a multiple of 64: padded inside
FIRST_ID = 2  # 0 and 1 may be padding there: such a row gets no gradient
OUR_SIZE = {"num_layers": 2, "width": 32, "num_heads": 4, "inner_width": 48}
THEIR_SIZE = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48}
OUR_DROPOUTS = {"dropout": 0.0, "attention_dropout": 0.0}
THEIR_DROPOUTS = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@dataclass(frozen=True)
class Family:
    model: type[Encoder]
    ours: dict[str, Any] = field(default_factory=dict)
    theirs: dict[str, Any] = field(default_factory=dict)
    pad_id: int = 0
    num_offset_rows: int = 0

    def config(self, **changes) -> EncoderConfig:
        size = OUR_SIZE | OUR_DROPOUTS | {"vocab_size": VOCABULARY, "max_positions": POSITIONS}
        return self.model.config_class(**size | self.ours | changes)

    def their_config(self, **changes) -> transformers.PreTrainedConfig:
        size = THEIR_SIZE | THEIR_DROPOUTS | {"vocab_size": VOCABULARY, "attn_implementation": "eager"}
        size["max_position_embeddings"] = POSITIONS + self.num_offset_rows
        kind = getattr(transformers, f"{self.model.naming.stem}Config")
        return kind(**size | self.theirs | changes)

    def their_class(self, head_config: HeadConfig) -> type[transformers.PreTrainedModel]:
        naming = self.model.naming
        return getattr(transformers, naming.stem + naming.task_classes[head_config.output])

    def padded(self, ids: list, segments: list) -> dict[str, torch.Tensor]:
        """The sequences as `transformers` takes them: a rectangle with a mask."""
        longest = max(map(len, ids))
        kinds = segments if self.config().num_segments > 1 else [np.zeros_like(row) for row in segments]
        inputs = {
            "input_ids": to_padded(ids, longest, self.pad_id),
            "token_type_ids": to_padded(kinds, longest),
            "attention_mask": to_padded([np.ones(len(row), int) for row in ids], longest),
        }
        return inputs if self.config().num_segments else {n: x for n, x in inputs.items() if n != "token_type_ids"}


FAMILIES = {
    "bert": Family(Bert),
    "albert": Family(
        Albert,
        {"embedding_width": 16, "head_dropout": 0.0},
        {"embedding_size": 16, "classifier_dropout_prob": 0.0},
    ),
    "electra": Family(Electra, {"embedding_width": 16}, {"embedding_size": 16, "summary_last_dropout": 0.0}),
    "roberta": Family(Roberta, {}, {"type_vocab_size": 1, "layer_norm_eps": 1e-5}, pad_id=1, num_offset_rows=2),
    "distilbert": Family(
        Distilbert,
        {"head_dropout": 0.0, "span_head_dropout": 0.0},
        {"hidden_dim": 48, "dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0, "qa_dropout": 0.0},
    ),
}


def to_padded(rows: list[np.ndarray], longest: int, filler: int = 0) -> torch.Tensor:
    return torch.tensor([[*row, *[filler] * (longest - len(row))] for row in rows])


def sequences(random: np.random.Generator, lengths: list[int]) -> tuple[list, list]:
    """Ids, and segments of which the second half is of the second kind."""
    ids = [random.integers(FIRST_ID, VOCABULARY, n) for n in lengths]
    return ids, [(np.arange(n) >= n // 2).astype(np.int64) for n in lengths]


def moved(model: torch.nn.Module, by: float = 0.1, seed: int = 1) -> torch.nn.Module:
    """Weights away from their start, so that no bias is 0 and no norm 1; rows that pad the vocabulary stay."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name not in VOCABULARY_PADDING:
                parameter.add_(by * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def check_gradients(ours: Encoder, theirs: torch.nn.Module, tolerance: float) -> None:
    """Each gradient equals theirs, or the sum of theirs where our layers share what theirs repeat; and they have no
    weight with a gradient besides."""
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    assert any(each is not None and each.abs().max() > 0.01 for each in gradients.values())
    firsts, names = first_names(ours), ours.naming.hf_names(ours)
    used = set()
    for name, parameter in ours.named_parameters():
        places = dict.fromkeys(names[other] for other, first in firsts.items() if first == name)
        reference = sum(torch.cat([gradients[each] for each in place]) for place in places)
        used.update(each for place in places for each in place)
        gradient = parameter.grad
        if name in VOCABULARY_PADDING:
            assert not gradient[ours.config.vocab_size :].any()
            gradient = gradient[: ours.config.vocab_size]
        assert (gradient - reference).abs().max() <= tolerance * max(reference.abs().max(), 1e-2), name
    rest = [name for name, each in gradients.items() if name not in used and each is not None and each.any()]
    assert not rest, "a weight that only they have"
