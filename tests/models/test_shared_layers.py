"""Layers that share weights: one tensor under several names goes through folders, heads, vocabularies, optimizers and
compiling as one."""

import copy

import pytest
import torch
from safetensors.torch import load_file, save_file
from small_families import FAMILIES, VOCABULARY, moved, sequences

from hornbook.batch import pack
from hornbook.interop.files import WEIGHTS
from hornbook.interop.folder import hf_weights, load_model, load_weights, read_weights, save_model
from hornbook.interop.vocabulary import extend_vocabulary
from hornbook.models.albert import Albert
from hornbook.models.head_config import HeadConfig
from hornbook.models.transformer import VOCABULARY_PADDING
from hornbook.runs.finetuning.layers import freeze, from_scratch, lr_multiplier, with_head
from hornbook.runs.finetuning.settings import LayerSettings
from hornbook.text.tokenizer import Tokenizer
from hornbook.train.optimizer import load_optimizer_tensors, make_optimizer, optimizer_tensors
from hornbook.train.settings import OptimizerSettings

CLASSES = HeadConfig("sequence", 3, ("a", "b", "c"))
LAYERS = 3
SHARED = {
    "all": ("attention", "attention_norm", "fc1", "fc2", "norm"),
    "attention": ("attention", "attention_norm"),
    "ffn": ("fc1", "fc2", "norm"),
    "none": (),
}


@pytest.fixture(params=SHARED)
def sharing(request) -> str:
    return request.param


def model_of(sharing: str, vocab_size: int = VOCABULARY) -> Albert:
    config = FAMILIES["albert"].config(sharing=sharing, num_layers=LAYERS, vocab_size=vocab_size)
    model = Albert(config)
    model.initialize(torch.Generator().manual_seed(2))
    return moved(model)


def check_shares(model: Albert, sharing: str) -> None:
    """Just these parts of all blocks are one."""
    for part in SHARED["all"]:
        number = len({id(getattr(block, part)) for block in model.blocks})
        weights = {parameter for block in model.blocks for parameter in getattr(block, part).parameters()}
        per_block = len(list(getattr(model.blocks[0], part).parameters()))
        assert number == (1 if part in SHARED[sharing] else LAYERS), part
        assert len(weights) == number * per_block


def check_same(one: torch.nn.Module, other: torch.nn.Module) -> None:
    found = other.state_dict()
    for name, value in one.state_dict().items():
        if name in found and not name.startswith("task."):
            assert torch.equal(value, found[name]), name


def test_the_first_weights(sharing):
    """Each is initialised once: a layer that is not shared differs from the others."""
    model = model_of(sharing)
    check_shares(model, sharing)
    same = torch.equal(model.blocks[0].fc1.weight, model.blocks[2].fc1.weight)
    assert same == ("fc1" in SHARED[sharing])


def test_a_folder_ties_them_again(tmp_path, sharing):
    model = model_of(sharing)
    save_model(tmp_path, model)
    again = load_model(tmp_path)
    check_shares(again, sharing)
    check_same(model, again)
    num_groups = 1 if sharing == "all" else LAYERS
    names = [name for name in read_weights(tmp_path) if name.endswith("ffn.weight")]
    assert len(names) == num_groups


def test_a_checkpoint_goes_back_into_the_model(tmp_path, sharing):
    model = model_of(sharing)
    save_model(tmp_path, model)
    other = moved(model_of(sharing), seed=5)
    load_weights(other, read_weights(tmp_path), tmp_path)
    check_shares(other, sharing)
    check_same(model, other)


@pytest.mark.parametrize(("sharing", "part"), [("attention", "attention.key.weight"), ("ffn", "ffn_output.bias")])
def test_layers_that_should_share_and_differ_are_refused(tmp_path, sharing, part):
    save_model(tmp_path, model_of(sharing))
    weights = load_file(tmp_path / WEIGHTS)
    name = f"encoder.albert_layer_groups.1.albert_layers.0.{part}"
    weights[f"albert.{name}"][0] += 1
    save_file(weights, tmp_path / WEIGHTS)
    with pytest.raises(ValueError, match=f'{name} .* differs from .*groups.0.* set its "sharing" to "none"'):
        load_model(tmp_path)


def test_weights_that_are_not_numbers_can_still_be_opened(tmp_path):
    """As a run that failed may leave them; what is one tensor is not compared with itself."""
    model = model_of("all")
    with torch.no_grad():
        model.blocks[0].fc1.weight[0] = torch.nan
    save_model(tmp_path, model)
    assert load_model(tmp_path).blocks[2].fc1.weight[0].isnan().all()


def test_under_a_new_head(random, sharing):
    trained = model_of(sharing)
    for model in (with_head(trained, CLASSES, 0)[0], copy.deepcopy(trained).double().float()):
        check_shares(model, sharing)
        check_same(trained, model)
    check_shares(from_scratch(trained, CLASSES, 0), sharing)
    ids, segments = sequences(random, [9, 4])
    batch = pack(ids, segments)
    assert torch.equal(with_head(trained, CLASSES, 0)[0].eval()(batch), trained(batch))


def test_a_grown_vocabulary(tiny_tokenizer, sharing):
    old, new = Tokenizer.load(tiny_tokenizer), Tokenizer.load(tiny_tokenizer)
    new.add_words(["bridgeriver", "teacherly"])
    model = model_of(sharing, old.vocab_size)
    larger = extend_vocabulary(model, old, new)
    check_shares(larger, sharing)
    assert larger.config.vocab_size == new.vocab_size and larger.embeddings.tokens.weight.shape[1] == 16
    for name, value in model.state_dict().items():
        found = larger.state_dict()[name]
        num_rows = old.vocab_size if name in VOCABULARY_PADDING else len(value)
        assert torch.equal(found[:num_rows], value[:num_rows]), name


def test_the_optimizer_holds_each_once(random, sharing):
    model = model_of(sharing)
    optimizer = make_optimizer(model, OptimizerSettings())
    held = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    assert len(held) == len(set(held)) == len(list(model.parameters()))
    ids, segments = sequences(random, [9, 4])
    batch = pack(ids, segments)
    model.vocabulary_logits(model(batch)).square().mean().backward()
    model.sentence_logits(model(batch)[:2]).square().mean().backward()
    optimizer.step()
    tensors = optimizer_tensors(model, optimizer)
    again = copy.deepcopy(model)
    other = make_optimizer(again, OptimizerSettings())
    load_optimizer_tensors(again, other, tensors)
    found = optimizer_tensors(again, other)
    assert found.keys() == tensors.keys() and all(torch.equal(value, found[name]) for name, value in tensors.items())


def test_a_shared_block_is_compiled_once(monkeypatch, sharing):
    compiled = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda part, **options: compiled.append(part))
    model = model_of(sharing)
    model.compile_parts()
    blocks = [part for part in compiled if part in list(model.blocks)]
    assert len(blocks) == len(set(blocks)) == (1 if sharing == "all" else LAYERS)
    assert model.mlm in compiled and model.sentence in compiled


# ---- the depth of a shared weight


def test_what_is_shared_stands_as_high_as_the_highest_layer(sharing):
    model, _ = with_head(model_of(sharing), CLASSES, 0)
    share = lr_multiplier(model, LayerSettings(lr_decay=0.5))
    for name, _ in model.named_parameters():
        kind, *inside = name.split(".")
        if kind == "blocks":
            depth = LAYERS if inside[1] in SHARED[sharing] else int(inside[0]) + 1
            assert model.depth_of(name) == depth and share(name) == 0.5 ** (LAYERS - depth), name
    assert model.depth_of("embeddings.tokens.weight") == model.depth_of("project.weight") == 0
    assert model.depth_of("pooler.weight") == LAYERS + 1


@pytest.mark.parametrize("frozen", [1, 2, 3])
def test_freezing_some_layers_leaves_free_what_others_share(sharing, frozen):
    model, _ = with_head(model_of(sharing), CLASSES, 0)
    freeze(model, LayerSettings(frozen=frozen))
    for name, parameter in model.named_parameters():
        kind, *inside = name.split(".")
        is_fixed = kind in ("embeddings", "project")
        if kind == "blocks":
            depth = LAYERS if inside[1] in SHARED[sharing] else int(inside[0]) + 1
            is_fixed = depth <= frozen
        assert parameter.requires_grad == (not is_fixed), name


def test_outside_weights_share_no_memory(sharing):
    """A safetensors file refuses tensors that do."""
    weights = hf_weights(model_of(sharing))
    starts = [value.data_ptr() for value in weights.values()]
    assert len(starts) == len(set(starts))
