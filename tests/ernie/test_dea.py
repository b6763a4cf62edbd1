"""The denoising entity auto-encoder: its loss, its shares, and random numbers by example."""

import math

import numpy as np
import pytest
import torch

from hornbook.batch import pack
from hornbook.models.ernie import Ernie, ErnieConfig
from hornbook.objectives.ernie import ErnieObjective, ErnieSettings
from hornbook.objectives.masking import Masking, MaskingSettings

SIZE = {"num_layers": 2, "width": 32, "num_heads": 2, "inner_width": 64, "vocab_size": 100, "max_positions": 256}
NUM_ENTITIES = 50


def objective_of(has_vector=None, **settings) -> ErnieObjective:
    masking = Masking(MaskingSettings(), 100, 4, [0, 1, 2, 3, 4])
    has_vector = np.ones(NUM_ENTITIES, bool) if has_vector is None else has_vector
    return ErnieObjective(masking, ErnieSettings(**settings), has_vector)


def batch_of(num: int, per_text: int = 3, length: int = 12, seed: int = 0):
    random = np.random.default_rng(seed)
    texts = [random.integers(5, 100, length) for _ in range(num)]
    entities = [
        (np.sort(random.choice(length, per_text, replace=False)), random.integers(0, NUM_ENTITIES, per_text))
        for _ in range(num)
    ]
    return pack(texts, labels=random.integers(0, 2, num), entities=entities)


@pytest.fixture
def model() -> Ernie:
    made = Ernie(ErnieConfig(**SIZE, entity_width=8, num_entities=NUM_ENTITIES)).eval()
    made.initialize(torch.Generator().manual_seed(0))
    return made.double()


@torch.no_grad()
@pytest.mark.parametrize("replaced", [0.05, 0.5])
def test_the_loss_equals_a_slow_computation(model, replaced):
    """Whatever entity a token is aligned to, that of the text is predicted."""
    objective, batch = objective_of(replaced_fraction=replaced), batch_of(4)
    step_inputs = objective.prepare(batch, 7)
    found = objective.loss_sums(model, step_inputs)
    x = model(step_inputs.batch)
    candidates = sorted(set(batch.entities.ids_E.tolist()))
    assert step_inputs.shared["candidates"].tolist() == candidates
    loss = hits = 0.0
    for token, entity in zip(batch.entities.indices_E.tolist(), batch.entities.ids_E.tolist(), strict=True):
        w = model.entity.weight @ x[token] + model.entity.bias
        logits = {each: float(w @ model.entities.weight[each]) for each in candidates}
        loss -= logits[entity] - math.log(sum(map(math.exp, logits.values())))
        hits += max(logits, key=logits.get) == entity
    assert float(found["dea"]) == pytest.approx(loss, rel=1e-9)
    assert float(step_inputs.total_weights()["dea"]) == 12 and found.keys() == {"mlm", "nsp", "dea"}
    assert float(objective.loss_sums(model, step_inputs, with_metrics=True)["dea_accuracy"]) == hits
    assert objective.weights == {"mlm": 1.0, "nsp": 1.0, "dea": 1.0}


@torch.no_grad()
def test_micro_batches_choose_from_the_entities_of_the_whole_step(model):
    objective, batch = objective_of(), batch_of(6)
    step_inputs = objective.prepare(batch, 3)
    parts = step_inputs.split(30)
    assert len(parts) == 3
    whole, summed = objective.loss_sums(model, step_inputs), [objective.loss_sums(model, part) for part in parts]
    for term in whole:
        assert torch.isclose(sum(each[term] for each in summed), whole[term], rtol=1e-9)


def test_alignments_are_replaced_and_removed_in_their_shares():
    batch = batch_of(2000, per_text=5)
    read = objective_of().prepare(batch, 1).batch.entities
    before = dict(zip(batch.entities.indices_E.tolist(), batch.entities.ids_E.tolist(), strict=True))
    after = dict(zip(read.indices_E.tolist(), read.ids_E.tolist(), strict=True))
    assert after.keys() < before.keys() and list(after) == sorted(after)
    changed = sum(before[token] != entity for token, entity in after.items()) / len(before)
    assert 1 - len(after) / len(before) == pytest.approx(0.15, abs=0.01)
    assert changed == pytest.approx(0.05 * (1 - 1 / NUM_ENTITIES), abs=0.006)
    assert np.array_equal(read.ids_E.numpy(), read.ids_host)
    kept = objective_of(replaced_fraction=0.0, unlinked_fraction=0.0).prepare(batch, 1).batch.entities
    assert torch.equal(kept.ids_E, batch.entities.ids_E) and torch.equal(kept.indices_E, batch.entities.indices_E)
    assert not objective_of(unlinked_fraction=0.95).prepare(batch, 1).batch.entities.ids_E.equal(kept.ids_E)


def test_what_is_drawn_depends_on_the_example_only():
    """A part of a batch, prepared alone, is the part of the batch that is prepared as a whole."""
    batch, objective = batch_of(8), objective_of()
    whole, again = (objective.prepare(batch, 5).batch.slice(2, 5).entities for _ in range(2))
    alone = objective.prepare(batch.slice(2, 5), 5).batch.entities
    assert torch.equal(alone.ids_E, whole.ids_E) and torch.equal(alone.indices_E, whole.indices_E)
    assert torch.equal(again.ids_E, whole.ids_E)
    others = [objective.prepare(batch, seed).batch.entities.indices_E.tolist() for seed in range(5)]
    assert len({tuple(each) for each in others}) > 1


def test_entities_without_a_vector_are_neither_read_nor_predicted():
    has_vector = np.arange(NUM_ENTITIES) % 2 == 0
    step_inputs = objective_of(has_vector).prepare(batch_of(200), 1)
    assert has_vector[step_inputs.batch.entities.ids_host].all()
    assert has_vector[step_inputs.shared["candidates"].numpy()].all()
    assert step_inputs.total_weights()["dea"] == has_vector[batch_of(200).entities.ids_host].sum()


@torch.no_grad()
def test_texts_without_mentions(model):
    texts = [np.arange(5, 15), np.arange(20, 26)]
    none = (np.zeros(0, int), np.zeros(0, int))
    objective = objective_of()
    step_inputs = objective.prepare(pack(texts, labels=np.array([0, 1]), entities=[none, none]), 0)
    found = objective.loss_sums(model, step_inputs, with_metrics=True)
    assert found["dea"] == 0 and found["dea_accuracy"] == 0 and found["mlm"] > 0


def test_without_its_loss_there_is_no_candidate():
    objective = objective_of(entity_weight=0.0)
    step_inputs = objective.prepare(batch_of(3), 0)
    assert "dea" not in step_inputs.targets and not step_inputs.shared and "dea" not in objective.weights
    assert len(step_inputs.batch.entities.ids_E)
    with pytest.raises(ValueError, match="together must be at most 1"):
        ErnieSettings(replaced_fraction=0.6, unlinked_fraction=0.6)
