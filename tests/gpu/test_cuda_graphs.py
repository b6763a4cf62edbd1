"""Captured steps: the same losses and weights as plain ones, for every kind of output and any order of shapes."""

import copy

import numpy as np
import pytest
import torch

from hornbook.batch import pack
from hornbook.models.bert import Bert, BertConfig
from hornbook.models.electra import ElectraConfig, ElectraPair, generator_config
from hornbook.models.gpt import Gpt1, Gpt1Config, Gpt2, Gpt2Config
from hornbook.models.head_config import HeadConfig
from hornbook.objectives.clm import AuxiliaryLanguageModel, ClmObjective, HybridObjective
from hornbook.objectives.masking import Masking, MaskingSettings
from hornbook.objectives.rtd import RtdObjective, RtdSettings
from hornbook.tasks.objective import TaskObjective
from hornbook.train.objective import TrainingModule
from hornbook.train.optimizer import make_optimizer
from hornbook.train.randomness import seed_of
from hornbook.train.runtime import Runtime
from hornbook.train.settings import OptimizerSettings
from hornbook.train.step import Stepper
from train.formulas import check

pytestmark = pytest.mark.gpu
OUTPUTS = {
    "class": HeadConfig("sequence", 3),
    "number": HeadConfig("sequence", 1, problem_type="regression"),
    "several": HeadConfig("sequence", 4, problem_type="multi_label_classification"),
    "separate": HeadConfig("sequence", 2, pair_encoding="separate"),
    "both orders": HeadConfig("sequence", 2, pair_encoding="both"),
    "cnn": HeadConfig("sequence", 2, layers="cnn"),
    "attention": HeadConfig("sequence", 2, layers="attention"),
    "choice": HeadConfig("choice"),
    "tags": HeadConfig("tokens", 5),
    "spans": HeadConfig("spans", 2),
    "spans or none": HeadConfig("spans", 2, has_answer_classifier=True),
}


def small(head_config: HeadConfig, dropout: float = 0.0) -> Bert:
    config = BertConfig(
        vocab_size=200, num_layers=2, width=64, num_heads=2, inner_width=128, max_positions=128, dropout=dropout,
        attention_dropout=dropout,
    )  # fmt: skip
    model = Bert(config, Bert.heads_for(head_config), head_config)
    model.initialize(torch.Generator().manual_seed(3))
    return model.cuda()


def batch_of(head_config: HeadConfig, number: int):
    random = np.random.default_rng(number)
    together = 4 if head_config.output == "choice" else head_config.group_size
    num_units = (8, 8, 3, 12, 8)[number % 5]
    ids = [random.integers(5, 200, random.integers(3, 60)) for _ in range(num_units * together)]
    labels = token_labels = None
    if head_config.output == "tokens":
        token_labels = [random.integers(-1, 5, len(each)) for each in ids]
    elif head_config.output == "spans":
        labels = np.array([sorted(random.integers(0, len(each), 2)) for each in ids])
    elif head_config.problem_type == "regression":
        labels = random.normal(size=len(ids)).astype(np.float32)
    elif head_config.problem_type == "multi_label_classification":
        labels = random.integers(0, 2, (len(ids), 4)).astype(np.float32)
    else:
        labels = np.repeat(random.integers(0, together if head_config.output == "choice" else 2, num_units), together)
    return pack(ids, labels=labels, token_labels=token_labels, group_size=together).to(torch.device("cuda"))


def stepper(model: Bert, graphs: bool, settings: OptimizerSettings | None = None) -> Stepper:
    runtime = Runtime(torch.device("cuda"), torch.bfloat16, False, 1, 0, "test", graphs)
    optimizer = make_optimizer(model, settings or OptimizerSettings(lr=1e-3))
    return Stepper(TrainingModule(model, TaskObjective(model.head_config)), optimizer, runtime, 0, 1.0, 65_536)


PUBLISHED = [
    OptimizerSettings(bias_correction=False),
    OptimizerSettings("lamb"),
    OptimizerSettings("lamb", bias_correction=False),
]
MUON = OptimizerSettings("muon", lr=1e-3)


@pytest.mark.parametrize(
    ("name", "settings"),
    [*((name, None) for name in OUTPUTS), *(("class", settings) for settings in [*PUBLISHED, MUON])],
)
def test_captured_steps_equal_plain_ones(name, settings):
    plain_model = small(OUTPUTS[name])
    captured_model = copy.deepcopy(plain_model)
    plain, captured = stepper(plain_model, False, settings), stepper(captured_model, True, settings)
    for number in range(8):
        batch = batch_of(OUTPUTS[name], number)
        lr = 1e-3 * (number + 1) / 8
        a, b = plain.train_step(batch, number, lr), captured.train_step(batch, number, lr)
        assert float(b.loss) == pytest.approx(float(a.loss), rel=2e-2, abs=2e-3), number
        assert float(b.grad_norm) == pytest.approx(float(a.grad_norm), rel=5e-2, abs=1e-2), number
    assert 1 <= len(captured.captured.captured) < 8
    for (parameter_name, a), b in zip(plain_model.named_parameters(), captured_model.parameters(), strict=True):
        # Adam turns the rounding of a gradient near 0 into a whole step of the rate: means are compared.
        assert (a - b).abs().mean() < 1e-3, parameter_name
        assert b.isfinite().all()


@pytest.mark.parametrize("compiled", [False, True])
def test_alternating_even_and_uneven_batches_of_the_same_size(compiled):
    """Both have 1,024 tokens in sequences of at most 512; they run on kernels of their own."""
    size = {"num_layers": 2, "width": 64, "num_heads": 2, "inner_width": 128, "max_positions": 512, "vocab_size": 200}
    still = {"dropout": 0.0, "attention_dropout": 0.0, "embedding_dropout": 0.0}
    plain_model = Gpt2(Gpt2Config(**size, **still), ("clm",))
    plain_model.initialize(torch.Generator().manual_seed(3))
    plain_model.cuda()
    captured_model = copy.deepcopy(plain_model)
    if compiled:
        captured_model.compile_parts()
    steppers = [
        Stepper(
            TrainingModule(model, ClmObjective()), make_optimizer(model, OptimizerSettings(lr=1e-3)),
            Runtime(torch.device("cuda"), torch.bfloat16, compiled, 1, 0, "test", graphs), 0, 1.0, 65_536,
        )
        for model, graphs in ((plain_model, False), (captured_model, True))
    ]  # fmt: skip
    random = np.random.default_rng(0)
    for number, lengths in enumerate([[512] * 2, [512, 400, 112], [512] * 2, [64] * 16, [512] * 2]):
        batch = pack([random.integers(0, 200, length) for length in lengths], max_length=512).to(torch.device("cuda"))
        plain, captured = (each.train_step(batch, number, 1e-3) for each in steppers)
        assert float(captured.loss) == pytest.approx(float(plain.loss), rel=2e-2), number
        assert float(captured.grad_norm) == pytest.approx(float(plain.grad_norm), rel=5e-2), number
    assert {bucket.is_uniform for bucket in steppers[1].captured.captured} == {False, True}


@pytest.mark.parametrize("settings", [OptimizerSettings(), *PUBLISHED])
def test_every_optimizer_follows_its_formula(settings):
    check(settings, torch.device("cuda"))


def test_a_captured_step_trains_and_samples_new_dropout_each_time():
    model = small(OUTPUTS["class"], dropout=0.1)
    taken = stepper(model, True)
    batch = batch_of(OUTPUTS["class"], 0)
    still = [float(taken.train_step(batch, number, 0.0).loss) for number in (0, 1, 0)]
    assert still[0] != still[1] and still[0] == still[2]
    losses = [float(taken.train_step(batch, number, 2e-3).loss) for number in range(60)]
    assert np.mean(losses[-5:]) < 0.5 * np.mean(losses[:5])


def test_frozen_layers_are_unchanged():
    model = small(OUTPUTS["class"])
    for parameter in model.blocks[0].parameters():
        parameter.requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    taken = stepper(model, True)
    for number in range(3):
        taken.train_step(batch_of(OUTPUTS["class"], number), number, 1e-2)
    after = model.state_dict()
    for name, value in before.items():
        assert value.equal(after[name]) == name.startswith("blocks.0."), name


@pytest.mark.parametrize("name", ["class", "both orders", "choice"])
def test_captured_auxiliary_language_model_equals_the_eager_one(name):
    """As GPT-1 is fine-tuned: two terms off one pass, with as many targets as there are tokens."""
    head_config, dropouts = OUTPUTS[name], dict.fromkeys(("dropout", "attention_dropout", "embedding_dropout"), 0.0)
    config = Gpt1Config(200, 2, 64, 2, 256, 128, head_dropout=0.0, **dropouts)
    model = Gpt1(config, Gpt1.heads_for(head_config), head_config)
    model.initialize(torch.Generator().manual_seed(3))
    made = []
    for graphs in (False, True):
        each = copy.deepcopy(model).cuda()
        runtime = Runtime(torch.device("cuda"), torch.bfloat16, False, 1, 0, "test", graphs)
        objective = AuxiliaryLanguageModel(TaskObjective(head_config), 0.5)
        made.append(
            Stepper(TrainingModule(each, objective), make_optimizer(each, OptimizerSettings()), runtime, 0, 1.0, 65_536)
        )
    for number in range(6):
        a, b = (each.train_step(batch_of(head_config, number), number, 1e-3) for each in made)
        for term in ("task", "clm"):
            assert float(b.terms[term]) == pytest.approx(float(a.terms[term]), rel=2e-2, abs=2e-3), (number, term)
    assert 1 <= len(made[1].captured.captured) < 6


def electra_steppers(compiled: bool, shared: str = "embeddings") -> tuple[Stepper, Stepper]:
    """Plain and captured steps of the same pair on the same objective, with dropout 0."""
    settings = RtdSettings(generator_size=0.5, shared=shared)
    config = ElectraConfig(
        200, 2, 64, 2, 128, 128, dropout=0.0, attention_dropout=0.0, embedding_width=32, init_std=0.1
    )
    model = ElectraPair(config, generator_config(config, 0.5), shared)
    model.initialize(torch.Generator().manual_seed(3))
    made = []
    for graphs in (False, True):
        pair = copy.deepcopy(model).cuda()
        masking = Masking(MaskingSettings(mask_fraction=0.85, random_fraction=0.0), 200, 4, [0, 1, 2, 3, 4])
        objective = RtdObjective(masking, settings)
        if compiled and graphs:
            pair.compile_parts()
            objective.compile()
        runtime = Runtime(torch.device("cuda"), torch.bfloat16, compiled and graphs, 1, 0, "test", graphs)
        optimizer = make_optimizer(pair, OptimizerSettings(lr=1e-3, bias_correction=False))
        made.append(Stepper(TrainingModule(pair, objective), optimizer, runtime, 0, 1.0, 65_536))
    return made[0], made[1]


@pytest.mark.parametrize("shared", ["embeddings", "followed"])
@pytest.mark.parametrize("compiled", [False, True])
def test_captured_electra_equals_plain(compiled, shared):
    plain, captured = electra_steppers(compiled, shared)
    for number in range(6):
        random = np.random.default_rng(number)
        batch = pack([random.integers(5, 200, random.integers(20, 60)) for _ in range(12)]).to(torch.device("cuda"))
        a, b = plain.train_step(batch, number, 1e-3), captured.train_step(batch, number, 1e-3)
        # A guess that falls the other way by rounding changes a label: means over hundreds of tokens hardly move.
        assert float(b.terms["mlm"]) == pytest.approx(float(a.terms["mlm"]), rel=2e-2), number
        assert float(b.terms["rtd"]) == pytest.approx(float(a.terms["rtd"]), rel=5e-2), number
    assert 1 <= len(captured.captured.captured) < 6


def test_captured_electra_makes_new_samples_each_step():
    _, captured = electra_steppers(False)
    batch = pack([np.arange(5, 60) for _ in range(8)]).to(torch.device("cuda"))
    losses = [float(captured.train_step(batch, number, 0.0).loss) for number in (0, 1, 0)]
    assert losses[0] != losses[1] and losses[0] == losses[2]


@pytest.mark.parametrize("compiled", [False, True])
def test_steps_of_a_hybrid_model_in_two_directions(compiled):
    """Captured or plain, compiled or not: the loss of each term is that of a CPU in float32."""
    size = {"num_layers": 2, "width": 64, "num_heads": 2, "inner_width": 128, "max_positions": 128, "vocab_size": 200}
    still = {"dropout": 0.0, "attention_dropout": 0.0, "embedding_dropout": 0.0}
    model = Gpt2(Gpt2Config(**size, **still, mask_id=4), ("clm",))
    model.initialize(torch.Generator().manual_seed(3))
    slow = copy.deepcopy(model)
    models = [copy.deepcopy(model).cuda() for _ in range(2)]
    steppers = []
    for graphs, each in zip((False, True), models, strict=True):
        objective = HybridObjective(Masking(MaskingSettings(probability=0.3), 200, 4, [0, 1, 2, 3, 4]), 0.5)
        if compiled:
            each.compile_parts()
            objective.compile()
        runtime = Runtime(torch.device("cuda"), torch.bfloat16, compiled, 1, 0, "test", graphs)
        optimizer = make_optimizer(each, OptimizerSettings(lr=1e-3))
        steppers.append(Stepper(TrainingModule(each, objective), optimizer, runtime, 0, 1.0, 65_536))
    for number in range(6):
        random = np.random.default_rng(number)
        rows = [random.integers(5, 200, random.integers(9, 100)) for _ in range(24)]
        num_causal = sum(len(row) - 1 for row in rows[: (12, 0, 24, 7, 12, 12)[number]])
        batch = pack(
            [row[:-1] for row in rows],
            token_labels=[row[1:] for row in rows],
            max_length=128,
            num_causal=num_causal,
        )
        found = [
            each.train_step(batch.to(torch.device("cuda")), number, 0.0 if number == 0 else 1e-3) for each in steppers
        ]
        for term in ("clm", "mlm"):
            a, b = (float(each.terms[term]) for each in found)
            assert b == pytest.approx(a, rel=2e-2, abs=2e-3), (number, term)
        if number == 0:
            inputs = steppers[0].objective.prepare(batch, seed_of(0, number, "draw"))
            with torch.no_grad():
                sums, counts = steppers[0].objective.loss_sums(slow, inputs, with_metrics=True), inputs.total_weights()
            sums = {term: sums[term] for term in ("clm", "mlm")}
            for term, value in sums.items():
                assert float(found[0].terms[term]) == pytest.approx(float(value / counts[term]), rel=1e-2), term
    for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert (a - b).abs().mean() < 1e-3 and b.isfinite().all()
