"""ERNIE's layers: equal to a slow computation, to a BERT where there are no entities, and as saved."""

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from hornbook.batch import concatenate, pack
from hornbook.interop.folder import load_model, save_model
from hornbook.models.bert import Bert, BertConfig
from hornbook.models.ernie import Ernie, ErnieConfig
from hornbook.train.objective import StepInputs
from hornbook.train.step import bucketed

SIZE = {"num_layers": 4, "width": 32, "num_heads": 2, "inner_width": 64, "vocab_size": 100, "max_positions": 64}
TEXTS = [np.arange(5, 12), np.arange(20, 25), np.arange(30, 39)]
NONE = (np.zeros(0, int), np.zeros(0, int))
ENTITIES = [(np.array([1, 3]), np.array([2, 4])), NONE, (np.array([0, 2, 8]), np.array([0, 2, 1]))]


@pytest.fixture
def model() -> Ernie:
    made = Ernie(ErnieConfig(**SIZE, entity_width=8, entity_heads=2, num_entities=5, graph="abc")).eval()
    made.initialize(torch.Generator().manual_seed(0))
    with torch.no_grad():  # larger weights, so that entities make a difference
        for name, parameter in made.named_parameters():
            if parameter.ndim == 2 and name.startswith("blocks."):
                parameter.mul_(8)
    return made.double()


def attend(x: torch.Tensor, attention, norm) -> torch.Tensor:
    """norm(x + attention(x)) of one sequence, head by head."""
    width = x.shape[1] // attention.num_heads
    parts = zip(attention.qkv.weight.chunk(3), attention.qkv.bias.chunk(3), strict=True)
    q, k, v = (x @ part.T + bias for part, bias in parts)
    heads = []
    for i in range(attention.num_heads):
        mine = slice(i * width, (i + 1) * width)
        scores = q[:, mine] @ k[:, mine].T / width**0.5
        heads.append(scores.softmax(1) @ v[:, mine])
    out = torch.cat(heads, 1) @ attention.out.weight.T + attention.out.bias
    return F.layer_norm(x + out, (x.shape[1],), norm.weight, norm.bias, norm.eps)


def slow(model: Ernie, ids: np.ndarray, entities: tuple[np.ndarray, np.ndarray]) -> torch.Tensor:
    """One text, token by token, from the formulas of the paper with the residuals and norms of the published code."""
    batch = pack([ids])
    x = model.embeddings(batch.ids_T, batch.positions_T, batch.segments_T)
    places, numbers = entities
    e = model.entities.weight[torch.from_numpy(numbers)]
    for number, block in enumerate(model.blocks):
        x = attend(x, block.attention, block.attention_norm)
        reads = number >= 2 and len(places)
        if reads:
            e = attend(e, block.entity_attention, block.entity_attention_norm)
        rows, new_e = [], []
        for token, w in enumerate(x):
            h = block.fc1.weight @ w + block.fc1.bias
            if reads and token in places:
                h = h + block.entity_fc1.weight @ e[list(places).index(token)]
            h = F.gelu(h)
            rows.append(w + block.fc2.weight @ h + block.fc2.bias)
            if reads and token in places and number < 3:
                new_e.append(e[list(places).index(token)] + block.entity_fc2.weight @ h + block.entity_fc2.bias)
        x = F.layer_norm(torch.stack(rows), (32,), block.norm.weight, block.norm.bias, block.norm.eps)
        if new_e:
            norm = block.entity_norm
            e = F.layer_norm(torch.stack(new_e), (8,), norm.weight, norm.bias, norm.eps)
    return x


@torch.no_grad()
def test_layers_equal_a_slow_computation(model):
    found = model(pack(TEXTS, entities=ENTITIES))
    expected = torch.cat([slow(model, *each) for each in zip(TEXTS, ENTITIES, strict=True)])
    assert torch.allclose(found, expected, atol=1e-9)
    assert (found - model(pack(TEXTS))).abs().max() > 0.1


@torch.no_grad()
def test_a_text_without_entities_is_read_as_by_a_bert(model):
    bert = Bert(BertConfig(**SIZE)).eval().double()
    bert.load_state_dict({name: value for name, value in model.state_dict().items() if name in bert.state_dict()})
    for batch in (pack(TEXTS), pack(TEXTS, entities=[NONE] * 3)):
        assert torch.equal(model(batch), bert(batch))
    start, stop = 7, 12  # the second text has no entities, but the others have
    assert torch.equal(model(pack(TEXTS, entities=ENTITIES))[start:stop], bert(pack(TEXTS))[start:stop])
    model.config = ErnieConfig(**SIZE, entity_width=8, entity_heads=2, num_entities=5, fusion=False)
    assert torch.equal(model(pack(TEXTS, entities=ENTITIES)), bert(pack(TEXTS)))


@torch.no_grad()
def test_entities_stay_with_their_texts(model):
    """However a batch is sliced, concatenated or padded."""
    batch = pack(TEXTS, entities=ENTITIES)
    whole = model(batch)
    parts = [batch.slice(0, 1), batch.slice(1, 3)]
    assert torch.allclose(torch.cat([model(part) for part in parts]), whole, atol=1e-12)
    assert torch.allclose(model(concatenate(parts)), whole, atol=1e-12)
    padded = bucketed(StepInputs(batch), token_bucket=32, entry_bucket=16).batch
    assert padded.entities.num_entries == 16
    assert torch.allclose(model(padded)[: len(whole)], whole, atol=1e-12)


def test_every_weight_learns(model):
    """But the vectors of entities, which are not trained, unless they are."""
    batch = pack(TEXTS, entities=ENTITIES)
    candidates = torch.arange(5)
    for trains in (False, True):
        model.entities.weight.requires_grad_(trains)
        x = model(batch)
        loss = model.entity_logits(x, candidates).logsumexp(1).sum() + model.vocabulary_logits(x)[:, :9].sum()
        (loss + model.sentence_logits(x[:1])[0, 0]).backward()
        without = {name for name, each in model.named_parameters() if each.grad is None}
        assert without == (set() if trains else {"entities.weight"})
        model.zero_grad(set_to_none=True)


def test_a_folder_opens_again(model, tmp_path):
    model.float()
    save_model(tmp_path, model)
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["model_type"], config["graph"], config["num_entities"]) == ("hornbook-ernie", "abc", 5)
    again = load_model(tmp_path)
    assert again.heads == ("pooler", "mlm", "sentence", "entity") and again.config == model.config
    assert not again.entities.weight.requires_grad
    with torch.no_grad():
        assert torch.equal(again(pack(TEXTS, entities=ENTITIES)), model(pack(TEXTS, entities=ENTITIES)))


def test_vectors_of_the_graph(model):
    given = np.arange(40, dtype=np.float32).reshape(5, 8)
    given[3] = 0
    model.set_entity_vectors(given)
    assert model.has_vector.tolist() == [True, True, True, False, True]
    assert torch.allclose(model.entities.weight.norm(dim=1), torch.tensor([1, 1, 1, 0, 1.0], dtype=torch.float64))
    model.config = ErnieConfig(**SIZE, entity_width=8, num_entities=5, entity_vectors="random")
    model.initialize(torch.Generator().manual_seed(1))
    before = model.entities.weight.clone()
    model.set_entity_vectors(given)
    assert torch.equal(model.entities.weight[[0, 1, 2, 4]], before[[0, 1, 2, 4]]) and not model.has_vector[3]
    with pytest.raises(ValueError, match=r"shape \(4, 8\)"):
        model.set_entity_vectors(given[:4])


def test_impossible_shapes_are_refused():
    with pytest.raises(ValueError, match="leaves none of the 4 layers"):
        ErnieConfig(**SIZE, num_text_layers=4)
    with pytest.raises(ValueError, match=r"model\.entity_heads=4 does not divide"):
        ErnieConfig(**SIZE, entity_width=10)
    small = ErnieConfig(**SIZE | {"num_layers": 2})  # the second layer lets [CLS] attend to what the first has read
    assert small.first_fusion == 0 and ErnieConfig(**SIZE | {"num_layers": 12}).first_fusion == 6
    assert ErnieConfig(**SIZE).first_fusion == 2 and ErnieConfig(**SIZE, num_text_layers=1).first_fusion == 1
