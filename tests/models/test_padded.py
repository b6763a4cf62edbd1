"""Padded rows with a mask answer as packed batches do, for every family and every head; and padding changes nothing."""

import numpy as np
import pytest
import torch
from small_families import FAMILIES, OUR_SIZE, moved, sequences, to_padded

from hornbook.batch import pack
from hornbook.models.gpt import Gpt1, Gpt1Config, Gpt2, Gpt2Config
from hornbook.models.head_config import MASKED_LOGIT, HeadConfig
from hornbook.models.padded import PaddedModel, input_names, output_names

LABELS = ("no", "maybe", "yes")
OUTPUTS = {
    "none": None,
    "single": HeadConfig("sequence", 3, LABELS),
    "number": HeadConfig("sequence", 1, ("score",), "regression"),
    "choice": HeadConfig("choice"),
    "tokens": HeadConfig("tokens", 3, LABELS),
    "spans": HeadConfig("spans", 2),
    "answerable": HeadConfig("spans", 2, has_answer_classifier=True),
    "mlp": HeadConfig("sequence", 3, LABELS, layers="mlp"),
    "cnn": HeadConfig("sequence", 3, LABELS, layers="cnn"),
    "attention": HeadConfig("sequence", 3, LABELS, layers="attention"),
    "separate": HeadConfig("sequence", 3, LABELS, pair_encoding="separate"),
    "both": HeadConfig("sequence", 3, LABELS, pair_encoding="both"),
}
TOGETHER = {"choice": 3, "separate": 2, "both": 2}
GPT_SIZE = OUR_SIZE | {"vocab_size": 90, "max_positions": 32}
CONFIGS = {name: (family.model, family.config()) for name, family in FAMILIES.items()}
CONFIGS |= {
    "causal": (FAMILIES["bert"].model, FAMILIES["bert"].config(direction="causal")),
    "sinusoidal": (FAMILIES["bert"].model, FAMILIES["bert"].config(positions="sinusoidal")),
    "gpt1": (Gpt1, Gpt1Config(**GPT_SIZE | {"inner_width": 128})),
    "gpt2": (Gpt2, Gpt2Config(**GPT_SIZE)),
    "window": (Gpt2, Gpt2Config(**GPT_SIZE, window=3)),
}
LENGTHS = [13, 3, 20, 7, 7, 16]


def model_of(name: str, head_config: HeadConfig | None):
    kind, config = CONFIGS[name]
    torch.manual_seed(0)
    heads = () if head_config is None else kind.heads_for(head_config)
    return moved(kind(config, heads, head_config)).double()


def padded_inputs(model, ids: list, segments: list, together: int, filler: int) -> list[torch.Tensor]:
    longest = max(map(len, ids))
    rows = {
        "input_ids": to_padded(ids, longest, filler),
        "attention_mask": to_padded([np.ones(len(row), int) for row in ids], longest),
        "token_type_ids": to_padded(segments, longest, filler % 2),
    }
    named = [rows[name] for name in input_names(model.config)]
    return [each.unflatten(0, (-1, together)) for each in named] if together > 1 else named


def as_packed(found: tuple[torch.Tensor, ...], head_config: HeadConfig | None) -> torch.Tensor:
    """The named tensors in the shape that a packed batch is answered in."""
    if head_config is None or head_config.output == "tokens":
        return torch.cat([row[:length] for row, length in zip(found[0], LENGTHS, strict=True)])
    if head_config.output == "spans":
        return torch.cat([torch.stack(found[:2], -1), *(each[:, None] for each in found[2:])], 1)
    return found[0]


@pytest.mark.parametrize("kind", OUTPUTS)
@pytest.mark.parametrize("name", CONFIGS)
@torch.no_grad()
def test_padded_rows_answer_as_a_packed_batch(name, kind, random):
    head_config, together = OUTPUTS[kind], TOGETHER.get(kind, 1)
    model = model_of(name, head_config)
    ids, segments = sequences(random, LENGTHS)
    batch = pack(ids, segments, group_size=together)
    expected = model(batch) if head_config is None else model.outputs(batch)
    for filler in (0, 55):
        found = PaddedModel(model)(*padded_inputs(model, ids, segments, together, filler))
        assert len(found) == len(output_names(head_config))
        assert (as_packed(found, head_config) - expected).abs().max() < 1e-9
        if head_config is not None and head_config.output == "spans":
            assert (found[0][1, LENGTHS[1] :] == MASKED_LOGIT).all()


@torch.no_grad()
def test_a_row_without_any_token_spoils_no_other(random):
    model = model_of("causal", None)
    ids, segments = sequences(random, [6, 4])
    rows = padded_inputs(model, ids, segments, 1, 0)
    rows[1][1] = 0
    (found,) = PaddedModel(model)(*rows)
    assert found.isfinite().all()
    assert (found[0] - model(pack(ids[:1], segments[:1]))).abs().max() < 1e-9


def test_names_are_those_of_transformers():
    names = {name: input_names(config) for name, (_, config) in CONFIGS.items()}
    with_segments = ("input_ids", "attention_mask", "token_type_ids")
    assert names["bert"] == names["albert"] == names["electra"] == with_segments
    assert names["distilbert"] == names["roberta"] == names["gpt2"] == with_segments[:2]
    assert output_names(None) == ("last_hidden_state",)
    assert output_names(OUTPUTS["spans"]) == ("start_logits", "end_logits")
    assert {output_names(OUTPUTS[kind]) for kind in ("single", "number", "choice", "tokens", "cnn")} == {("logits",)}


def test_a_head_that_follows_sequences_to_their_ends_is_refused():
    with pytest.raises(ValueError, match=r"bilstm.*\(task.head=\): linear, mlp, cnn or attention"):
        PaddedModel(model_of("bert", HeadConfig("sequence", 3, LABELS, layers="bilstm")))
