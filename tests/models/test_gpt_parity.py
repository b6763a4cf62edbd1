"""GPT-1 and GPT-2: outputs and gradients equal those of `transformers` on the same weights; folders open in both
libraries; no token attends to a later one."""

import json

import numpy as np
import pytest
import torch
import transformers
from small_families import moved, to_padded

from hornbook.batch import pack
from hornbook.interop.folder import load_model, save_model
from hornbook.models.gpt import Gpt, Gpt1, Gpt2
from hornbook.models.head_config import HeadConfig
from hornbook.models.transformer import VOCABULARY_PADDING
from hornbook.nn.block import PackedLayout
from hornbook.runs.pretraining.presets import PRESETS, presets_of

VOCABULARY, POSITIONS = 90, 32
LENGTHS = [13, 5, POSITIONS, 1, 27, 27]
SIZE = {"num_layers": 3, "width": 32, "num_heads": 4, "inner_width": 128}
THEIRS = {"n_layer": 3, "n_embd": 32, "n_head": 4, "n_positions": POSITIONS, "vocab_size": VOCABULARY}
DROPOUTS = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
FAMILIES = {
    "openai-gpt": (Gpt1, transformers.OpenAIGPTLMHeadModel, transformers.OpenAIGPTConfig),
    "gpt2": (Gpt2, transformers.GPT2LMHeadModel, transformers.GPT2Config),
}


def their_model(folder, family: str, kind: type | None = None, **changes):
    torch.manual_seed(0)
    _, usual, config = FAMILIES[family]
    settings = THEIRS | DROPOUTS | {"attn_implementation": "eager", "pad_token_id": 0} | changes
    model = moved((kind or usual)(config(**settings)), by=0.05)
    model.save_pretrained(folder)
    return model


def our_model(family: str, head_config: HeadConfig | None = None, seed: int = 3, **changes) -> Gpt:
    kind = FAMILIES[family][0]
    config = kind.config_class(vocab_size=VOCABULARY, max_positions=POSITIONS, **SIZE | changes)
    model = kind(config, ("clm",), head_config)
    model.initialize(torch.Generator().manual_seed(seed))
    return moved(model, by=0.05)


def texts(random: np.random.Generator, lengths: list[int] = LENGTHS) -> list[np.ndarray]:
    return [random.integers(2, VOCABULARY, n) for n in lengths]


def padded(ids: list[np.ndarray]) -> dict[str, torch.Tensor]:
    longest = max(map(len, ids))
    mask = to_padded([np.ones(len(row), int) for row in ids], longest)
    return {"input_ids": to_padded(ids, longest), "attention_mask": mask}


def check_equal(ours: Gpt, theirs, random, tolerance: float = 1e-9) -> None:
    """Scores of every next token, and the gradient of every weight."""
    ids = texts(random)
    inputs = padded(ids)
    expected = theirs(**inputs).logits[inputs["attention_mask"].bool()]
    found = ours.vocabulary_logits(ours(pack(ids)))
    assert (found[:, VOCABULARY:] < -9e3).all() and found.shape[1] == 128
    found = found[:, :VOCABULARY]
    assert (found - expected).abs().max() <= tolerance * max(1.0, expected.abs().max())
    for scores in (expected, found):
        (scores.log_softmax(-1)[:, ::7] ** 2).mean().backward()
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    names = ours.naming.hf_names(ours)
    for name, parameter in ours.named_parameters():
        gradient, (outside,) = parameter.grad, names[name]
        if name in VOCABULARY_PADDING:
            assert not gradient[VOCABULARY:].any()
            gradient = gradient[:VOCABULARY]
        reference = gradients.pop(outside)
        reference = reference.T if ours.naming.is_transposed(name) else reference
        assert (gradient - reference).abs().max() <= tolerance * max(reference.abs().max(), 1e-2), name
    assert not gradients, "a weight that only they have"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)])
def test_outputs_and_gradients(tmp_path, random, family, dtype, tolerance):
    theirs = their_model(tmp_path, family).to(dtype)
    ours = load_model(tmp_path).to(dtype)
    assert isinstance(ours, FAMILIES[family][0]) and ours.heads == ("clm",)
    check_equal(ours, theirs, random, tolerance)


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("gpt2", {"n_inner": 48}),
        ("gpt2", {"activation_function": "relu", "layer_norm_epsilon": 1e-3}),
        ("gpt2", {"activation_function": "gelu"}),
        ("gpt2", {"tie_word_embeddings": False}),
        ("openai-gpt", {"afn": "relu", "layer_norm_epsilon": 1e-3}),
    ],
    ids=str,
)
def test_variants(tmp_path, random, family, changes):
    theirs = their_model(tmp_path, family, **changes).double()
    check_equal(load_model(tmp_path).double(), theirs, random)


@pytest.mark.parametrize("family", FAMILIES)
def test_hidden_states(tmp_path, random, family):
    theirs = their_model(tmp_path, family).double()
    ours = load_model(tmp_path).double()
    ids = texts(random)
    inputs = padded(ids)
    expected = theirs(**inputs, output_hidden_states=True).hidden_states
    found = ours.hidden_states(pack(ids))
    assert len(found) == len(expected) == 4
    for mine, other in zip(found, expected, strict=True):
        assert (mine - other[inputs["attention_mask"].bool()]).abs().max() < 1e-9


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tied", [True, False])
def test_transformers_opens_what_is_saved(tmp_path, random, family, tied):
    if family == "openai-gpt" and not tied:
        pytest.skip("their head is tied whatever the config says")
    ours = our_model(family, tied=tied, eos_id=7)
    save_model(tmp_path, ours)
    theirs, report = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, output_loading_info=True, attn_implementation="eager"
    )
    assert type(theirs) is FAMILIES[family][1]
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    assert theirs.config.eos_token_id == theirs.config.bos_token_id == 7
    again = load_model(tmp_path)
    assert again.heads == ("clm",) and again.config == ours.config
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in ours.state_dict().items())
    check_equal(ours.double(), theirs.double().eval(), random)


def test_a_published_folder_without_prefix_and_with_buffers(tmp_path, random):
    """As OpenAI's own GPT-2 lies on the hub: bare names, and the mask of each block as a tensor."""
    from safetensors.torch import load_file, save_file

    theirs = their_model(tmp_path, "gpt2")
    weights = {
        name.removeprefix("transformer."): value for name, value in load_file(tmp_path / "model.safetensors").items()
    }
    weights |= {f"h.{i}.attn.bias": torch.ones(1, 1, POSITIONS, POSITIONS).tril() for i in range(3)}
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    ids = texts(random)
    ours = load_model(tmp_path)
    inputs = padded(ids)
    expected = theirs(**inputs).logits[inputs["attention_mask"].bool()]
    assert (ours.vocabulary_logits(ours(pack(ids)))[:, :VOCABULARY] - expected).abs().max() < 1e-4


def test_a_tensor_that_is_not_transposed_is_refused(tmp_path):
    from safetensors.torch import load_file, save_file

    their_model(tmp_path, "gpt2")
    weights = load_file(tmp_path / "model.safetensors")
    name = "transformer.h.1.mlp.c_fc.weight"
    save_file(weights | {name: weights[name].T.contiguous()}, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match=r"h\.1\.mlp\.c_fc\.weight .* has shape \(128, 32\)"):
        load_model(tmp_path)


@pytest.mark.parametrize("key", ["scale_attn_by_inverse_layer_idx", "add_cross_attention"])
def test_what_is_not_this_network_is_refused(tmp_path, key):
    their_model(tmp_path, "gpt2")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {key: True}))
    with pytest.raises(ValueError, match="attention"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("family", "head_config"),
    [
        ("gpt2", HeadConfig("sequence", 3)),
        ("openai-gpt", HeadConfig("sequence", 3)),
        ("gpt2", HeadConfig("tokens", 5)),
        ("gpt2", HeadConfig("spans", 2)),
    ],
    ids=str,
)
def test_heads_of_tasks(tmp_path, random, family, head_config):
    """A sequence is judged at its last token; the folder opens there as the class of that head, and here again."""
    ours = our_model(family, head_config, pad_id=0)
    save_model(tmp_path, ours)
    kind = getattr(transformers, ours.naming.class_of(ours))
    theirs, report = kind.from_pretrained(tmp_path, output_loading_info=True, attn_implementation="eager")
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    ids = texts(random)
    inputs, found = padded(ids), load_model(tmp_path).outputs(pack(ids))
    out = theirs.eval()(**inputs)
    if head_config.output == "spans":
        expected = torch.stack([out.start_logits, out.end_logits], -1)
        is_there = inputs["attention_mask"].bool()
        assert torch.allclose(found[is_there], expected[is_there], atol=1e-5)
    elif head_config.output == "tokens":
        assert torch.allclose(found, out.logits[inputs["attention_mask"].bool()], atol=1e-5)
    else:
        assert torch.allclose(found, out.logits, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_double_heads(tmp_path, random, family):
    """Choices judged at their last token beside the next tokens' scores, as `transformers` does it: outputs and the
    gradient of both losses. Its folder opens here too."""
    kind = {"openai-gpt": transformers.OpenAIGPTDoubleHeadsModel, "gpt2": transformers.GPT2DoubleHeadsModel}[family]
    theirs = their_model(tmp_path, family, kind).double()
    ours = load_model(tmp_path).double()
    assert ours.head_config == HeadConfig("choice") and ours.heads == ("clm",) and ours.config.head_dropout == 0.1
    ids = texts(random, [13, 5, POSITIONS, 2, 27, 27])
    rows = padded(ids)["input_ids"]
    last = torch.tensor([len(row) - 1 for row in ids])
    expected = theirs(input_ids=rows.view(2, 3, -1), mc_token_ids=last.view(2, 3))
    x_TD = ours(pack(ids, group_size=3))
    scores, next_scores = ours.outputs_of(x_TD, pack(ids, group_size=3)), ours.vocabulary_logits(x_TD)[:, :VOCABULARY]
    is_there = torch.arange(POSITIONS) < (last + 1)[:, None]
    expected_next = expected.logits.view(6, POSITIONS, -1)[is_there]
    assert (scores - expected.mc_logits).abs().max() < 1e-9
    assert (next_scores - expected_next).abs().max() < 1e-9
    labels = torch.tensor([2, 0])
    for choices, following in ((scores, next_scores), (expected.mc_logits, expected_next)):
        language = (following.log_softmax(-1)[:, ::7] ** 2).mean()
        (torch.nn.functional.cross_entropy(choices, labels) + 0.5 * language).backward()
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    for name, parameter in ours.named_parameters():
        (outside,) = ours.naming.hf_names(ours)[name]
        reference = gradients[outside].T if ours.naming.is_transposed(name) else gradients[outside]
        found = parameter.grad[:VOCABULARY] if name in VOCABULARY_PADDING else parameter.grad
        assert (found - reference).abs().max() <= 1e-9 * max(reference.abs().max(), 1e-2), name
    save_model(tmp_path / "again", ours.float())
    _, report = kind.from_pretrained(tmp_path / "again", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]


def test_a_head_without_a_transformers_class_is_saved_next_to_the_model(tmp_path, random):
    ours = our_model("openai-gpt", HeadConfig("tokens", 5))
    save_model(tmp_path, ours)
    transformers.OpenAIGPTModel.from_pretrained(tmp_path)
    batch = pack(texts(random))
    assert torch.equal(load_model(tmp_path).outputs(batch), ours.outputs(batch))


@pytest.mark.parametrize(("family", "changes"), [("openai-gpt", {}), ("gpt2", {}), ("gpt2", {"window": 4})], ids=str)
def test_no_token_sees_a_later_one(random, family, changes):
    """By gradient: what comes out at a token depends on it and on those before it, in its own sequence, and on no
    others."""
    model = our_model(family, **changes).double()
    ids = texts(random, [11, 7])
    seen = []
    model.embeddings.register_forward_hook(lambda module, given, out: seen.append(out.requires_grad_()) or out)
    for place in (0, 4, 10, 11, 17):
        x_TD = model(pack(ids))
        (gradient,) = torch.autograd.grad(x_TD[place].square().sum(), seen[-1])
        reached = gradient.abs().sum(-1) > 0
        first = 0 if place < 11 else 11
        assert reached[first : place + 1].all() and not reached[:first].any() and not reached[place + 1 :].any()


@pytest.mark.parametrize("window", [1, 3, 8, 40])
def test_every_second_block_attends_to_a_band(random, window):
    """One dense block, then a banded one: the scores of the second are those of a mask."""
    model = our_model("gpt2", window=window, num_layers=2).double()
    assert [block.attention.window for block in model.blocks] == [None, window]
    ids = texts(random)
    batch = pack(ids)
    kept = model.hidden_states(batch)[1]
    block = model.blocks[1]
    q, k, v = block.attention.qkv(block.attention_norm(kept)).unflatten(-1, (3, 4, 8)).unbind(1)
    expected = []
    for start, stop in zip(batch.offsets_host[:-1], batch.offsets_host[1:], strict=True):
        scores = torch.einsum("ihc,jhc->hij", q[start:stop], k[start:stop]) / 8**0.5
        ago = torch.arange(stop - start)[:, None] - torch.arange(stop - start)
        scores = scores.masked_fill((ago < 0) | (ago >= window), -torch.inf)
        expected.append(torch.einsum("hij,jhc->ihc", scores.softmax(-1), v[start:stop]))
    expected = torch.cat(expected).flatten(1)
    found = block.attention(
        block.attention_norm(kept), PackedLayout(batch.offsets, batch.offsets_host, batch.max_length)
    )
    assert torch.allclose(found, expected, atol=1e-12)


def test_a_window_is_kept_in_the_folder(tmp_path):
    save_model(tmp_path, our_model("gpt2", window=5))
    assert load_model(tmp_path).config.window == 5


def test_what_is_added_to_the_stream_starts_smaller():
    """GPT-2: by 1 / sqrt of the number of additions, two a layer; GPT-1 does not."""
    for family, shrunk in (("gpt2", (2 * 8) ** -0.5), ("openai-gpt", 1.0)):
        kind = FAMILIES[family][0]
        model = kind(kind.config_class(vocab_size=90, num_layers=8, width=64, num_heads=4, inner_width=256))
        model.initialize(torch.Generator().manual_seed(0))
        usual = model.blocks[3].fc1.weight.detach().std()
        for part in (model.blocks[3].attention.out, model.blocks[5].fc2):
            assert float(part.weight.detach().std() / usual) == pytest.approx(shrunk, rel=0.05)


MILLIONS = {
    "gpt1-base": 117,
    "gpt2-tiny": 6.96,
    "gpt2-mini": 16.29,
    "gpt2-small": 124,
    "distilgpt2": 82,
    "gpt2-medium": 355,
    "gpt2-large": 774,
    "gpt2-xl": 1558,
    "gpt-bert-small": 40.8,  # with the vocabulary of GPT-2
    "gpt-bert-base": 124,
    "gpt3-125m": 125,
    "gpt3-350m": 356,
    "gpt3-760m": 760,
    "gpt3-1.3b": 1316,
    "gpt3-2.7b": 2652,  # 2.7 billion in the paper
    "gpt3-6.7b": 6658,
    "gpt3-13b": 12853,
    "gpt3-175b": 174_600,
}


@pytest.mark.parametrize("preset", [*presets_of("openai-gpt"), *presets_of("gpt2")])
def test_published_sizes(preset):
    config = PRESETS[preset].model
    with torch.device("meta"):
        model = (Gpt1 if preset.startswith("gpt1") else Gpt2)(config)
    padding = (config.padded_vocab_size - config.vocab_size) * config.width
    millions = (sum(p.numel() for p in model.parameters()) - padding) / 1e6
    assert millions == pytest.approx(MILLIONS[preset], rel=0.005)
    if preset.startswith("gpt3"):
        said = float(preset.removeprefix("gpt3-")[:-1]) * (1000 if preset.endswith("b") else 1)
        assert millions == pytest.approx(said, rel=0.02)
