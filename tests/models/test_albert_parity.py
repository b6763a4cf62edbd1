"""ALBERT: outputs and gradients equal those of `transformers` on the same weights, folders open in both libraries, and
the number of parameters is as published."""

import dataclasses
import json

import pytest
import torch
import transformers
from small_families import FAMILIES, check_gradients, moved, sequences

from hornbook.batch import Batch, pack
from hornbook.interop.folder import load_model, save_model
from hornbook.models.albert import Albert, AlbertConfig
from hornbook.runs.pretraining.presets import PRESETS

SMALL = FAMILIES["albert"]
LENGTHS = [13, 5, 30, 1, 27, 27]
EVERY_HEAD = ("pooler", "mlm", "sentence")


def their_model(folder, **changes) -> transformers.AlbertForPreTraining:
    torch.manual_seed(0)
    model = moved(transformers.AlbertForPreTraining(SMALL.their_config(**changes)), by=0.05)
    model.save_pretrained(folder)
    return model


def our_model(heads: tuple[str, ...] = EVERY_HEAD, **changes) -> Albert:
    model = Albert(SMALL.config(**changes), heads)
    model.initialize(torch.Generator().manual_seed(3))
    return moved(model, by=0.05)


def their_outputs(model, ids: list, segments: list) -> tuple[torch.Tensor, torch.Tensor]:
    """(MLM scores of the true tokens end to end, SOP scores) from a padded batch with a mask."""
    inputs = SMALL.padded(ids, segments)
    out = model(**inputs)
    return out.prediction_logits[inputs["attention_mask"].bool()], out.sop_logits


def our_outputs(model: Albert, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    x_TD = model(batch)
    return model.vocabulary_logits(x_TD)[:, : model.config.vocab_size], model.sentence_logits(
        x_TD[batch.offsets[:-1].long()]
    )


def loss_of(mlm: torch.Tensor, sop: torch.Tensor) -> torch.Tensor:
    """Any smooth function of all outputs, so that every weight gets a gradient."""
    return (mlm.log_softmax(-1)[:, ::7] ** 2).mean() + (sop.log_softmax(-1)[:, 0] ** 2).mean()


def check_equal(ours: Albert, theirs, random, tolerance: float = 1e-9, gradients: bool = True) -> None:
    ids, segments = sequences(random, LENGTHS)
    expected, found = their_outputs(theirs, ids, segments), our_outputs(ours, pack(ids, segments))
    for ours_each, theirs_each in zip(found, expected, strict=True):
        assert (ours_each - theirs_each).abs().max() <= tolerance * max(1.0, theirs_each.abs().max())
    if gradients:
        loss_of(*expected).backward()
        loss_of(*found).backward()
        check_gradients(ours, theirs, tolerance)


@pytest.mark.parametrize(("num_groups", "sharing"), [(1, "all"), (2, "none")])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)])
def test_outputs_and_gradients(tmp_path, random, num_groups, sharing, dtype, tolerance):
    theirs = their_model(tmp_path, num_hidden_groups=num_groups).to(dtype)
    ours = load_model(tmp_path).to(dtype)
    assert ours.config.sharing == sharing and ours.heads == EVERY_HEAD
    check_equal(ours, theirs, random, tolerance)


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_act": "gelu"},
        {"hidden_act": "relu"},
        {"embedding_size": 32},  # as wide as the blocks, and projected all the same
        {"embedding_size": 48},
        {"tie_word_embeddings": False},
        {"type_vocab_size": 3, "layer_norm_eps": 1e-3},
    ],
    ids=str,
)
def test_variants(tmp_path, random, changes):
    theirs = their_model(tmp_path, **changes).double()
    is_tied = changes.get("tie_word_embeddings", True)  # else their bias is another parameter
    check_equal(load_model(tmp_path).double(), theirs, random, gradients=is_tied)


@pytest.mark.parametrize("sharing", ["all", "attention", "ffn", "none"])
@pytest.mark.parametrize(
    ("heads", "kind"),
    [(EVERY_HEAD, "ForPreTraining"), (("mlm",), "ForMaskedLM"), (("pooler",), "Model"), ((), "Model")],
)
def test_transformers_opens_what_is_saved(tmp_path, random, sharing, heads, kind):
    ours = our_model(heads, sharing=sharing, num_layers=3)
    save_model(tmp_path, ours)
    theirs, report = getattr(transformers, f"Albert{kind}").from_pretrained(
        tmp_path, output_loading_info=True, attn_implementation="eager"
    )
    missing = {key for key in report["missing_keys"] if heads or "pooler" not in key}
    assert not missing and not report["unexpected_keys"] and not report["mismatched_keys"]
    assert theirs.config.num_hidden_groups == (1 if sharing == "all" else 3)
    ids, segments = sequences(random, LENGTHS)
    inputs = SMALL.padded(ids, segments)
    expected = theirs.double().eval().base_model(**inputs).last_hidden_state[inputs["attention_mask"].bool()]
    assert (ours.double()(pack(ids, segments)) - expected).abs().max() <= 1e-9
    if heads == EVERY_HEAD:
        check_equal(ours, theirs, random)
    again = load_model(tmp_path)
    assert again.heads == heads and again.config == ours.config
    state = again.double().state_dict()
    assert all(torch.equal(value, state[name]) for name, value in ours.state_dict().items())


def test_what_config_json_lacks_is_what_transformers_takes(tmp_path):
    """Its defaults are those of xxlarge; ours are those of base."""
    kept = {"model_type": "albert", "vocab_size": 90, "hidden_size": 64, "num_hidden_layers": 3}
    config = Albert.config_from_hf(kept)
    theirs = transformers.AlbertConfig(**kept)
    names = {"head_dropout": "classifier_dropout_prob", "embedding_width": "embedding_size"} | {
        "dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
        "num_heads": "num_attention_heads",
        "inner_width": "intermediate_size",
        "max_positions": "max_position_embeddings",
        "num_segments": "type_vocab_size",
        "norm_eps": "layer_norm_eps",
        "tied": "tie_word_embeddings",
    }
    assert all(getattr(config, ours) == getattr(theirs, outside) for ours, outside in names.items())
    assert config.activation == "gelu_tanh" and theirs.hidden_act == "gelu_new"
    assert config.sharing == "all" and theirs.num_hidden_groups == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_hidden_groups": 3}, "num_hidden_groups is 3; 1 .all 4 layers share .* and 4 "),
        ({"num_hidden_groups": "4"}, "num_hidden_groups is 4; 1 "),
        ({"inner_group_num": 2}, "inner_group_num is 2; only 1"),
        ({"sharing": "attention"}, "sharing is 'attention', which contradicts num_hidden_groups=1"),
        ({"num_hidden_groups": 4, "sharing": "all"}, "sharing is 'all', which contradicts num_hidden_groups=4"),
        ({"num_hidden_groups": 4, "sharing": "halves"}, "model.sharing must be one of all, attention, ffn, none"),
        ({"num_hidden_groups": 4}, "lacks encoder.albert_layer_groups.1"),
        ({"embedding_size": 0}, "model.embedding_width must be at least 1"),
        ({"classifier_dropout_prob": 1.5}, "model.head_dropout must be at least 0 and below 1"),
    ],
    ids=str,
)
def test_folders_that_cannot_be_used(tmp_path, changes, said):
    their_model(tmp_path, num_hidden_layers=4)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(ValueError, match=said) as refused:
        load_model(tmp_path)
    assert "\n" not in str(refused.value)


def test_one_layer_shares_with_none(tmp_path):
    """One group is then one layer, whatever the sharing."""
    for sharing in ("all", "attention", "ffn", "none"):
        save_model(tmp_path, our_model(sharing=sharing, num_layers=1))
        assert load_model(tmp_path).config.sharing == sharing


def test_the_sentence_head_drops_out_in_training_only():
    model = our_model(head_dropout=0.5).double()
    pooled_ND = torch.randn(40, 32, dtype=torch.float64)
    assert torch.equal(model.sentence(pooled_ND), model.sentence.out(pooled_ND))
    model.train()
    assert not torch.allclose(model.sentence(pooled_ND), model.sentence.out(pooled_ND))


# ---- sizes


def num_parameters(config: AlbertConfig) -> int:
    """Of the encoder with its pooler and without pre-training heads, at the true size of the vocabulary."""
    with torch.device("meta"):
        model = Albert(config, ("pooler",))
    padding = (config.padded_vocab_size - config.vocab_size) * config.embedding_width
    return sum(each.numel() for each in model.parameters()) - padding


@pytest.mark.parametrize(
    ("preset", "exact", "published_millions"),
    [
        ("albert-base", 11_683_584, 12),
        ("albert-large", 17_683_968, 18),
        ("albert-xlarge", 58_724_864, 60),
        ("albert-xxlarge", 222_595_584, 235),
    ],
)
def test_published_sizes(preset, exact, published_millions):
    """Exactly those of the released folders. The paper prints 60 and 235 million for the two largest, which its own
    widths do not give: 58.7 and 222.6 with the pooler, 59.0 and 223.2 with both heads besides."""
    config = PRESETS[preset].model
    assert num_parameters(config) == exact
    assert abs(exact / 1e6 - published_millions) < {60: 1.3, 235: 12.5}.get(published_millions, 0.5)
    with torch.device("meta"):
        theirs = transformers.AlbertModel(transformers.AlbertConfig(**Albert(config, ()).hf_config()))
    assert theirs.num_parameters() == exact


@pytest.mark.parametrize(
    ("sharing", "width", "published_millions"),
    [
        ("all", 64, 10),
        ("all", 128, 12),
        ("all", 256, 16),
        ("all", 768, 31),
        ("attention", 128, 64),
        ("attention", 768, 83),
        ("ffn", 128, 38),
        ("ffn", 768, 57),
        ("none", 64, 87),
        ("none", 128, 89),
        ("none", 256, 93),
        ("none", 768, 108),
    ],
)
def test_published_sizes_by_sharing_and_embedding_width(sharing, width, published_millions):
    """Base, to the printed million. The paper rounds some down (89.65 to 89); at 768 its code does not project, which
    `transformers` always does with 0.6 million, and 108 leaves out the pooler, another 0.6."""
    config = dataclasses.replace(PRESETS["albert-base"].model, sharing=sharing, embedding_width=width)
    millions = num_parameters(config) / 1e6
    if width == config.width:
        millions -= (width + 1) * width / 1e6
    assert -0.5 < millions - published_millions < 1.1
