"""Causal language modeling: targets, micro-batches, separation of documents, and learning; alone and as an auxiliary
loss of a task."""

import numpy as np
import pytest
import torch

from hornbook.batch import Batch, pack
from hornbook.models.gpt import Gpt1, Gpt1Config, Gpt2, Gpt2Config
from hornbook.models.head_config import HeadConfig
from hornbook.objectives import clm
from hornbook.objectives.clm import AuxiliaryLanguageModel, ClmObjective
from hornbook.objectives.mlm import summed_loss
from hornbook.objectives.vocabulary_loss import unigram_baseline
from hornbook.tasks.objective import TaskObjective
from hornbook.train.objective import StepInputs, next_tokens
from hornbook.train.step import bucketed

SIZE = {"vocab_size": 90, "num_layers": 2, "width": 16, "num_heads": 2, "inner_width": 64, "max_positions": 40}
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0, "embedding_dropout": 0.0}
MODELS = {"gpt1": (Gpt1, Gpt1Config), "gpt2": (Gpt2, Gpt2Config)}


def model_of(family: str = "gpt2", head_config: HeadConfig | None = None, **overrides):
    kind, config = MODELS[family]
    model = kind(config(**SIZE | NO_DROPOUT | overrides), head_config=head_config)
    model.initialize(torch.Generator().manual_seed(0))
    return model.double().eval()


def batch_of(random: np.random.Generator, lengths, labelled: bool, max_length: int = 40) -> Batch:
    rows = [random.integers(5, 90, length + 1) for length in lengths]
    labels = [row[1:] for row in rows] if labelled else None
    return pack([row[:-1] for row in rows], max_length=max_length, token_labels=labels)


def drawn_of(random, lengths, labelled: bool) -> StepInputs:
    return ClmObjective().prepare(batch_of(random, lengths, labelled), 0)


def sums_and_gradients(model, parts: list[StepInputs]) -> tuple[float, dict]:
    model.zero_grad()
    total = 0.0
    for part in parts:
        loss = ClmObjective().loss_sums(model, part)["clm"]
        loss.backward()
        total += loss.item()
    return total, {name: p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("labelled", [False, True])
def test_the_sum_is_the_cross_entropy_of_every_next_token(random, labelled):
    model, step_inputs = model_of(), drawn_of(random, [20, 1, 31, 8], labelled)
    batch, targets = step_inputs.batch, step_inputs.targets["clm"]
    expected = count = 0
    with torch.no_grad():
        for start, stop in zip(batch.offsets_host[:-1], batch.offsets_host[1:], strict=True):
            scores = model.vocabulary_logits(model(pack([batch.ids_T[start:stop].numpy()])))[:, :90].log_softmax(-1)
            for place in range(stop - start if labelled else stop - start - 1):
                after = batch.labels_T[start + place] if labelled else batch.ids_T[start + place + 1]
                expected -= float(scores[place, after])
                count += 1
        found, hits = (
            ClmObjective().loss_sums(model, step_inputs),
            ClmObjective().loss_sums(model, step_inputs, with_metrics=True),
        )
    assert float(targets.weights_K.sum()) == count == (60 if labelled else 56)
    assert float(found["clm"]) == pytest.approx(expected, rel=1e-10) == float(hits["clm"])
    assert 0 <= hits["clm_accuracy"] <= count


def test_a_token_without_a_next_one_enters_no_sum(random):
    batch = batch_of(random, [20, 12], labelled=True)
    labels = batch.labels_T.clone()
    labels[[3, 19, 31]] = -1
    step_inputs = ClmObjective().prepare(batch.with_values("tokens", labels_T=labels), 0)
    assert float(step_inputs.targets["clm"].weights_K.sum()) == 29
    whole = ClmObjective().prepare(batch, 0)
    with torch.no_grad():
        model = model_of()
        scores = model.vocabulary_logits(model(batch)).log_softmax(-1)
        left_out = -sum(float(scores[place, batch.labels_T[place]]) for place in (3, 19, 31))
        sums = [float(ClmObjective().loss_sums(model, each)["clm"]) for each in (whole, step_inputs)]
    assert sums[0] - sums[1] == pytest.approx(left_out)


@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("family", MODELS)
def test_parts_and_buckets_change_nothing(random, family, labelled):
    model, step_inputs = model_of(family), drawn_of(random, [3, 8, 8, 20, 31, 40, 40, 1], labelled)
    whole = sums_and_gradients(model, [step_inputs])
    for parts in (
        step_inputs.split(50),
        step_inputs.split(8),
        [bucketed(step_inputs, 128, 32)],
        [bucketed(p) for p in step_inputs.split(60)],
    ):
        total, gradients = sums_and_gradients(model, parts)
        assert total == pytest.approx(whole[0], rel=1e-12)
        for name, gradient in gradients.items():
            torch.testing.assert_close(gradient, whole[1][name], rtol=1e-10, atol=1e-12)


def test_targets_of_a_bucketed_batch_are_those_of_the_live_ones(random):
    for labelled in (False, True):
        batch = batch_of(random, [9, 14], labelled)
        plain = ClmObjective().prepare(batch, 0).targets["clm"]
        filled = ClmObjective().prepare(batch.bucketed(128, 8), 0).targets["clm"]
        assert torch.equal(plain.indices_K, filled.indices_K) and torch.equal(plain.values_K, filled.values_K)
        assert len(filled.offsets_host) == 9 and filled.offsets_host[-1] == len(plain.values_K)


@pytest.mark.parametrize("family", MODELS)
def test_a_document_changes_nothing_in_another(random, family):
    model = model_of(family)
    rows = [random.integers(5, 90, length) for length in (12, 20, 7)]
    with torch.no_grad():
        before = model(pack(rows))
        rows[1] = random.integers(5, 90, 20)
        after = model(pack(rows))
    assert torch.equal(before[:12], after[:12]) and torch.equal(before[32:], after[32:])
    assert not torch.allclose(before[12:32], after[12:32])


def test_a_sequence_without_tokens_changes_no_other(random):
    rows = [random.integers(5, 90, length) for length in (4, 0, 6, 1, 0)]
    found, expected = (next_tokens(pack(each), True) for each in (rows, [rows[0], rows[2], rows[3]]))
    for name in ("indices_K", "values_K", "weights_K"):
        assert torch.equal(getattr(found, name), getattr(expected, name))
    assert found.offsets_host.tolist() == [0, 3, 3, 8, 8, 8] and float(found.weights_K.sum()) == pytest.approx(2)


OUTPUTS = {
    "class": (HeadConfig("sequence", 3), 1),
    "both orders": (HeadConfig("sequence", 3, pair_encoding="both"), 2),
    "choice": (HeadConfig("choice"), 3),
    "tokens": (HeadConfig("tokens", 4), 1),
}


def drawn_beside_task(random, head_config: HeadConfig, together: int) -> tuple[AuxiliaryLanguageModel, StepInputs]:
    rows = [random.integers(5, 90, length) for length in (12, 7, 20, 3, 9, 31)]
    labels = None if head_config.output == "tokens" else np.repeat(random.integers(0, 3, 6 // together), together)
    tags = [random.integers(-1, 4, len(row)) for row in rows] if head_config.output == "tokens" else None
    objective = AuxiliaryLanguageModel(TaskObjective(head_config), 0.5)
    batch = pack(rows, labels=labels, token_labels=tags, group_size=together, max_length=40)
    return objective, objective.prepare(batch, 0)


@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.parametrize("family", MODELS)
def test_auxiliary_language_model_adds_its_loss_to_that_of_the_task(random, family, name):
    """The task's as alone, and the mean over the texts of the mean cross-entropy of their next tokens, text by text."""
    head_config, together = OUTPUTS[name]
    model = model_of(family, head_config)
    objective, step_inputs = drawn_beside_task(random, head_config, together)
    counts, batch = step_inputs.total_weights(), step_inputs.batch
    with torch.no_grad():
        found, hits = (
            objective.loss_sums(model, step_inputs),
            objective.loss_sums(model, step_inputs, with_metrics=True),
        )
        alone = TaskObjective(head_config).loss_sums(model, step_inputs)["task"]
        means = []
        for start, stop in zip(batch.offsets_host[:-1], batch.offsets_host[1:], strict=True):
            ids = batch.ids_T[start:stop]
            scores = model.vocabulary_logits(model(pack([ids.numpy()])))[:-1, :90]
            means.append(torch.nn.functional.cross_entropy(scores, ids[1:]))
    assert objective.weights == {"task": 1.0, "clm": 0.5} and set(found) == {"task", "clm"}
    assert float(found["task"]) == pytest.approx(float(alone), rel=1e-12) and "task_accuracy" in hits
    assert float(counts["clm"]) == pytest.approx(6)
    assert float(found["clm"] / counts["clm"]) == pytest.approx(float(torch.stack(means).mean()), rel=1e-6)


@pytest.mark.parametrize("name", OUTPUTS)
def test_auxiliary_language_model_with_micro_batches_and_buckets(random, name):
    head_config, together = OUTPUTS[name]
    model = model_of("gpt1", head_config)
    objective, step_inputs = drawn_beside_task(random, head_config, together)

    def gradients(parts: list[StepInputs]) -> dict:
        model.zero_grad()
        for part in parts:
            found = objective.loss_sums(model, part)
            sum(objective.weights[term] * found[term] for term in found).backward()
        return {name: p.grad.clone() for name, p in model.named_parameters()}

    whole = gradients([step_inputs])
    for parts in (
        step_inputs.split(40),
        step_inputs.split(8),
        [bucketed(part, 64, 16) for part in step_inputs.split(50)],
    ):
        for weight, gradient in gradients(parts).items():
            torch.testing.assert_close(gradient, whole[weight], rtol=1e-9, atol=1e-11)


def test_guessing_by_frequency(random):
    batch = batch_of(random, [30, 40, 12], labelled=True)
    counts = np.bincount(batch.labels_T.numpy(), minlength=90)
    found = unigram_baseline(ClmObjective(), [batch], counts)
    share = np.log((counts + 1) / (counts + 1).sum())
    assert found["clm"] == pytest.approx(-share[batch.labels_T.numpy()].mean())
    assert found["clm_accuracy"] == pytest.approx(counts.max() / 82)


@pytest.mark.parametrize("family", MODELS)
def test_it_learns_to_continue_a_text(family):
    """Two alternating tokens: once both were seen, each equals the one before the last, which only attention finds."""
    random = np.random.default_rng(0)
    model = model_of(family, width=32, inner_width=128, init_std=0.1).float().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 50))
    objective = ClmObjective()

    def step_inputs() -> StepInputs:
        return objective.prepare(pack([np.tile(random.integers(0, 20, 2), 6) for _ in range(32)]), 0)

    for _ in range(200):
        each = step_inputs()
        (objective.loss_sums(model, each)["clm"] / each.targets["clm"].weights_K.sum()).backward()
        optimizer.step()
        warmup.step()
        optimizer.zero_grad()
    with torch.no_grad():
        last = step_inputs()
        hits = {
            name: float(value) / 32
            for name, value in objective.loss_sums(model.eval(), last, with_metrics=True).items()
        }
    assert hits["clm"] < np.log(20) + 0.5  # the second token is any of 20, and the ten after it are certain
    assert hits["clm_accuracy"] > 9.9


def test_the_loss_at_every_token_is_that_of_the_targets(random, monkeypatch):
    """What a GPU does where nearly every token has a target; what fills a step up adds nothing."""
    seen = []

    def plain(x_TD, matrix_VD, values_T, weights_T, vocab_size):
        seen.append(len(x_TD))
        return summed_loss((x_TD @ matrix_VD.mT)[:, :vocab_size], values_T, weights_T)

    monkeypatch.setattr(clm, "can_fuse_loss", lambda x: True)
    monkeypatch.setattr(clm, "fused_loss", plain)
    model, objective = model_of(), ClmObjective()
    step_inputs = bucketed(objective.prepare(batch_of(random, (30, 9, 21), labelled=False), 0), 64, 128)
    targets = step_inputs.targets["clm"]
    targets.values_K[targets.weights_K == 0] = 7  # a captured step leaves there what it had before
    losses = []
    for nearly_all in (0.5, 10.0):
        monkeypatch.setattr(clm, "NEARLY_ALL", nearly_all)
        losses.append(objective.loss_sums(model, step_inputs)["clm"])
    assert seen == [64, 128]
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-12)
    for one, other in zip(*(torch.autograd.grad(loss, model.parameters()) for loss in losses), strict=True):
        torch.testing.assert_close(one, other)
