"""RoBERTa: outputs and gradients equal those of `transformers` on the same weights, for any position offset; folders
open in both libraries."""

import json

import numpy as np
import pytest
import torch
import transformers
from small_families import FAMILIES, POSITIONS, check_gradients, moved, sequences, to_padded

from hornbook.batch import pack
from hornbook.interop.folder import load_model, save_model
from hornbook.models.head_config import HeadConfig
from hornbook.models.roberta import Roberta
from hornbook.runs.pretraining.presets import PRESETS

SMALL = FAMILIES["roberta"]
LENGTHS = [13, 5, POSITIONS, 1, 27, 27]


def their_model(folder, kind: type = transformers.RobertaForMaskedLM, **changes):
    torch.manual_seed(0)
    model = moved(kind(SMALL.their_config(**changes)), by=0.05)
    model.save_pretrained(folder)
    return model


def our_model(heads: tuple[str, ...] = ("mlm",), **changes) -> Roberta:
    model = Roberta(SMALL.config(**changes), heads)
    model.initialize(torch.Generator().manual_seed(3))
    return moved(model, by=0.05)


def check_equal(ours: Roberta, theirs, random, tolerance: float = 1e-9, gradients: bool = True) -> None:
    """Scores of the true tokens of a padded batch; positions are left to them to count."""
    ids, segments = sequences(random, LENGTHS)
    pad_id = ours.config.position_offset - 1
    ids = [np.where(row == pad_id, pad_id + 1, row) for row in ids]  # padding inside a text would shift their count
    inputs = SMALL.padded(ids, segments) | {"input_ids": to_padded(ids, max(LENGTHS), pad_id)}
    expected = theirs(**inputs).logits[inputs["attention_mask"].bool()]
    found = ours.vocabulary_logits(ours(pack(ids, segments)))[:, : ours.config.vocab_size]
    assert (found - expected).abs().max() <= tolerance * max(1.0, expected.abs().max())
    if gradients:
        for scores in (expected, found):
            (scores.log_softmax(-1)[:, ::7] ** 2).mean().backward()
        check_gradients(ours, theirs, tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)])
def test_outputs_and_gradients(tmp_path, random, dtype, tolerance):
    theirs = their_model(tmp_path).to(dtype)
    ours = load_model(tmp_path).to(dtype)
    assert ours.heads == ("mlm",) and ours.config == SMALL.config()
    check_equal(ours, theirs, random, tolerance)


@pytest.mark.parametrize(
    "changes",
    [
        {"pad_token_id": 0, "max_position_embeddings": POSITIONS + 1},
        {"pad_token_id": 7, "max_position_embeddings": POSITIONS + 8},
        {"hidden_act": "gelu_new"},  # the vocabulary head has gelu all the same
        {"hidden_act": "relu", "layer_norm_eps": 1e-3},
        {"tie_word_embeddings": False},
        {"is_decoder": True},
    ],
    ids=str,
)
def test_variants(tmp_path, random, changes):
    theirs = their_model(tmp_path, **changes).double()
    ours = load_model(tmp_path).double()
    assert ours.config.max_positions == POSITIONS
    is_tied = changes.get("tie_word_embeddings", True)  # else their bias is another parameter
    check_equal(ours, theirs, random, gradients=is_tied)


def test_two_kinds_of_segment(tmp_path, random):
    theirs = their_model(tmp_path, transformers.RobertaModel, type_vocab_size=2).double()
    ours = load_model(tmp_path).double()
    ids, segments = sequences(random, LENGTHS)
    inputs = SMALL.padded(ids, segments) | {"token_type_ids": to_padded(segments, max(LENGTHS))}
    out = theirs(**inputs)
    x_TD = ours(pack(ids, segments))
    assert (x_TD - out.last_hidden_state[inputs["attention_mask"].bool()]).abs().max() <= 1e-9
    starts = np.cumsum([0, *LENGTHS[:-1]])
    assert ours.heads == ("pooler",)
    assert (ours.pooled(x_TD[starts]) - out.pooler_output).abs().max() <= 1e-9


@pytest.mark.parametrize(("heads", "kind"), [(("mlm",), "ForMaskedLM"), (("pooler",), "Model"), ((), "Model")])
@pytest.mark.parametrize("offset", [1, 2, 5])
def test_transformers_opens_what_is_saved(tmp_path, random, heads, kind, offset):
    ours = our_model(heads, position_offset=offset)
    save_model(tmp_path, ours)
    theirs, report = getattr(transformers, f"Roberta{kind}").from_pretrained(
        tmp_path, output_loading_info=True, attn_implementation="eager"
    )
    missing = {key for key in report["missing_keys"] if heads or "pooler" not in key}
    assert not missing and not report["unexpected_keys"] and not report["mismatched_keys"]
    assert theirs.config.pad_token_id == offset - 1
    assert theirs.config.max_position_embeddings == POSITIONS + offset
    again = load_model(tmp_path)
    assert again.heads == heads and again.config == ours.config
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in ours.state_dict().items())
    if heads == ("mlm",):
        check_equal(ours.double(), theirs.double().eval(), random)


def test_what_config_json_lacks_is_what_transformers_takes():
    kept = {"model_type": "roberta", "vocab_size": 90, "hidden_size": 48, "num_hidden_layers": 3}
    config, theirs = Roberta.config_from_hf(kept), transformers.RobertaConfig(**kept)
    assert config.position_offset == theirs.pad_token_id + 1
    assert config.max_positions + config.position_offset == theirs.max_position_embeddings
    names = {
        "dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
        "num_heads": "num_attention_heads",
        "inner_width": "intermediate_size",
        "num_segments": "type_vocab_size",
        "norm_eps": "layer_norm_eps",
        "activation": "hidden_act",
        "tied": "tie_word_embeddings",
    }
    assert all(getattr(config, ours) == getattr(theirs, outside) for ours, outside in names.items())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pad_token_id": None}, "its pad_token_id is None, but must be a number, as positions are counted from it"),
        ({"pad_token_id": -1}, "position_offset must be at least 1"),
        ({"pad_token_id": 60}, "max_positions must be at least 1"),
        ({"pad_token_id": 0, "max_position_embeddings": POSITIONS}, "restore"),
        ({"max_position_embeddings": "34"}, "cannot be used"),
    ],
    ids=str,
)
def test_folders_that_cannot_be_used(tmp_path, changes, said):
    their_model(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(ValueError, match=said) as refused:
        load_model(tmp_path)
    assert "\n" not in str(refused.value)


def test_a_head_that_the_family_lacks():
    with pytest.raises(ValueError, match="roberta has no rtd head"):
        Roberta(SMALL.config(), ("pooler", "mlm", "rtd"))


@pytest.mark.parametrize(
    ("head_config", "heads", "has_layer"),
    [
        (HeadConfig("sequence", 2), (), True),
        (HeadConfig("sequence", 2, layers="mlp"), (), True),
        (HeadConfig("sequence", 2, pair_encoding="separate"), (), True),
        (HeadConfig("sequence", 2, layers="cnn"), (), False),
        (HeadConfig("choice"), ("pooler",), False),
        (HeadConfig("tokens", 2), (), False),
        (HeadConfig("spans", 2), (), False),
    ],
    ids=lambda value: getattr(value, "output", None),
)
def test_what_a_task_goes_through(head_config, heads, has_layer):
    """`<s>` through a layer of the task's own; choices through the pooler, as published."""
    assert Roberta.heads_for(head_config) == heads
    assert (Roberta.pooling_layer(SMALL.config(), head_config) is not None) == has_layer


def test_positions_count_from_the_pad_token_of_the_vocabulary():
    config = SMALL.config()
    assert Roberta.for_tokenizer(config, 0).position_offset == 1
    assert Roberta.for_tokenizer(config, 4).max_positions == config.max_positions
    assert Roberta.for_tokenizer(config, None) == config


@pytest.mark.parametrize(("preset", "exact"), [("roberta-base", 124_645_632), ("roberta-large", 355_359_744)])
def test_published_sizes(preset, exact):
    """The encoder with its pooler, at 50,265 tokens and 514 rows of positions; published as 125M and 355M."""
    config = PRESETS[preset].model
    with torch.device("meta"):
        model = Roberta(config, ("pooler",))
        theirs = transformers.RobertaModel(transformers.RobertaConfig(**model.hf_config()))
    padding = (config.padded_vocab_size - config.vocab_size) * config.width
    assert sum(each.numel() for each in model.parameters()) - padding == theirs.num_parameters() == exact
