"""ERNIE on CUDA: the flash kernel with entities, bfloat16, padded buckets, compilation."""

import numpy as np
import pytest
import torch

from hornbook.batch import pack
from hornbook.models.ernie import Ernie, ErnieConfig
from hornbook.objectives.ernie import ErnieObjective, ErnieSettings
from hornbook.objectives.masking import Masking, MaskingSettings
from hornbook.train.objective import TrainingModule
from hornbook.train.optimizer import make_optimizer
from hornbook.train.runtime import choose_runtime
from hornbook.train.settings import OptimizerSettings, RuntimeSettings
from hornbook.train.step import Stepper, bucketed

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA"),
]
SIZE = {"num_layers": 4, "width": 128, "num_heads": 2, "inner_width": 256, "vocab_size": 100, "max_positions": 128}
NUM_ENTITIES = 50


def model_of() -> Ernie:
    config = ErnieConfig(**SIZE, entity_width=100, num_entities=NUM_ENTITIES, dropout=0.0, attention_dropout=0.0)
    model = Ernie(config)
    model.initialize(torch.Generator().manual_seed(0))
    return model


def objective_of() -> ErnieObjective:
    masking = Masking(MaskingSettings(), 100, 4, [0, 1, 2, 3, 4])
    return ErnieObjective(masking, ErnieSettings(), np.ones(NUM_ENTITIES, bool))


def batch_of(num: int = 24):
    random = np.random.default_rng(0)
    texts, entities = [], []
    for number in range(num):
        texts.append(random.integers(5, 100, random.integers(8, 128)))
        count = min(number % 7, len(texts[-1]))  # some texts have none
        places = np.sort(random.choice(len(texts[-1]), count, replace=False))
        entities.append((places, random.integers(0, NUM_ENTITIES, count)))
    return pack(texts, labels=random.integers(0, 2, num), entities=entities)


def losses_and_gradients(model, step_inputs, autocast) -> tuple[dict, dict]:
    with autocast:
        sums = objective_of().loss_sums(model, step_inputs)
    sum(sums.values()).backward()
    found = {name: each.grad.double().cpu() for name, each in model.named_parameters() if each.grad is not None}
    return {name: float(value.detach()) for name, value in sums.items()}, found


def test_losses_and_gradients_are_those_of_a_cpu():
    expected, exact = losses_and_gradients(
        model_of().double().train(), objective_of().prepare(batch_of(), 1), torch.autocast("cpu", enabled=False)
    )
    model = model_of().cuda().train()
    step_inputs = bucketed(objective_of().prepare(batch_of().to("cuda"), 1))
    found, gradients = losses_and_gradients(model, step_inputs, torch.autocast("cuda", torch.bfloat16))
    assert found == pytest.approx(expected, rel=2e-2)
    assert gradients.keys() == exact.keys()
    for name, gradient in gradients.items():
        assert (gradient - exact[name]).norm() <= 0.1 * exact[name].norm() + 1e-6, name


@pytest.mark.parametrize("compiles", [False, True])
def test_steps_lower_the_loss(compiles):
    runtime = choose_runtime(RuntimeSettings(device="cuda", compile="yes" if compiles else "no"), 0.0)
    model, objective = model_of().cuda(), objective_of()
    if compiles:
        model.compile_parts()
        objective.compile()
    optimizer = make_optimizer(model, OptimizerSettings(lr=1e-3))
    stepper = Stepper(TrainingModule(model, objective), optimizer, runtime, 0, 1.0, 1024)
    assert stepper.captured is None  # the number of entities is read on the host
    batch = batch_of().to("cuda")
    losses = [float(stepper.train_step(batch, number, 1e-3).loss) for number in range(30)]
    assert losses[-1] < 0.9 * losses[0]
