"""The loss of every kind of task as sums and counts: the same however a batch is split or padded."""

import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from hornbook.batch import Batch, pack
from hornbook.models.bert import Bert, BertConfig
from hornbook.models.head_config import HeadConfig
from hornbook.models.heads import HEADS
from hornbook.tasks.objective import TaskObjective, balanced_class_weights
from hornbook.train.objective import StepInputs
from hornbook.train.step import bucketed

VOCABULARY = 64
LABELS = ("a", "b", "c")
KINDS = {
    "single": HeadConfig("sequence", 3, LABELS),
    "multi": HeadConfig("sequence", 3, LABELS, "multi_label_classification"),
    "number": HeadConfig("sequence", 1, ("score",), "regression"),
    "separate": HeadConfig("sequence", 3, LABELS, pair_encoding="separate"),
    "cnn": HeadConfig("sequence", 3, LABELS, layers="cnn"),
    "bilstm": HeadConfig("sequence", 3, LABELS, layers="bilstm"),
    "attention": HeadConfig("sequence", 3, LABELS, layers="attention"),
    "choice": HeadConfig("choice"),
    "tokens": HeadConfig("tokens", 3, ("O", "B-X", "I-X")),
    "spans": HeadConfig("spans", 2),
    "answerable": HeadConfig("spans", 2, has_answer_classifier=True),
}
TOGETHER = {"choice": 4, "separate": 2}


def model_for(head_config: HeadConfig) -> Bert:
    config = BertConfig(
        VOCABULARY, num_layers=1, width=16, num_heads=2, inner_width=32, max_positions=32, dropout=0.0, init_std=0.3
    )
    model = Bert(dataclasses.replace(config, attention_dropout=0.0), Bert.heads_for(head_config), head_config)
    model.initialize(torch.Generator().manual_seed(0))
    return model.double()


def batch_for(name: str, random: np.random.Generator, num_groups: int = 9) -> Batch:
    head_config, together = KINDS[name], TOGETHER.get(name, 1)
    lengths = random.integers(3, 21, num_groups * together).tolist()
    ids = [random.integers(0, VOCABULARY, n) for n in lengths]
    if head_config.output == "tokens":
        return pack(ids, token_labels=[random.integers(-1, head_config.num_labels, n) for n in lengths])
    if head_config.output == "spans":
        labels = np.array([sorted(random.integers(1, n, 2)) for n in lengths])
        labels[::3] = 0
        return pack(ids, labels=labels)
    if head_config.output == "choice":
        labels = random.integers(0, together, num_groups)
    elif head_config.problem_type == "regression":
        labels = random.normal(size=num_groups)
    elif head_config.problem_type == "multi_label_classification":
        labels = random.integers(0, 2, (num_groups, 3)).astype(float)
    else:
        labels = random.integers(-1, 3, num_groups)
        labels[:2] = (-1, 2)
    return pack(ids, labels=np.repeat(labels, together, 0), group_size=together)


def objective_for(name: str, weights: torch.Tensor | None = None) -> TaskObjective:
    return TaskObjective(KINDS[name], weights)


def drawn_for(objective: TaskObjective, batch: Batch) -> StepInputs:
    return objective.prepare(batch, 0)


def loss_and_gradients(objective: TaskObjective, model: Bert, parts: list[StepInputs]) -> tuple[float, float, dict]:
    """(sum, count, gradients) of several micro-batches, accumulated as in a step."""
    model.zero_grad()
    total = count = 0.0
    for part in parts:
        loss = objective.loss_sums(model, part)["task"]
        loss.backward()
        total, count = total + loss.item(), count + part.total_weights()["task"].item()
    return total, count, {key: each.grad.clone() for key, each in model.named_parameters()}


def check_same(found: tuple, expected: tuple) -> None:
    assert expected[1] > 0 and expected[0] > 0
    assert found[0] == pytest.approx(expected[0], rel=1e-12)
    assert found[1] == expected[1]
    for key, gradient in expected[2].items():
        assert (found[2][key] - gradient).abs().max() <= 1e-11, key
    assert any(gradient.abs().max() > 1e-3 for gradient in expected[2].values())


@pytest.mark.parametrize("micro_tokens", [8, 40, 60])
@pytest.mark.parametrize("name", KINDS)
def test_micro_batches_change_nothing(random, name, micro_tokens):
    objective, model = objective_for(name), model_for(KINDS[name])
    step_inputs = drawn_for(objective, batch_for(name, random))
    parts = step_inputs.split(micro_tokens)
    assert len(parts) > 1
    assert all(part.batch.num_sequences % TOGETHER.get(name, 1) == 0 for part in parts), "a group was cut"
    assert sum(part.batch.num_sequences for part in parts) == step_inputs.batch.num_sequences
    check_same(loss_and_gradients(objective, model, parts), loss_and_gradients(objective, model, [step_inputs]))


@pytest.mark.parametrize(("token_bucket", "target_bucket"), [(16, 2), (100, 7), (512, 128)])
@pytest.mark.parametrize("name", KINDS)
def test_dead_sequences_change_nothing(random, name, token_bucket, target_bucket):
    objective, model = objective_for(name), model_for(KINDS[name])
    step_inputs = drawn_for(objective, batch_for(name, random))
    filled = bucketed(step_inputs, token_bucket, target_bucket)
    assert filled.batch.num_padding_sequences > 0 and filled.batch.num_tokens % token_bucket == 0
    assert filled.batch.num_sequences % TOGETHER.get(name, 1) == 0
    check_same(loss_and_gradients(objective, model, [filled]), loss_and_gradients(objective, model, [step_inputs]))


@pytest.mark.parametrize("name", KINDS)
def test_drawing_from_a_filled_batch(random, name):
    """A batch that has dead sequences before its targets are drawn: they want nothing."""
    objective, model = objective_for(name), model_for(KINDS[name])
    batch, together = batch_for(name, random), TOGETHER.get(name, 1)
    filled = batch.bucketed(batch.num_tokens + 15, batch.num_sequences + 2 * together)
    expected = loss_and_gradients(objective, model, [drawn_for(objective, batch)])
    check_same(loss_and_gradients(objective, model, [drawn_for(objective, filled)]), expected)
    check_same(loss_and_gradients(objective, model, drawn_for(objective, filled).split(30)), expected)


@pytest.mark.parametrize("name", ["single", "separate", "tokens"])
def test_class_weights_are_those_of_torch(random, name):
    """The sum over the count is `torch`'s weighted mean, which divides by the weights of the targets."""
    weights = torch.tensor([0.5, 3.0, 1.25])
    objective, model = objective_for(name, weights), model_for(KINDS[name])
    batch = batch_for(name, random)
    labels = batch.labels_T if name == "tokens" else batch.labels_N[:: TOGETHER.get(name, 1)]
    assert (labels == -1).any() and len(set(labels.tolist())) == 4
    step_inputs = drawn_for(objective, batch)
    total, count, gradients = loss_and_gradients(objective, model, [step_inputs])
    model.zero_grad()
    expected = F.cross_entropy(model.outputs(batch), labels, weights.double(), ignore_index=-1)
    expected.backward()
    assert total / count == pytest.approx(expected.item(), rel=1e-12)
    for key, parameter in model.named_parameters():
        assert (gradients[key] / count - parameter.grad).abs().max() <= 1e-12, key
    check_same(loss_and_gradients(objective, model, step_inputs.split(40)), (total, count, gradients))


def test_class_weights_make_every_class_count_the_same():
    labels = np.array([0, 0, 0, 0, 1, 1, 2, -1, -1])
    weights = balanced_class_weights(labels, 4)
    sums = [float(weights[label]) * int((labels == label).sum()) for label in range(3)]
    assert sums == pytest.approx([7 / 4] * 3)
    assert torch.isfinite(weights).all(), "a class that never occurs"


@pytest.mark.parametrize("name", ["single", "separate", "choice", "tokens"])
def test_an_unknown_class_counts_nothing(random, name):
    objective, model = objective_for(name), model_for(KINDS[name])
    batch, together = batch_for(name, random), TOGETHER.get(name, 1)
    if name == "tokens":
        offsets, labels = batch.offsets_host, batch.labels_T.clone()
        labels[offsets[0] : offsets[2]] = -1
        unknown = batch.with_values("tokens", labels_T=labels)
    else:
        labels = batch.labels_N.clone()
        labels[: 2 * together] = -1
        unknown = batch.with_values("sequences", labels_N=labels)
    known = unknown.slice(2 * together, batch.num_sequences)
    found = loss_and_gradients(objective, model, [drawn_for(objective, unknown)])
    check_same(found, loss_and_gradients(objective, model, [drawn_for(objective, known)]))
    nothing = drawn_for(objective, unknown.slice(0, 2 * together))
    total, count, gradients = loss_and_gradients(objective, model, [nothing])
    assert (total, count) == (0, 0) and not any(each.any() for each in gradients.values())


def test_answerable_classifier(random):
    """Spans count only where there is an answer; the classifier, (has one, has none), everywhere."""
    objective, model = objective_for("answerable"), model_for(KINDS["answerable"])
    batch = batch_for("answerable", random)
    step_inputs = drawn_for(objective, batch)
    found = model.outputs(batch)
    targets = step_inputs.targets["task"]
    losses, is_right = HEADS["spans"].losses(objective.head_config, found, targets.values_K)
    assert targets.weights_K.tolist() == [1.0] * batch.num_sequences
    for row, loss, right, (start, end) in zip(found, losses, is_right, batch.labels_N.tolist(), strict=True):
        spans, classifier = row[:-1].log_softmax(0), row[-1].log_softmax(0)
        expected = -classifier[1] if end == 0 else -classifier[0] - (spans[start, 0] + spans[end, 1]) / 2
        assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
        assert bool(right) == (row[:-1].argmax(0).tolist() == [start, end])


@pytest.mark.parametrize("name", KINDS)
def test_hits_say_the_same_sums(random, name):
    """For validation: the loss again, and how often the answer is right: between none and all."""
    objective, model = objective_for(name), model_for(KINDS[name])
    step_inputs = drawn_for(objective, batch_for(name, random))
    hits = objective.loss_sums(model, step_inputs, with_metrics=True)
    assert hits["task"].item() == objective.loss_sums(model, step_inputs)["task"].item()
    assert 0 <= hits["task_accuracy"].item() <= step_inputs.total_weights()["task"].item()


def test_right_answers_are_all_hits():
    """Outputs that match the targets: every loss is about 0 and every prediction is right."""

    class Sure(torch.nn.Module):
        def outputs(self, batch: Batch) -> torch.Tensor:
            return 50.0 * F.one_hot(batch.labels_N, 3)

    batch = pack([np.arange(1, 4)] * 3, labels=np.array([2, 0, 1]))
    objective = objective_for("single")
    hits = objective.loss_sums(Sure(), drawn_for(objective, batch), with_metrics=True)
    assert hits["task_accuracy"].item() == 3 and hits["task"].item() < 1e-6
