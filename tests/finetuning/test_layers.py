"""Which layers learn, how fast, and what is kept of a model that goes from one task to the next."""

import numpy as np
import pytest
import torch

from hornbook.batch import pack
from hornbook.models.bert import Bert, BertConfig
from hornbook.models.gpt import Gpt2, Gpt2Config
from hornbook.models.head_config import HeadConfig
from hornbook.models.transformer import Transformer
from hornbook.runs.finetuning.job import TaskBatches
from hornbook.runs.finetuning.layers import freeze, from_scratch, lr_multiplier, with_head
from hornbook.runs.finetuning.settings import LayerSettings
from hornbook.tasks.encoded import EncodedExamples
from hornbook.tasks.objective import TaskObjective
from hornbook.train.objective import TrainingModule
from hornbook.train.optimizer import make_optimizer
from hornbook.train.runtime import Runtime
from hornbook.train.settings import OptimizerSettings
from hornbook.train.step import Stepper

VOCABULARY, LAYERS = 70, 3
CPU = Runtime(torch.device("cpu"), torch.float32, False, 1, 0, "test")
CLASSES = HeadConfig("sequence", 3, ("a", "b", "c"))
TAGS = HeadConfig("tokens", 2, ("O", "X"))
SPANS = HeadConfig("spans", 2)


def pretrained(heads: tuple[str, ...] = ("pooler", "mlm", "sentence")) -> Bert:
    config = BertConfig(
        VOCABULARY, num_layers=LAYERS, width=16, num_heads=2, inner_width=32, max_positions=16, dropout=0.0
    )
    model = Bert(config, heads)
    model.initialize(torch.Generator().manual_seed(7))
    return model


def encoded(num: int = 20) -> EncodedExamples:
    random = np.random.default_rng(0)
    ids = [random.integers(0, VOCABULARY, int(n)) for n in random.integers(3, 16, num)]
    segments = [np.zeros(len(each), np.int64) for each in ids]
    return EncodedExamples(ids, segments, np.arange(num), num, labels=random.integers(0, 3, num))


def trained_for(model: Bert, num_steps: int, settings: LayerSettings | None = None, lr: float = 0.01) -> Bert:
    settings = settings or LayerSettings()
    optimizer = make_optimizer(model, OptimizerSettings(lr=lr), lr_multiplier(model, settings))
    stepper = Stepper(TrainingModule(model, TaskObjective(model.head_config)), optimizer, CPU, 0, 1.0, 4096)
    batches = TaskBatches(encoded(), 8, 0)
    for number in range(num_steps):
        stepper.train_step(batches(number), number, lr)
    return model


def copied(model: Bert) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def part_of(name: str) -> str:
    """embeddings, 0, 1, 2 (the blocks), pooler or task."""
    first, second, *_ = name.split(".")
    return second if first == "blocks" else first


# ---- frozen layers


@pytest.mark.parametrize(
    ("frozen", "fixed"),
    [
        (0, set()),
        (1, {"embeddings", "0"}),
        (2, {"embeddings", "0", "1"}),
        (3, {"embeddings", "0", "1", "2"}),
        (-1, {"embeddings", "0", "1", "2", "pooler"}),
    ],
)
def test_frozen_layers_keep_every_bit(frozen, fixed):
    model, _ = with_head(pretrained(), CLASSES, 0)
    freeze(model, LayerSettings(frozen=frozen))
    before = copied(model)
    trained_for(model, 4)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]) == (part_of(name) in fixed), name
        assert model.get_parameter(name).requires_grad == (part_of(name) not in fixed), name


def test_more_frozen_layers_than_there_are():
    model, _ = with_head(pretrained(), CLASSES, 0)
    with pytest.raises(ValueError, match="the model has 3 layers"):
        freeze(model, LayerSettings(frozen=4))


# ---- lr_multiplier


def test_decay_by_depth():
    """The highest block at the whole rate, each below at a share of the one above, embeddings lowest."""
    model, _ = with_head(pretrained(), CLASSES, 0)
    share = lr_multiplier(model, LayerSettings(lr_decay=0.5, head_lr_ratio=3.0))
    expected = {"embeddings": 0.125, "0": 0.25, "1": 0.5, "2": 1.0, "pooler": 1.0, "task": 3.0}
    assert {part_of(name): share(name) for name, _ in model.named_parameters()} == expected
    for name, _ in model.named_parameters():
        assert share(name) == expected[part_of(name)], name


@pytest.mark.parametrize(
    ("lr_decay_from", "powers"),
    [
        ("block", {"embeddings": 3, "0": 2, "1": 1, "2": 0, "pooler": 0, "task": 0}),
        ("head", {"embeddings": 4, "0": 3, "1": 2, "2": 1, "pooler": 0, "task": 0}),
        ("electra", {"embeddings": 5, "0": 4, "1": 3, "2": 2, "pooler": 1, "task": 0}),
    ],
)
def test_what_the_decay_counts_from(lr_decay_from, powers):
    model, _ = with_head(pretrained(), CLASSES, 0)
    share = lr_multiplier(model, LayerSettings(lr_decay=0.8, lr_decay_from=lr_decay_from))
    assert {part_of(name): share(name) for name, _ in model.named_parameters()} == {
        part: 0.8**power for part, power in powers.items()
    }


def test_usual_rates_are_all_one():
    model, _ = with_head(pretrained(), CLASSES, 0)
    assert lr_multiplier(model, LayerSettings()) is None


def test_the_optimizer_steps_by_these_shares():
    """Adam's first step is the rate itself, whatever the gradient: so far does every parameter move."""
    model, _ = with_head(pretrained(), CLASSES, 0)
    settings = LayerSettings(lr_decay=0.5, head_lr_ratio=3.0)
    before = copied(model)
    lr = 1e-3
    optimizer = make_optimizer(
        model, OptimizerSettings(lr=lr, weight_decay=0.0, eps=1e-12), lr_multiplier(model, settings)
    )
    stepper = Stepper(TrainingModule(model, TaskObjective(model.head_config)), optimizer, CPU, 0, 0.0, 4096)
    stepper.train_step(TaskBatches(encoded(), 8, 0)(0), 0, lr)
    share, num_checked = lr_multiplier(model, settings), 0
    for name, value in model.named_parameters():
        moved = (value.detach() - before[name]).abs().max().item()
        if "qkv.bias" in name:  # a bias of keys has no gradient but rounding: softmax does not see it
            continue
        assert moved == pytest.approx(lr * share(name), rel=1e-2), name
        num_checked += 1
    assert num_checked > 40


# ---- heads


def test_the_encoder_is_kept_and_the_head_is_new():
    trained = pretrained()
    model, anew = with_head(trained, CLASSES, 0)
    assert anew == [] and model.heads == ("pooler",) and model.head_config == CLASSES
    before = trained.state_dict()
    new = {name for name in model.state_dict() if name not in before}
    assert new == {"task.out.weight", "task.out.bias"}
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items() if name not in new)
    assert model.task.out.weight.std() > 0 and not model.task.out.bias.any()


def test_modules_that_the_model_lacks_are_newly_initialised():
    model, anew = with_head(pretrained(("mlm",)), CLASSES, 0)
    assert anew == ["pooler"]
    assert model.pooler.weight.std() > 0
    assert with_head(pretrained(("mlm",)), TAGS, 0)[1] == []


@pytest.mark.parametrize(
    "second", [HeadConfig("sequence", 3, ("x", "y", "z")), HeadConfig("sequence", 2, ("x", "y")), SPANS]
)
def test_through_another_task_first(second):
    """The encoder as the first task left it; its head is dropped where nobody asks to keep it."""
    model, _ = with_head(pretrained(), CLASSES, 0)
    trained_for(model, 4)
    learned = copied(model)
    model, anew = with_head(model, second, 1)
    assert anew == [] and model.head_config == second
    fresh, _ = with_head(pretrained(), second, 1)
    for name, value in model.state_dict().items():
        if name.startswith("task."):
            assert torch.equal(value, fresh.state_dict()[name]), "the head is not that of a fresh start"
        else:
            assert torch.equal(value, learned[name])
            assert not torch.equal(value, fresh.state_dict()[name]), f"{name} did not learn in the first task"


def test_two_seeds_differ_in_head_and_order_only():
    trained = pretrained()
    one, other, again = (with_head(trained, CLASSES, seed)[0].state_dict() for seed in (0, 1, 0))
    for name, value in one.items():
        assert torch.equal(value, again[name])
        is_drawn = name == "task.out.weight"
        assert torch.equal(value, other[name]) == (not is_drawn), name
    batches = [TaskBatches(encoded(), 8, seed) for seed in (0, 1, 0)]
    first, second, third = ([each(number).ids_T.tolist() for number in range(3)] for each in batches)
    assert first == third and first != second


def test_random_weights_share_nothing_with_the_trained_ones():
    """The same network, as before any training; the seed decides all of it."""
    trained = pretrained()
    model = from_scratch(trained, CLASSES, 0)
    assert model.config == trained.config and model.head_config == CLASSES
    before = trained.state_dict()
    for name, value in model.state_dict().items():
        if name in before and value.ndim == 2:
            assert not torch.equal(value, before[name]), name
    same, other = from_scratch(trained, CLASSES, 0), from_scratch(trained, CLASSES, 1)
    assert all(torch.equal(value, same.state_dict()[name]) for name, value in model.state_dict().items())
    assert not torch.equal(model.blocks[0].fc1.weight, other.blocks[0].fc1.weight)


# ---- batches


def test_every_unit_once_an_epoch():
    """In another order each time; the last batch is what is left."""
    lengths = [3 + number % 4 for number in range(21)]
    ids, segments = [np.full(n, i) for i, n in enumerate(lengths)], [np.zeros(n, np.int64) for n in lengths]
    made = EncodedExamples(ids, segments, np.arange(21), 21, labels=np.arange(21))
    batches = TaskBatches(made, 8, 0)
    assert batches.steps_per_epoch == 3
    orders = []
    for epoch in range(3):
        several = [batches(3 * epoch + number) for number in range(3)]
        assert [each.num_sequences for each in several] == [8, 8, 5]
        orders.append([each.labels_N.tolist() for each in several])
        assert sorted(label for each in several for label in each.labels_N.tolist()) == list(range(21))
        for each in several:
            lengths = np.diff(each.offsets_host)
            assert lengths.tolist() == sorted(lengths), "short ones first"
            assert each.ids_T[each.offsets[:-1].long()].tolist() == each.labels_N.tolist(), "labels moved"
    assert orders[0] != orders[1] != orders[2]
    assert [batches(4).labels_N.tolist(), TaskBatches(made, 8, 0)(4).labels_N.tolist()] == [orders[1][1]] * 2


def test_packed_in_this_order():
    made = encoded(5)
    batch, expected = made.packed([3, 0]), pack([made.ids[3], made.ids[0]], labels=made.labels[[3, 0]])
    assert batch.ids_T.tolist() == expected.ids_T.tolist()
    assert batch.labels_N.tolist() == expected.labels_N.tolist()


def families() -> list[Transformer]:
    small = {"num_layers": 1, "width": 16, "num_heads": 2, "inner_width": 32, "max_positions": 16}
    return [
        Bert(BertConfig(VOCABULARY, **small, dropout=0.0, attention_dropout=0.0), ("pooler",)),
        Gpt2(Gpt2Config(VOCABULARY, **small, dropout=0.0, attention_dropout=0.0, embedding_dropout=0.0), ()),
    ]


@pytest.mark.parametrize("start", [with_head, from_scratch])
@pytest.mark.parametrize("trained", families(), ids=lambda each: each.model_type)
def test_dropout_of_its_own_in_fine_tuning(trained, start):
    """Below the head everywhere; without it, that of the pre-training."""
    trained.initialize(torch.Generator().manual_seed(0))
    answers = {}
    for dropout in (None, 0.5):
        made = start(trained, CLASSES, 0, dropout)
        model = made[0] if isinstance(made, tuple) else made
        config = model.config
        found = (config.embedding_dropout, config.dropout, config.attention_dropout)
        assert found == (dropout or 0.0,) * 3
        assert {block.dropout for block in model.blocks} == {block.attention.dropout for block in model.blocks}
        batch = encoded().batch([0, 1, 2])
        model.train()
        answers[dropout] = [model(batch).detach() for _ in range(2)]
    assert torch.equal(*answers[None]) and not torch.equal(*answers[0.5])
    with pytest.raises(ValueError, match=r"layers\.dropout must be at least 0 and below 1, not 1"):
        LayerSettings(dropout=1.0)
