"""What moves in distillation and what a student starts from; recipes, their settings, and what is refused."""

import dataclasses
from pathlib import Path

import pytest
import torch
from teachers_and_students import LENGTHS, batch_of, corpus_objective, drawn_of, encoder, pair_of, teacher_of

from hornbook.models.bert import Bert, BertConfig
from hornbook.models.distilbert import Distilbert, DistilbertConfig
from hornbook.models.distillation_pair import DistillationPair, FixedProjection, initialize_from_teacher, layers_to_copy
from hornbook.models.gpt import Gpt2
from hornbook.objectives.distillation import losses as matched_losses
from hornbook.objectives.distillation import matching
from hornbook.objectives.distillation.matching import PUBLISHED, Match, StageRecipe, layer_pairs, recipes_in
from hornbook.objectives.distillation.objective import DistillationSettings


def told(recipe: StageRecipe | None) -> tuple:
    """(own weight, each match in the order of its fields)."""
    if recipe is None:
        return ()
    own, *matches = recipe.hard_label_weight, *recipe.matches
    return own, *((m.quantity, m.loss, m.weight, m.layers, m.temperature, m.projection, m.tokens) for m in matches)


def test_the_document_of_recipes_names_what_they_may_say():
    text = (Path(matching.__file__).parents[4] / "docs" / "recipes.md").read_text(encoding="utf-8")
    names = [each.name for kind in (Match, StageRecipe) for each in dataclasses.fields(kind)]
    words = [
        *matching.LAYER_WORDS,
        *matching.LOSSES_OF,
        *(loss for each in matching.LOSSES_OF.values() for loss in each),
    ]
    assert not [name for name in [*names, *words, *PUBLISHED] if f"`{name}`" not in text and f'"{name}"' not in text]


def test_published_recipes():
    """From the papers and, of DistilBERT, from its code: soft targets 5, masked words 2, cosine 1 at temperature 2."""
    to_teacher = "student-to-teacher"
    layer_by_layer = (
        0.0,
        ("embeddings", "mse", 1.0, "uniform", 1.0, to_teacher, "all"),
        ("hidden", "mse", 1.0, "uniform", 1.0, to_teacher, "all"),
        ("attention", "mse", 1.0, "uniform", 1.0, "none", "all"),
    )
    scores = (0.0, ("logits", "soft-cross-entropy", 1.0, "uniform", 1.0, "none", "all"))
    assert {name: (told(plan.general), *map(told, plan.task)) for name, plan in PUBLISHED.items()} == {
        "distilbert": (
            (
                2.0,
                ("logits", "kl", 5.0, "uniform", 2.0, "none", "all"),
                ("hidden", "cosine", 1.0, "last", 1.0, "none", "all"),
            ),
            (0.5, ("logits", "kl", 0.5, "uniform", 2.0, "none", "all")),
        ),
        "tinybert": (layer_by_layer, layer_by_layer, scores),
        "patient": (
            (),
            (
                0.5,
                ("logits", "kl", 0.5, "uniform", 5.0, "none", "all"),
                ("hidden", "cosine", 0.25, "uniform-but-last", 1.0, "none", "first"),
            ),
        ),
        "minilm": (
            (
                0.0,
                ("attention", "kl", 1.0, "last", 1.0, "none", "all"),
                ("value-relations", "kl", 1.0, "last", 1.0, "none", "all"),
            ),
            scores,
        ),
    }


@pytest.mark.parametrize(("name", "asked"), [("distilbert", ()), ("minilm", (2,)), ("tinybert", (1, 2))])
def test_queries_keys_and_values_are_kept_only_where_they_are_matched(name, asked, monkeypatch):
    """Attention matrices take much more memory than all else; where none is matched, none is made."""
    student, teacher = encoder(Bert, 0, width=40), teacher_of()
    objective = corpus_objective(PUBLISHED[name].general, student, teacher)
    made = []
    original = matched_losses.relation_scores
    monkeypatch.setattr(matched_losses, "relation_scores", lambda *given: made.append(given) or original(*given))
    looked = objective._forward(student, batch_of(), 0)
    assert tuple(looked.qkv) == asked and all(each is not None for each in looked.qkv.values())
    objective.loss_sums(pair_of(objective, student, teacher), drawn_of(objective))
    assert bool(made) == bool(asked)


def test_gradients_reach_the_student_and_the_projections_only():
    student, teacher = encoder(Bert, 0), teacher_of()
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    matches = (*PUBLISHED["tinybert"].general.matches, *PUBLISHED["distilbert"].general.matches[:1])
    objective = corpus_objective(StageRecipe(matches, 1.0), student, teacher)
    pair = pair_of(objective, student, teacher)
    optimizer = torch.optim.AdamW(pair.parameters(), 0.01, weight_decay=0.1)
    pair.train()
    assert not pair.teacher.training
    for _ in range(2):
        step_inputs = drawn_of(objective)
        sum(objective.loss_sums(pair, step_inputs).values()).backward()
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
    objective = corpus_objective(StageRecipe((Match(quantity, loss, layers="last"),)), student, teacher)
    objective.loss_sums(pair_of(objective, student, teacher), drawn_of(objective))[quantity].backward()
    rows = student.blocks[-1].attention.qkv.weight.grad.chunk(3)
    expected = {"attention": (True, True, False), "value-relations": (False, False, True), "keys": (False, True, False)}
    assert tuple(bool(each.any()) for each in rows) == expected[quantity]
    assert student.embeddings.tokens.weight.grad.any() and student.blocks[-1].fc1.weight.grad is None


def test_the_teacher_goes_along_to_a_type():
    student, teacher = encoder(Bert, 0), teacher_of()
    pair = DistillationPair(student, teacher, {})
    assert next(pair.float().teacher.parameters()).dtype == torch.float32


def test_a_target_that_is_projected_cannot_collapse():
    """A learned projection of the teacher and a student that follows it would meet at zero; this one stays as long as
    the teacher's vectors are, and as far apart."""
    student, teacher = encoder(Bert, 0, width=8), teacher_of()
    match = Match("hidden", "mse", layers="last", projection="teacher-to-student")
    objective = corpus_objective(StageRecipe((match,)), student, teacher)
    pair = pair_of(objective, student, teacher)
    assert isinstance(pair.projection("hidden"), FixedProjection) and not list(pair.projections.parameters())
    weight = pair.projection("hidden").weight.clone()
    torch.testing.assert_close(weight @ weight.T, 5 * torch.eye(8, dtype=torch.float64))  # 40 / 8 of the squares
    optimizer = torch.optim.Adam(pair.parameters(), 0.02)
    first = None
    for _ in range(80):
        loss = objective.loss_sums(pair, drawn_of(objective))["hidden"] / sum(LENGTHS)
        first = first or loss.item()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert loss.item() < 0.7 * first  # it learns,
    assert torch.equal(weight, pair.projection("hidden").weight)
    batch = drawn_of(objective).batch
    target = pair.projection("hidden")(teacher(batch))
    found = pair.student(batch)
    assert found.norm(dim=-1).mean() > 0.3 * target.norm(dim=-1).mean()  # and neither side is near zero,
    assert found.std(0).mean() > 0.3 * target.std(0).mean()  # nor the same for every token


def test_first_weights_from_every_other_layer():
    teacher = teacher_of(num_layers=4, width=24)
    student = encoder(Distilbert, 9, num_layers=2)
    said = initialize_from_teacher(student, teacher)
    assert said == "is initialised from layers 1, 4 of the teacher, its embeddings and its vocabulary head"
    for block, number in zip(student.blocks, (1, 4), strict=True):
        expected = teacher.blocks[number - 1].state_dict()
        assert all(torch.equal(value, expected[name]) for name, value in block.state_dict().items())
    assert torch.equal(student.embeddings.tokens.weight, teacher.embeddings.tokens.weight)
    assert torch.equal(student.mlm.bias, teacher.mlm.bias)
    assert layers_to_copy(6, 12) == [1, 3, 5, 8, 10, 12] and layers_to_copy(1, 3) == [1]
    narrow = encoder(Distilbert, 9, width=12)
    untouched = {name: value.clone() for name, value in narrow.state_dict().items()}
    assert "randomly initialised: it has width 12 and the teacher 24" in initialize_from_teacher(narrow, teacher)
    assert "randomly initialised: one of it and the teacher has pre-norm" in initialize_from_teacher(
        encoder(Gpt2, 9, ()), teacher
    )
    assert all(torch.equal(value, untouched[name]) for name, value in narrow.state_dict().items())


def test_a_student_that_equals_its_teacher_has_nothing_to_learn():
    teacher = teacher_of()
    student = teacher_of(seed=2)
    initialize_from_teacher(student, teacher)
    matches = tuple(dataclasses.replace(each, projection="none") for each in PUBLISHED["tinybert"].general.matches)
    objective = corpus_objective(
        StageRecipe((*matches, *PUBLISHED["distilbert"].general.matches[:1])), student, teacher
    )
    student.embeddings.segments.load_state_dict(teacher.embeddings.segments.state_dict())
    sums = objective.loss_sums(pair_of(objective, student, teacher), drawn_of(objective))
    assert all(abs(value.item()) < 1e-9 for value in sums.values())


def test_what_does_not_fit_is_refused_with_the_fix():
    student, teacher = encoder(Bert, 0), teacher_of(num_heads=4)
    with pytest.raises(ValueError, match=r"cannot be matched one by one: set model\.num_heads=4, or"):
        corpus_objective(StageRecipe((Match("attention", "mse"),)), student, teacher)
    with pytest.raises(ValueError, match=r"set model\.num_heads=4 and model\.width=16, or"):
        corpus_objective(StageRecipe((Match("attention", "mse"),)), encoder(Bert, 0, width=18), teacher)
    with pytest.raises(ValueError, match="student-to-teacher"):
        corpus_objective(StageRecipe((Match("hidden", "mse"),)), student, teacher)
    left = encoder(Bert, 0, direction="causal")
    with pytest.raises(ValueError, match="attention direction 'causal'"):
        corpus_objective(StageRecipe((Match("attention", "mse", heads="mean"),)), left, teacher)
    with pytest.raises(ValueError, match="which attend to nothing else"):
        corpus_objective(StageRecipe((Match("hidden", "mse", tokens="first"),)), left, teacher_of(width=24))
    sides = encoder(Gpt2, 0, (), window=4), encoder(Gpt2, 0, ())
    with pytest.raises(ValueError, match="window limits attention"):
        corpus_objective(StageRecipe((Match("attention", "mse"),)), *sides)
    with pytest.raises(ValueError, match="must be one of mse, cosine, not 'kl'"):
        Match("hidden", "kl")
    with pytest.raises(ValueError, match="for each of the student's 3 layers"):
        layer_pairs("1,2", 3, 6)
    with pytest.raises(ValueError, match="or numbers such as"):
        layer_pairs("middle", 3, 6)
    with pytest.raises(ValueError, match="there is no recipe 'tiny'"):
        recipes_in("tiny", False)
    with pytest.raises(ValueError, match="is for tasks"):
        recipes_in("patient", False)
    with pytest.raises(ValueError, match=r"qantity'; did you mean 'recipe\.matches\[0\]\.quantity'"):
        recipes_in('{"matches": [{"qantity": "hidden"}]}', False)


def test_settings_change_a_recipe():
    settings = DistillationSettings("tinybert", without=("attention",), layers="top", projection="teacher-to-student")
    (general,) = settings.stages(False)
    assert [each.quantity for each in general.matches] == ["embeddings", "hidden"]
    assert all(match.projection == "teacher-to-student" for match in general.matches)
    assert [each.layers for each in general.matches] == ["uniform", "top"]  # embeddings are of no layer
    assert len(settings.stages(True)) == 2
    alone = DistillationSettings("tinybert", without=("embeddings", "hidden", "attention")).stages(True)
    assert [each.named().keys() for each in alone] == [{"logits"}]
    hard = DistillationSettings("distilbert", without=("logits",), hard_label_weight=1.0).stages(True)
    assert hard == (StageRecipe((), 1.0),)
    with pytest.raises(ValueError, match="leaves nothing to learn"):
        DistillationSettings("tinybert", without=("embeddings", "hidden", "attention")).stages(False)
    with pytest.raises(ValueError, match="the recipe matches attention, embeddings, hidden"):
        DistillationSettings("tinybert", without=("logits",)).stages(False)
    assert DistilbertConfig().num_layers == 6 and BertConfig().num_layers == 12


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ('{"matches": [', r"the recipe is not JSON: line 1, column \d+"),
        ('{"matches": ["hidden"]}', r"recipe\.matches\[0\] must be a table of settings, not 'hidden'"),
        ('["hidden"]', "recipe must be a table of settings, not 'hidden'"),
        (
            '{"matches": [], "hard_lable_weight": 1}',
            "no setting 'recipe.hard_lable_weight'; did you mean",
        ),
        ('{"matches": [], "hard_label_weight": "1"}', r"recipe\.hard_label_weight must be a number, not '1'"),
        (
            '{"matches": [{"quantity": "logits"}], "settings": 3}',
            r"recipe\.settings must be a table of settings",
        ),
        ('{"matches": [{"quantity": "logits", "weight": "2"}]}', r"match\.weight must be a number, not '2'"),
        ('{"matches": [{"quantity": "attention", "heads": 4}]}', r"match\.heads must be a string, not 4"),
        ('{"matches": [{"quantity": "hidden", "layers": [1, 2]}]}', r"match\.layers must be a string, not \(1, 2\)"),
    ],
)
def test_a_recipe_that_is_written_wrong_is_refused_in_words(written, said):
    with pytest.raises(ValueError, match=said):
        recipes_in(written, True)
