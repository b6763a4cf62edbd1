"""Distillation: every loss equals a direct computation sequence by sequence, and no split changes it."""

import itertools
import math

import numpy as np
import pytest
import torch
from teachers_and_students import (
    KEYS,
    LENGTHS,
    QUERIES,
    VALUES,
    VOCABULARY,
    alone,
    batch_of,
    corpus_objective,
    drawn_of,
    encoder,
    pair_of,
    qkv_by_hand,
    teacher_of,
)

from hornbook.batch import Batch
from hornbook.models.bert import Bert
from hornbook.models.distilbert import Distilbert
from hornbook.models.distillation_pair import DistillationPair
from hornbook.models.encoder import Encoder
from hornbook.models.gpt import Gpt2
from hornbook.models.head_config import HeadConfig
from hornbook.objectives.distillation.matching import PUBLISHED, Match, StageRecipe, layer_pairs
from hornbook.objectives.distillation.objective import CorpusDistillation
from hornbook.objectives.distillation.task import TaskDistillation
from hornbook.tasks.objective import TaskObjective
from hornbook.train.step import bucketed


@torch.no_grad()
def by_hand(match: Match, pair: DistillationPair, batch: Batch, term: str) -> float:
    """The sum over tokens of the loss, from networks that read each sequence alone."""
    total = 0.0
    pairs = layer_pairs(match.layers, pair.student.config.num_layers, pair.teacher.config.num_layers)
    for ours_at, theirs_at in [(0, 0)] if match.quantity == "embeddings" else pairs:
        for each in alone(batch):
            if match.quantity in ("hidden", "embeddings"):
                ours, theirs = pair.student.hidden_states(each)[ours_at], pair.teacher.hidden_states(each)[theirs_at]
            else:
                places = {"queries": QUERIES, "keys": KEYS, "values": VALUES}
                sides = (qkv_by_hand(pair.student, each, ours_at), qkv_by_hand(pair.teacher, each, theirs_at))
                if match.quantity in places:
                    ours, theirs = (side[places[match.quantity]].transpose(0, 1).flatten(1) for side in sides)
                else:
                    a, b = {"attention": (0, 1), "query-relations": (0, 0), "value-relations": (2, 2)}[match.quantity]
                    ours, theirs = (
                        side[a] @ side[b].transpose(-2, -1) / math.sqrt(side[a].shape[-1]) for side in sides
                    )
                    if match.heads == "mean":
                        ours, theirs = ours.mean(0, keepdim=True), theirs.mean(0, keepdim=True)
                    if match.loss == "mse":
                        total += float(((ours - theirs) ** 2).mean((0, 2)).sum())
                    else:
                        p, q = theirs.softmax(-1), ours.softmax(-1)
                        total += float((p * (p.log() - q.log())).sum(-1).mean(0).sum())
                    continue
            if match.tokens == "first":
                ours, theirs = ours[:1], theirs[:1]
            if match.projection == "student-to-teacher":
                ours = ours @ pair.projection(term).weight.T + pair.projection(term).bias
            if match.projection == "teacher-to-student":
                theirs = theirs @ pair.projection(term).weight.T
            for a, b in zip(ours, theirs, strict=True):
                if match.loss == "cosine":
                    total += float(1 - (a @ b) / (a.norm() * b.norm()))
                else:
                    total += float(((a - b) ** 2).sum() / len(b))
    return total


MATCHES = [
    Match("embeddings", "mse", projection="student-to-teacher"),
    Match("hidden", "mse", projection="student-to-teacher"),
    Match("hidden", "mse", layers="top", projection="teacher-to-student"),
    Match("hidden", "cosine", layers="last", projection="student-to-teacher"),
    Match("hidden", "cosine", layers="uniform-but-last", projection="student-to-teacher", tokens="first"),
    Match("queries", "mse", layers="1,4", projection="student-to-teacher"),
    Match("keys", "mse", layers="bottom", projection="student-to-teacher"),
    Match("values", "cosine", projection="student-to-teacher"),
    Match("attention", "mse"),
    Match("attention", "kl", layers="last"),
    Match("attention", "mse", heads="mean"),
    Match("value-relations", "kl", layers="last"),
    Match("query-relations", "mse", layers="top"),
]


@pytest.mark.parametrize("match", MATCHES, ids=lambda m: f"{m.quantity} {m.loss} {m.layers} {m.projection} {m.heads}")
@pytest.mark.parametrize("kind", [Bert, Distilbert])
def test_a_match_of_layers_equals_its_definition(match, kind):
    student, teacher = encoder(kind, 0), teacher_of()
    objective = corpus_objective(StageRecipe((match,)), student, teacher)
    pair, step_inputs = pair_of(objective, student, teacher), drawn_of(objective)
    found = objective.loss_sums(pair, step_inputs)
    assert list(found) == [match.quantity] and found[match.quantity] > 1e-3
    expected = by_hand(match, pair, step_inputs.batch, match.quantity)
    assert float(found[match.quantity].detach()) == pytest.approx(expected, rel=1e-9)
    count = len(LENGTHS) if match.tokens == "first" else sum(LENGTHS)
    assert float(step_inputs.total_weights()[match.quantity]) == count


def test_heads_resplit_into_a_number_equal_those_of_a_model_with_so_many():
    student, teacher = encoder(Bert, 0, num_heads=4), teacher_of()
    match = Match("value-relations", "kl", heads="2")
    objective = corpus_objective(StageRecipe((match,)), student, teacher)
    found = objective.loss_sums(pair_of(objective, student, teacher), drawn_of(objective))["value-relations"]
    total = 0.0
    for ours_at, theirs_at in layer_pairs("uniform", 2, 4):
        for each in alone(drawn_of(objective).batch):
            rows = [
                qkv_by_hand(student, each, ours_at)[VALUES].detach().transpose(0, 1).flatten(1).unflatten(1, (2, -1)),
                qkv_by_hand(teacher, each, theirs_at)[VALUES].transpose(0, 1),
            ]
            q, p = (torch.einsum("ahc,bhc->hab", x, x).div(x.shape[-1] ** 0.5).softmax(-1) for x in rows)
            total += float((p * (p / q).log()).sum(-1).mean(0).sum())
    assert float(found.detach()) == pytest.approx(total, rel=1e-9)


@pytest.mark.parametrize("soft_targets", ["all", "masked"])
@pytest.mark.parametrize("loss", ["kl", "soft-cross-entropy", "mse"])
def test_scores_over_the_vocabulary(loss, soft_targets):
    student, teacher = encoder(Distilbert, 0), teacher_of()
    recipe = StageRecipe((Match("logits", loss, 5.0, temperature=2.0),), 2.0)
    objective = corpus_objective(recipe, student, teacher, soft_targets)
    assert objective.weights == {"mlm": 2.0, "logits": 5.0}
    pair, step_inputs = pair_of(objective, student, teacher), drawn_of(objective)
    assert (step_inputs.batch.ids_T != batch_of().ids_T).any()  # both read the masked text
    found = objective.loss_sums(pair, step_inputs)
    mlm = step_inputs.targets["mlm"]
    places = set(mlm.indices_K.tolist()) if soft_targets == "masked" else set(range(sum(LENGTHS)))
    ours, theirs = (m.vocabulary_logits(m(step_inputs.batch))[:, :VOCABULARY].detach() for m in (student, teacher))
    expected = 0.0
    for place in places:
        s, t = ours[place], theirs[place]
        p, q = (t / 2).softmax(-1), (s / 2).softmax(-1)
        expected += {
            "kl": lambda p=p, q=q: 4 * float((p * (p / q).log()).sum()),
            "soft-cross-entropy": lambda p=p, q=q: -4 * float((p * q.log()).sum()),
            "mse": lambda s=s, t=t: float(((s - t) ** 2).mean()),
        }[loss]()
    assert float(found["logits"].detach()) == pytest.approx(expected, rel=1e-9)
    assert float(step_inputs.total_weights()["logits"]) == len(places)
    right = ours.log_softmax(-1)[mlm.indices_K, mlm.values_K]
    assert float(found["mlm"].detach()) == pytest.approx(-float(right.sum()), rel=1e-9)


OUTPUTS = {
    "single": HeadConfig("sequence", 3, ("a", "b", "c")),
    "multi": HeadConfig("sequence", 3, ("a", "b", "c"), "multi_label_classification"),
    "number": HeadConfig("sequence", 1, ("score",), "regression"),
    "choice": HeadConfig("choice"),
    "tokens": HeadConfig("tokens", 3, ("O", "B-X", "I-X")),
    "spans": HeadConfig("spans", 2),
    "answerable": HeadConfig("spans", 2, has_answer_classifier=True),
}


def labelled_batch(name: str) -> Batch:
    random = np.random.default_rng(3)
    if name == "tokens":
        return batch_of(token_labels=[random.integers(-1, 3, n) for n in LENGTHS])
    if name in ("spans", "answerable"):
        return batch_of(labels=np.array([[1, 3], [0, 0], [2, 2], [5, 9]]))
    if name == "multi":
        return batch_of(labels=random.integers(0, 2, (4, 3)).astype(np.float32))
    if name == "number":
        return batch_of(labels=np.array([0.5, 1.5, -1.0, 2.0]))
    if name == "choice":
        return batch_of(labels=np.array([1, 1, 0, 0]), group_size=2)
    return batch_of(labels=np.array([0, 2, 1, 1]))


def task_pair(name: str, recipe: StageRecipe, student_kind: type[Encoder] = Distilbert):
    head_config = OUTPUTS[name]
    student, teacher = encoder(student_kind, 0, head_config=head_config), teacher_of(head_config=head_config)
    objective = TaskDistillation(TaskObjective(head_config), head_config, recipe, student.config, teacher.config)
    return objective, pair_of(objective, student, teacher)


def soft(s: torch.Tensor, t: torch.Tensor, temperature: float) -> float:
    p, q = (t / temperature).softmax(-1), (s / temperature).softmax(-1)
    return -(temperature**2) * float((p * q.log()).sum().detach())


@pytest.mark.parametrize("name", OUTPUTS)
def test_what_a_task_answers(name):
    recipe = StageRecipe((Match("logits", "soft-cross-entropy", temperature=3.0),), 0.5)
    objective, pair = task_pair(name, recipe)
    step_inputs = drawn_of(objective, labelled_batch(name))
    found = objective.loss_sums(pair, step_inputs)
    own = TaskObjective(OUTPUTS[name])
    expected_own = own.loss_sums(pair.student, own.prepare(labelled_batch(name), 0))["task"]
    assert float(found["task"].detach()) == pytest.approx(float(expected_own.detach()), rel=1e-9)
    ours, theirs = (model.outputs(step_inputs.batch).detach() for model in (pair.student, pair.teacher))
    if name == "number":
        expected = float(((ours - theirs) ** 2).sum())
    elif name == "multi":
        expected = 0.0
        for s, t in zip(ours.flatten(), theirs.flatten(), strict=True):
            p, q = torch.sigmoid(t / 3), torch.sigmoid(s / 3)
            expected -= 9 * float(p * q.log() + (1 - p) * (1 - q).log()) / 3
    elif name == "tokens":
        wanted = labelled_batch(name).labels_T >= 0
        expected = sum(soft(s, t, 3.0) for s, t in zip(ours[wanted], theirs[wanted], strict=True))
    elif name in ("spans", "answerable"):
        expected = 0.0
        for s, t, n in zip(ours, theirs, LENGTHS, strict=True):
            expected += sum(soft(s[:n, end], t[:n, end], 3.0) / 2 for end in range(2))
            expected += soft(s[-1], t[-1], 3.0) if name == "answerable" else 0.0
    else:
        expected = sum(soft(s, t, 3.0) for s, t in zip(ours, theirs, strict=True))
    assert float(found["logits"].detach()) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("plan", ["distilbert", "tinybert", "minilm"])
def test_no_split_and_no_filling_up_changes_a_sum(plan):
    student, teacher = encoder(Bert, 0), teacher_of(width=24)
    objective = corpus_objective(PUBLISHED[plan].general, student, teacher)
    pair, step_inputs = pair_of(objective, student, teacher), drawn_of(objective)
    whole = objective.loss_sums(pair, step_inputs)
    parts = [objective.loss_sums(pair, part) for part in step_inputs.split(32)]
    assert len(parts) > 1
    filled = objective.loss_sums(pair, bucketed(step_inputs, 128, 64))
    for term, value in whole.items():
        expected = pytest.approx(value.item(), rel=1e-9)
        assert sum(part[term] for part in parts).item() == expected and filled[term].item() == expected


@pytest.mark.parametrize("name", ["single", "tokens", "spans", "choice"])
@pytest.mark.parametrize("stage", [0, 1])
def test_no_split_changes_a_sum_of_a_task(name, stage):
    objective, pair = task_pair(name, PUBLISHED["tinybert"].task[stage])
    step_inputs = drawn_of(objective, labelled_batch(name))
    whole, filled = objective.loss_sums(pair, step_inputs), objective.loss_sums(pair, bucketed(step_inputs, 128, 64))
    parts = [objective.loss_sums(pair, part) for part in step_inputs.split(45)]
    assert len(parts) > 1
    for term, value in whole.items():
        expected = pytest.approx(value.item(), rel=1e-9)
        assert sum(part[term] for part in parts).item() == expected and filled[term].item() == expected


@pytest.mark.parametrize("kind", [Bert, Gpt2])
def test_a_block_gives_what_its_attention_reads(kind):
    """Queries, keys and values of the given layers only; the hidden states are those of a call without `qkv`."""
    model, batch, hidden, asked = encoder(kind, 0, (), num_layers=3), batch_of(), [], {1: None, 3: None}
    model(batch, hidden, qkv=asked)
    assert asked.keys() == {1, 3}
    for number, found_T3HC in asked.items():
        block = model.blocks[number - 1]
        x_TD = block.attention_norm(hidden[number - 1]) if kind is Gpt2 else hidden[number - 1]
        assert torch.equal(found_T3HC.flatten(1), block.attention.qkv(x_TD))
    assert torch.equal(hidden[-1], model(batch))


def test_a_gpt_learns_from_a_gpt():
    head_config = OUTPUTS["multi"]
    student, teacher = (encoder(Gpt2, seed, head_config=head_config) for seed in (0, 1))
    recipe = StageRecipe((Match("attention", "kl", layers="last"), Match("hidden", "mse"), Match("logits", "mse")))
    objective = TaskDistillation(TaskObjective(head_config), head_config, recipe, student.config, teacher.config)
    pair = pair_of(objective, student, teacher)
    sums = objective.loss_sums(pair, drawn_of(objective, labelled_batch("multi")))
    assert all(value.item() > 0.01 for value in sums.values())
    sum(sums.values()).backward()
    assert all(each.attention.qkv.weight.grad.any() for each in student.blocks)
    student.load_state_dict(teacher.state_dict())
    sums = objective.loss_sums(pair, drawn_of(objective, labelled_batch("multi")))
    assert all(abs(value.item()) < 1e-9 for value in sums.values())


def test_a_gpts_scores_over_the_vocabulary():
    """At every token; its own loss is that of the token after it."""
    student, teacher = (encoder(Gpt2, seed, ("clm",), num_layers=2 + seed) for seed in (0, 1))
    recipe = StageRecipe((Match("logits", "kl", 5.0, temperature=2.0),), 2.0)
    objective = CorpusDistillation(None, recipe, student.config, teacher.config)
    assert objective.weights == {"clm": 2.0, "logits": 5.0}
    pair, step_inputs = pair_of(objective, student, teacher), drawn_of(objective)
    assert torch.equal(step_inputs.batch.ids_T, batch_of().ids_T)
    found = objective.loss_sums(pair, step_inputs)
    ours, theirs = (m.vocabulary_logits(m(step_inputs.batch))[:, :VOCABULARY] for m in (student, teacher))
    p, q = (theirs / 2).softmax(-1), (ours / 2).softmax(-1)
    assert float(found["logits"].detach()) == pytest.approx(4 * float((p * (p / q).log()).sum().detach()), rel=1e-9)
    offsets = np.cumsum([0, *LENGTHS])
    places = [place for first, end in itertools.pairwise(offsets) for place in range(first, end - 1)]
    after = step_inputs.batch.ids_T[torch.tensor(places) + 1]
    expected = -ours.log_softmax(-1)[torch.tensor(places), after].sum()
    assert float(found["clm"].detach()) == pytest.approx(float(expected.detach()), rel=1e-9)
    assert float(step_inputs.total_weights()["clm"]) == len(places)


def test_attention_of_one_direction_matches_what_is_seen_only():
    student, teacher = encoder(Bert, 0, direction="causal"), teacher_of(direction="causal")
    objective = corpus_objective(StageRecipe((Match("attention", "kl", layers="last"),)), student, teacher)
    found = objective.loss_sums(pair_of(objective, student, teacher), drawn_of(objective))["attention"]
    total = 0.0
    for each in alone(drawn_of(objective).batch):
        sides = [qkv_by_hand(student, each, 2), qkv_by_hand(teacher, each, 4)]
        scores = [(q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5) for q, k, _ in sides]
        hidden = torch.ones(scores[0].shape[1:], dtype=torch.bool).triu(1)
        q, p = (each.masked_fill(hidden, -torch.inf).log_softmax(-1) for each in scores)
        total += (p.exp() * (p - q).masked_fill(hidden, 0)).sum(-1).mean(0).sum().item()
    assert found.item() == pytest.approx(total, rel=1e-9)
