"""Distillation: every loss equals a direct computation sequence by sequence, no split changes it, and only the student
and the projections move."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch

from hornbook.batch import Batch, pack
from hornbook.models.bert import Bert, BertConfig
from hornbook.models.distilbert import Distilbert, DistilbertConfig
from hornbook.models.encoder import Encoder
from hornbook.models.gpt import Gpt2
from hornbook.models.outputs import Output
from hornbook.models.pair import DistillationPair, FixedProjection, first_layers, start_from_teacher
from hornbook.objectives.distillation import (
    CorpusDistillation,
    DistillationSettings,
    pair_for,
)
from hornbook.objectives.masking import Masking, MaskingSettings
from hornbook.objectives.matching import PLANS, Match, Recipe, layer_pairs, recipes_in
from hornbook.objectives.task_distillation import TaskDistillation
from hornbook.tasks.objective import TaskObjective
from hornbook.train.step import bucketed

VOCABULARY, MASK, SPECIAL = 70, 4, [0, 1, 2, 3, 4]
LENGTHS = [12, 30, 7, 21]
QUERIES, KEYS, VALUES = range(3)


def encoder(kind: type[Encoder], seed: int, heads=("mlm",), output: Output | None = None, **size) -> Encoder:
    usual = {"num_layers": 2, "width": 24, "num_heads": 2, "inner_width": 32, "max_positions": 32, "init_std": 0.3}
    config = kind.config_kind(VOCABULARY, **usual | {"dropout": 0.0, "attention_dropout": 0.0} | size)
    if output is not None:
        heads = kind.heads_for(output)
    model = kind(config, heads, output)
    model.initialise(torch.Generator().manual_seed(seed))
    return model.double().eval()


def teacher_of(seed: int = 1, **changes) -> Encoder:
    return encoder(Bert, seed, **{"num_layers": 4, "width": 40, "num_heads": 2} | changes)


def batch_of(seed: int = 0, **labels) -> Batch:
    random = np.random.default_rng(seed)
    ids = [np.concatenate([[2], random.integers(5, VOCABULARY, n - 2), [3]]) for n in LENGTHS]
    return pack(ids, [(np.arange(n) >= n // 2).astype(int) for n in LENGTHS], longest=32, **labels)


def corpus_objective(recipe: Recipe, student: Encoder, teacher: Encoder, soft_targets="all") -> CorpusDistillation:
    masking = Masking(MaskingSettings(rate=0.3), VOCABULARY, MASK, SPECIAL)
    return CorpusDistillation(masking, recipe, student.config, teacher.config, soft_targets)


def pair_of(objective, student: Encoder, teacher: Encoder) -> DistillationPair:
    pair = pair_for(objective.recipe, student, teacher)
    pair.initialise_projections(torch.Generator().manual_seed(5))
    return pair.double()


def drawn_of(objective, batch: Batch | None = None):
    return objective.draw(batch or batch_of(), torch.Generator().manual_seed(0))


def alone(batch: Batch) -> list[Batch]:
    """Each sequence as a batch of its own."""
    return [batch.part(i, i + 1) for i in range(batch.num_sequences)]


def qkv_by_hand(model: Encoder, batch: Batch, layer: int) -> list[torch.Tensor]:
    """Queries, keys and values of a layer, H x S x C, from what goes into it."""
    attention = model.blocks[layer - 1].attention
    rows = attention.qkv(model.hidden_states(batch)[layer - 1]).chunk(3, -1)
    return [row.unflatten(-1, (attention.num_heads, -1)).transpose(0, 1) for row in rows]


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
    objective = corpus_objective(Recipe((match,)), student, teacher)
    pair, drawn = pair_of(objective, student, teacher), drawn_of(objective)
    found = objective.sums(pair, drawn)
    assert list(found) == [match.quantity] and found[match.quantity] > 1e-3
    expected = by_hand(match, pair, drawn.batch, match.quantity)
    assert float(found[match.quantity].detach()) == pytest.approx(expected, rel=1e-9)
    count = len(LENGTHS) if match.tokens == "first" else sum(LENGTHS)
    assert float(drawn.counts()[match.quantity]) == count


def test_heads_resplit_into_a_number_equal_those_of_a_model_with_so_many():
    student, teacher = encoder(Bert, 0, num_heads=4), teacher_of()
    match = Match("value-relations", "kl", heads="2")
    objective = corpus_objective(Recipe((match,)), student, teacher)
    found = objective.sums(pair_of(objective, student, teacher), drawn_of(objective))["value-relations"]
    total = 0.0
    for ours_at, theirs_at in layer_pairs("uniform", 2, 4):
        for each in alone(drawn_of(objective).batch):
            rows = [
                qkv_by_hand(student, each, ours_at)[VALUES].transpose(0, 1).flatten(1).unflatten(1, (2, -1)),
                qkv_by_hand(teacher, each, theirs_at)[VALUES].transpose(0, 1),
            ]
            q, p = (torch.einsum("ahc,bhc->hab", x, x).div(x.shape[-1] ** 0.5).softmax(-1) for x in rows)
            total += float((p * (p / q).log()).sum(-1).mean(0).sum())
    assert float(found) == pytest.approx(total, rel=1e-9)


@pytest.mark.parametrize("soft_targets", ["all", "masked"])
@pytest.mark.parametrize("loss", ["kl", "soft-cross-entropy", "mse"])
def test_scores_over_the_vocabulary(loss, soft_targets):
    student, teacher = encoder(Distilbert, 0), teacher_of()
    recipe = Recipe((Match("logits", loss, 5.0, temperature=2.0),), 2.0)
    objective = corpus_objective(recipe, student, teacher, soft_targets)
    assert objective.weights == {"mlm": 2.0, "logits": 5.0}
    pair, drawn = pair_of(objective, student, teacher), drawn_of(objective)
    assert (drawn.batch.ids_T != batch_of().ids_T).any()  # both read the masked text
    found = objective.sums(pair, drawn)
    mlm = drawn.targets["mlm"]
    places = set(mlm.positions_K.tolist()) if soft_targets == "masked" else set(range(sum(LENGTHS)))
    ours, theirs = (m.mlm_logits(m(drawn.batch))[:, :VOCABULARY] for m in (student, teacher))
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
    assert float(drawn.counts()["logits"]) == len(places)
    right = ours.log_softmax(-1)[mlm.positions_K, mlm.values_K]
    assert float(found["mlm"].detach()) == pytest.approx(-float(right.sum()), rel=1e-9)


OUTPUTS = {
    "single": Output("sequence", 3, ("a", "b", "c")),
    "multi": Output("sequence", 3, ("a", "b", "c"), "multi"),
    "number": Output("sequence", 1, ("score",), "number"),
    "choice": Output("choice"),
    "tokens": Output("tokens", 3, ("O", "B-X", "I-X")),
    "spans": Output("spans", 2),
    "answerable": Output("spans", 2, answerable=True),
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
        return batch_of(labels=np.array([1, 1, 0, 0]), num_together=2)
    return batch_of(labels=np.array([0, 2, 1, 1]))


def task_pair(name: str, recipe: Recipe, student_kind: type[Encoder] = Distilbert):
    output = OUTPUTS[name]
    student, teacher = encoder(student_kind, 0, output=output), teacher_of(output=output)
    objective = TaskDistillation(TaskObjective(output), output, recipe, student.config, teacher.config)
    return objective, pair_of(objective, student, teacher)


def soft(s: torch.Tensor, t: torch.Tensor, temperature: float) -> float:
    p, q = (t / temperature).softmax(-1), (s / temperature).softmax(-1)
    return -(temperature**2) * float((p * q.log()).sum())


@pytest.mark.parametrize("name", OUTPUTS)
def test_what_a_task_answers(name):
    recipe = Recipe((Match("logits", "soft-cross-entropy", temperature=3.0),), 0.5)
    objective, pair = task_pair(name, recipe)
    drawn = drawn_of(objective, labelled_batch(name))
    found = objective.sums(pair, drawn)
    own = TaskObjective(OUTPUTS[name])
    expected_own = own.sums(pair.student, own.draw(labelled_batch(name), torch.Generator()))["task"]
    assert float(found["task"].detach()) == pytest.approx(float(expected_own), rel=1e-9)
    ours, theirs = pair.student.outputs(drawn.batch), pair.teacher.outputs(drawn.batch)
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
    objective = corpus_objective(PLANS[plan].general, student, teacher)
    pair, drawn = pair_of(objective, student, teacher), drawn_of(objective)
    whole = objective.sums(pair, drawn)
    parts = [objective.sums(pair, part) for part in drawn.split(32)]
    assert len(parts) > 1
    filled = objective.sums(pair, bucketed(drawn, 128, 64))
    for term, value in whole.items():
        assert float(sum(part[term] for part in parts)) == pytest.approx(float(value), rel=1e-9)
        assert float(filled[term]) == pytest.approx(float(value), rel=1e-9)


@pytest.mark.parametrize("name", ["single", "tokens", "spans", "choice"])
@pytest.mark.parametrize("stage", [0, 1])
def test_no_split_changes_a_sum_of_a_task(name, stage):
    objective, pair = task_pair(name, PLANS["tinybert"].task[stage])
    drawn = drawn_of(objective, labelled_batch(name))
    whole, filled = objective.sums(pair, drawn), objective.sums(pair, bucketed(drawn, 128, 64))
    parts = [objective.sums(pair, part) for part in drawn.split(45)]
    assert len(parts) > 1
    for term, value in whole.items():
        assert float(sum(part[term] for part in parts)) == pytest.approx(float(value), rel=1e-9)
        assert float(filled[term]) == pytest.approx(float(value), rel=1e-9)


def test_gradients_reach_the_student_and_the_projections_only():
    student, teacher = encoder(Bert, 0), teacher_of()
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    matches = (*PLANS["tinybert"].general.matches, *PLANS["distilbert"].general.matches[:1])
    objective = corpus_objective(Recipe(matches, 1.0), student, teacher)
    pair = pair_of(objective, student, teacher)
    optimizer = torch.optim.AdamW(pair.parameters(), 0.01, weight_decay=0.1)
    pair.train()
    assert not pair.teacher.training
    for _ in range(2):
        drawn = drawn_of(objective)
        sum(objective.sums(pair, drawn).values()).backward()
        assert all(each.grad is not None and each.grad.any() for each in pair.parameters())
        optimizer.step()
        optimizer.zero_grad()
    assert all(each.grad is None and not each.requires_grad for each in pair.teacher.parameters())
    assert all(torch.equal(value, pair.teacher.state_dict()[name]) for name, value in before.items())
    assert not any("teacher" in name or "outside" in name for name in pair.state_dict())
    assert {name.partition(".")[0] for name in pair.state_dict()} == {"student", "projections"}


@pytest.mark.parametrize("quantity", ["attention", "value-relations", "keys"])
def test_gradients_go_through_queries_keys_and_values(quantity):
    """By that term alone: down to the embeddings, and as far as its own rows."""
    student, teacher = encoder(Bert, 0), teacher_of(width=24)
    loss = "mse" if quantity == "keys" else "kl"
    objective = corpus_objective(Recipe((Match(quantity, loss, layers="last"),)), student, teacher)
    objective.sums(pair_of(objective, student, teacher), drawn_of(objective))[quantity].backward()
    rows = student.blocks[-1].attention.qkv.weight.grad.chunk(3)
    expected = {"attention": (True, True, False), "value-relations": (False, False, True), "keys": (False, True, False)}
    assert tuple(bool(each.any()) for each in rows) == expected[quantity]
    assert student.embeddings.tokens.weight.grad.any() and student.blocks[-1].expand.weight.grad is None


@pytest.mark.parametrize("kind", [Bert, Gpt2])
def test_a_block_gives_what_its_attention_reads(kind):
    """Of the layers that are named, and the hidden states are those of a model that is not asked."""
    model, batch, hidden, asked = encoder(kind, 0, (), num_layers=3), batch_of(), [], {1: None, 3: None}
    model(batch, hidden, qkv=asked)
    assert asked.keys() == {1, 3}
    for number, found_T3HC in asked.items():
        block = model.blocks[number - 1]
        x_TD = block.attention_norm(hidden[number - 1]) if kind is Gpt2 else hidden[number - 1]
        assert torch.equal(found_T3HC.flatten(1), block.attention.qkv(x_TD))
    assert torch.equal(hidden[-1], model(batch))


def test_a_gpt_learns_from_a_gpt():
    output = OUTPUTS["multi"]
    student, teacher = (encoder(Gpt2, seed, output=output) for seed in (0, 1))
    recipe = Recipe((Match("attention", "kl", layers="last"), Match("hidden", "mse"), Match("logits", "mse")))
    objective = TaskDistillation(TaskObjective(output), output, recipe, student.config, teacher.config)
    pair = pair_of(objective, student, teacher)
    sums = objective.sums(pair, drawn_of(objective, labelled_batch("multi")))
    assert all(float(value) > 0.01 for value in sums.values())
    sum(sums.values()).backward()
    assert all(each.attention.qkv.weight.grad.any() for each in student.blocks)
    student.load_state_dict(teacher.state_dict())
    sums = objective.sums(pair, drawn_of(objective, labelled_batch("multi")))
    assert all(abs(float(value)) < 1e-9 for value in sums.values())


def test_a_gpts_scores_over_the_vocabulary():
    """At every token; its own loss is that of the token after it."""
    student, teacher = (encoder(Gpt2, seed, ("clm",), num_layers=2 + seed) for seed in (0, 1))
    recipe = Recipe((Match("logits", "kl", 5.0, temperature=2.0),), 2.0)
    objective = CorpusDistillation(None, recipe, student.config, teacher.config)
    assert objective.weights == {"clm": 2.0, "logits": 5.0}
    pair, drawn = pair_of(objective, student, teacher), drawn_of(objective)
    assert torch.equal(drawn.batch.ids_T, batch_of().ids_T)
    found = objective.sums(pair, drawn)
    ours, theirs = (m.clm_logits(m(drawn.batch))[:, :VOCABULARY] for m in (student, teacher))
    p, q = (theirs / 2).softmax(-1), (ours / 2).softmax(-1)
    assert float(found["logits"].detach()) == pytest.approx(4 * float((p * (p / q).log()).sum().detach()), rel=1e-9)
    starts = np.cumsum([0, *LENGTHS])
    places = [place for first, end in itertools.pairwise(starts) for place in range(first, end - 1)]
    after = drawn.batch.ids_T[torch.tensor(places) + 1]
    expected = -ours.log_softmax(-1)[torch.tensor(places), after].sum()
    assert float(found["clm"].detach()) == pytest.approx(float(expected.detach()), rel=1e-9)
    assert float(drawn.counts()["clm"]) == len(places)


def test_the_teacher_goes_along_to_a_type():
    student, teacher = encoder(Bert, 0), teacher_of()
    pair = DistillationPair(student, teacher, {})
    assert next(pair.float().teacher.parameters()).dtype == torch.float32


def test_a_target_that_is_projected_cannot_collapse():
    """A learned projection of the teacher and a student that follows it would meet at zero; this one stays as long as
    the teacher's vectors are, and as far apart."""
    student, teacher = encoder(Bert, 0, width=8), teacher_of()
    match = Match("hidden", "mse", layers="last", projection="teacher-to-student")
    objective = corpus_objective(Recipe((match,)), student, teacher)
    pair = pair_of(objective, student, teacher)
    assert isinstance(pair.projection("hidden"), FixedProjection) and not list(pair.projections.parameters())
    weight = pair.projection("hidden").weight.clone()
    torch.testing.assert_close(weight @ weight.T, 5 * torch.eye(8, dtype=torch.float64))  # 40 / 8 of the squares
    optimizer = torch.optim.Adam(pair.parameters(), 0.02)
    first = None
    for _ in range(150):
        loss = objective.sums(pair, drawn_of(objective))["hidden"] / sum(LENGTHS)
        first = first or float(loss)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert float(loss) < 0.7 * first  # it learns,
    assert torch.equal(weight, pair.projection("hidden").weight)
    batch = drawn_of(objective).batch
    target = pair.projection("hidden")(teacher(batch))
    found = pair.student(batch)
    assert found.norm(dim=-1).mean() > 0.3 * target.norm(dim=-1).mean()  # and neither side is near zero,
    assert found.std(0).mean() > 0.3 * target.std(0).mean()  # nor the same for every token


def test_first_weights_from_every_other_layer():
    teacher = teacher_of(num_layers=4, width=24)
    student = encoder(Distilbert, 9, num_layers=2)
    assert "layers 1, 4 of the teacher, its embeddings, its vocabulary head" in start_from_teacher(student, teacher)
    for block, number in zip(student.blocks, (1, 4), strict=True):
        expected = teacher.blocks[number - 1].state_dict()
        assert all(torch.equal(value, expected[name]) for name, value in block.state_dict().items())
    assert torch.equal(student.embeddings.tokens.weight, teacher.embeddings.tokens.weight)
    assert torch.equal(student.mlm.bias, teacher.mlm.bias)
    assert first_layers(6, 12) == [1, 3, 5, 8, 10, 12] and first_layers(1, 3) == [1]
    narrow = encoder(Distilbert, 9, width=12)
    untouched = {name: value.clone() for name, value in narrow.state_dict().items()}
    assert "random weights: it has width 12 and the teacher 24" in start_from_teacher(narrow, teacher)
    assert "random weights: its norms stand elsewhere" in start_from_teacher(encoder(Gpt2, 9, ()), teacher)
    assert all(torch.equal(value, untouched[name]) for name, value in narrow.state_dict().items())


def test_a_student_that_equals_its_teacher_has_nothing_to_learn():
    teacher = teacher_of()
    student = teacher_of(seed=2)
    start_from_teacher(student, teacher)
    matches = tuple(dataclasses.replace(each, projection="none") for each in PLANS["tinybert"].general.matches)
    objective = corpus_objective(Recipe((*matches, *PLANS["distilbert"].general.matches[:1])), student, teacher)
    student.embeddings.segments.load_state_dict(teacher.embeddings.segments.state_dict())
    sums = objective.sums(pair_of(objective, student, teacher), drawn_of(objective))
    assert all(abs(float(value)) < 1e-9 for value in sums.values())


def test_what_does_not_fit_is_refused_with_the_fix():
    student, teacher = encoder(Bert, 0), teacher_of(num_heads=4)
    with pytest.raises(ValueError, match=r"take a student of 4 heads \(on plain text, model\.num_heads=4\)"):
        corpus_objective(Recipe((Match("attention", "mse"),)), student, teacher)
    with pytest.raises(ValueError, match="student-to-teacher"):
        corpus_objective(Recipe((Match("hidden", "mse"),)), student, teacher)
    left = encoder(Bert, 0, direction="left")
    with pytest.raises(ValueError, match="attends to 'left'"):
        corpus_objective(Recipe((Match("attention", "mse", heads="mean"),)), left, teacher)
    with pytest.raises(ValueError, match="which see nothing of the text"):
        corpus_objective(Recipe((Match("hidden", "mse", tokens="first"),)), left, teacher_of(width=24))
    sides = encoder(Gpt2, 0, (), window=4), encoder(Gpt2, 0, ())
    with pytest.raises(ValueError, match="window hides part of them"):
        corpus_objective(Recipe((Match("attention", "mse"),)), *sides)
    with pytest.raises(ValueError, match="matched by mse, cosine, not by 'kl'"):
        Match("hidden", "kl")
    with pytest.raises(ValueError, match="for each of the student's 3 layers"):
        layer_pairs("1,2", 3, 6)
    with pytest.raises(ValueError, match="or numbers such as"):
        layer_pairs("middle", 3, 6)
    with pytest.raises(ValueError, match="there is no recipe 'tiny'"):
        recipes_in("tiny", False)
    with pytest.raises(ValueError, match="is for tasks"):
        recipes_in("patient", False)
    with pytest.raises(ValueError, match=r"'match\.qantity'; did you mean 'match\.quantity'"):
        recipes_in('{"matches": [{"qantity": "hidden"}]}', False)


def test_attention_of_one_direction_matches_what_is_seen_only():
    student, teacher = encoder(Bert, 0, direction="left"), teacher_of(direction="left")
    objective = corpus_objective(Recipe((Match("attention", "kl", layers="last"),)), student, teacher)
    found = objective.sums(pair_of(objective, student, teacher), drawn_of(objective))["attention"]
    total = 0.0
    for each in alone(drawn_of(objective).batch):
        sides = [qkv_by_hand(student, each, 2), qkv_by_hand(teacher, each, 4)]
        scores = [(q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5) for q, k, _ in sides]
        hidden = torch.ones(scores[0].shape[1:], dtype=torch.bool).triu(1)
        q, p = (each.masked_fill(hidden, -torch.inf).log_softmax(-1) for each in scores)
        total += float((p.exp() * (p - q).masked_fill(hidden, 0)).sum(-1).mean(0).sum())
    assert float(found) == pytest.approx(total, rel=1e-9)


def test_settings_change_a_recipe():
    settings = DistillationSettings("tinybert", without=("attention",), layers="top", projection="teacher-to-student")
    (general,) = settings.stages(False)
    assert [each.quantity for each in general.matches] == ["embeddings", "hidden"]
    assert all((m.layers, m.projection) == ("top", "teacher-to-student") for m in general.matches)
    assert len(settings.stages(True)) == 2
    alone = DistillationSettings("tinybert", without=("embeddings", "hidden", "attention")).stages(True)
    assert [each.named().keys() for each in alone] == [{"logits"}]
    hard = DistillationSettings("distilbert", without=("logits",), own_weight=1.0).stages(True)
    assert hard == (Recipe((), 1.0),)
    with pytest.raises(ValueError, match="leaves nothing to learn"):
        DistillationSettings("tinybert", without=("embeddings", "hidden", "attention")).stages(False)
    with pytest.raises(ValueError, match="the recipe matches attention, embeddings, hidden"):
        DistillationSettings("tinybert", without=("logits",)).stages(False)
    assert DistilbertConfig().num_layers == 6 and BertConfig().num_layers == 12


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ('{"matches": [', r"the recipe is not JSON: line 1, column \d+"),
        ('{"matches": ["hidden"]}', "a recipe is"),
        ('{"matches": [], "own_weight": "1"}', "a recipe is"),
        ('{"matches": [{"quantity": "logits"}], "settings": 3}', "a recipe is"),
        ('{"matches": [{"quantity": "logits", "weight": "2"}]}', 'weight of a match must be a number, not "2"'),
        ('{"matches": [{"quantity": "attention", "heads": 4}]}', "heads of a match must be text in quotes, not 4"),
        ('{"matches": [{"quantity": "hidden", "layers": [1, 2]}]}', r"layers of a match must be text .* not \[1, 2\]"),
    ],
)
def test_a_recipe_that_is_written_wrong_is_refused_in_words(written, said):
    with pytest.raises(ValueError, match=said):
        recipes_in(written, True)
