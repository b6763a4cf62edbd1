"""ELECTRA's generator and discriminator: outputs and gradients equal those of `transformers`; folders open in both
libraries."""

import numpy as np
import pytest
import torch
import transformers

from hornbook.batch import pack
from hornbook.interop.folder import load_model, save_model
from hornbook.models.electra import Electra, ElectraConfig, ElectraPair, generator_config
from hornbook.models.transformer import VOCABULARY_PADDING
from hornbook.runs.pretraining.presets import PRESETS

SIZE = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 80, "vocab_size": 101}
CLASSES = {"rtd": transformers.ElectraForPreTraining, "mlm": transformers.ElectraForMaskedLM}


def their_model(tmp_path, head: str, **changes):
    torch.manual_seed(0)
    settings = SIZE | {"max_position_embeddings": 64, "attn_implementation": "eager", "embedding_size": 16} | changes
    model = CLASSES[head](transformers.ElectraConfig(**settings)).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # norms and biases away from 1 and 0
            parameter.add_(0.05 * torch.randn_like(parameter))
    model.save_pretrained(tmp_path)
    return model


def sequences(random: np.random.Generator) -> tuple[list, list]:
    lengths = [21, 9, 33, 1]
    ids = [random.integers(1, 101, n) for n in lengths]  # 0 is padding there: its row gets no gradient
    return ids, [np.arange(n) >= n // 2 for n in lengths]


def their_logits(model, ids: list, segments: list) -> torch.Tensor:
    """Of the true tokens end to end, from a padded batch with a mask."""
    longest = max(map(len, ids))
    padded = torch.zeros(len(ids), longest, dtype=torch.long)
    kinds, mask = torch.zeros_like(padded), torch.zeros_like(padded)
    for i, (row, segment) in enumerate(zip(ids, segments, strict=True)):
        padded[i, : len(row)] = torch.from_numpy(row)
        kinds[i, : len(row)] = torch.from_numpy(segment.astype(np.int64))
        mask[i, : len(row)] = 1
    return model(input_ids=padded, token_type_ids=kinds, attention_mask=mask).logits[mask.bool()]


def our_logits(model: Electra, batch, head: str) -> torch.Tensor:
    x_TD = model(batch)
    return model.rtd(x_TD) if head == "rtd" else model.vocabulary_logits(x_TD)[:, : model.config.vocab_size]


@pytest.mark.parametrize("head", ["rtd", "mlm"])
@pytest.mark.parametrize("changes", [{}, {"embedding_size": 32}, {"hidden_act": "relu"}])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)])
def test_outputs_and_gradients(tmp_path, random, head, changes, dtype, tolerance):
    theirs = their_model(tmp_path, head, **changes).to(dtype)
    ours = load_model(tmp_path).to(dtype)
    assert ours.heads == (head,)
    assert (ours.project is None) == (changes == {"embedding_size": 32})
    ids, segments = sequences(random)
    expected, found = their_logits(theirs, ids, segments), our_logits(ours, pack(ids, segments), head)
    assert (found - expected).abs().max() <= tolerance * max(1.0, expected.abs().max())
    (expected**2).mean().backward()
    (found**2).mean().backward()
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    parameters = dict(ours.named_parameters())
    for name, outside in ours.naming.hf_names(ours).items():
        gradient = parameters[name].grad
        if name in VOCABULARY_PADDING:
            assert gradient[ours.config.vocab_size :].abs().max() == 0
            gradient = gradient[: ours.config.vocab_size]
        reference = torch.cat([gradients[each] for each in outside])
        assert (gradient - reference).abs().max() <= tolerance * max(reference.abs().max(), 1e-2), name


@pytest.mark.parametrize("heads", [("rtd",), ("mlm",), ()])
@pytest.mark.parametrize("embedding_width", [16, 32])
def test_transformers_opens_what_we_write(tmp_path, random, heads, embedding_width):
    config = ElectraConfig(101, 2, 32, 4, 64, 64, embedding_width=embedding_width)
    model = Electra(config, heads)
    model.initialize(torch.Generator().manual_seed(3))
    model.eval()
    save_model(tmp_path, model)
    kind = {("rtd",): "ElectraForPreTraining", ("mlm",): "ElectraForMaskedLM", (): "ElectraModel"}[heads]
    theirs, report = getattr(transformers, kind).from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    ids = random.integers(0, 101, 17)
    expected = theirs.base_model.eval()(torch.from_numpy(ids)[None]).last_hidden_state[0]
    assert torch.allclose(model(pack([ids])), expected, atol=1e-5)
    assert type(transformers.AutoModelForPreTraining.from_pretrained(tmp_path)).__name__ == "ElectraForPreTraining"
    again = load_model(tmp_path)
    assert again.heads == heads and again.config == config
    assert all(torch.equal(value, again.state_dict()[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("preset", "published_millions", "generator_width"),
    [("electra-small", 14, 64), ("electra-base", 110, 256), ("electra-large", 335, 256)],
)
def test_published_sizes(preset, published_millions, generator_width):
    found = PRESETS[preset]
    with torch.device("meta"):
        model = Electra(found.model, ("rtd",))
    assert round(sum(p.numel() for p in model.parameters()) / 1e6) == pytest.approx(published_millions, abs=1)
    generator = generator_config(found.model, found.objective.generator_size)
    assert generator.width == generator_width and generator.width // generator.num_heads == 64
    assert generator.num_layers == found.model.num_layers
    assert generator.embedding_width == found.model.embedding_width


@pytest.mark.parametrize("shared", ["embeddings", "tokens", "followed", "none", "all"])
def test_what_the_two_share(shared):
    config = ElectraConfig(101, 2, 32, 4, 64, 64, embedding_width=16)
    smaller = generator_config(config, 1.0 if shared == "all" else 0.25)
    pair = ElectraPair(config, smaller, shared)
    pair.initialize(torch.Generator().manual_seed(0))
    generator, discriminator = dict(pair.generator.named_parameters()), dict(pair.discriminator.named_parameters())
    both = {name for name in generator if generator[name] is discriminator.get(name)}
    tables = {f"embeddings.{name}.weight" for name in ("tokens", "positions", "segments", "norm")}
    expected = {
        "embeddings": tables | {"embeddings.norm.bias"},
        "tokens": {"embeddings.tokens.weight"},
        "followed": set(),
        "none": set(),
        "all": set(discriminator) & set(generator),
    }
    assert both == expected[shared]
    assert pair.generator.vocabulary_logits(torch.zeros(1, smaller.width)).shape == (1, 128)


def test_error_for_a_width_that_no_head_divides_names_the_nearest():
    with pytest.raises(ValueError, match=r"try 0\.5 or 0\.75"):
        generator_config(ElectraConfig(width=32, num_heads=4, inner_width=64), 0.6)
    with pytest.raises(ValueError, match=r"try 0\.2812 or 0\.3125"):
        generator_config(PRESETS["electra-base"].model, 0.3)
    assert generator_config(PRESETS["electra-small"].model, 0.125).width == 32  # one narrow head


def test_matrices_drawn_by_width_act_as_those_of_a_base():
    """The root of the width times the deviation is that of 768 x 0.02, in both encoders; tables stay as published."""
    config = ElectraConfig(500, 2, 192, 3, 768, 64, embedding_width=64, init_by_width=True)
    pair = ElectraPair(config, generator_config(config, 1 / 3))
    pair.initialize(torch.Generator().manual_seed(0))
    for encoder in (pair.generator, pair.discriminator):
        block = encoder.blocks[1]
        gain = float(block.fc1.weight.detach().std()) * encoder.config.width**0.5
        assert gain == pytest.approx(0.88 * 0.02 * 768**0.5, rel=0.03)  # cut at two deviations, 0.88 is left
    assert float(pair.discriminator.embeddings.tokens.weight[:500].detach().std()) == pytest.approx(
        0.88 * 0.02, rel=0.03
    )
