"""AdamW and LAMB, with and without bias correction: equal to the published formulas, exact over a resume, captured."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from hornbook.lifecycle.run_folder import read_metrics
from hornbook.train.checkpoint import Checkpoints
from hornbook.train.job import Stopped
from hornbook.train.loop import train
from hornbook.train.optimizer import load_optimizer_tensors, make_optimizer, optimizer_tensors
from hornbook.train.settings import CheckpointSettings, OptimizerSettings, ScheduleSettings, ValidationSettings
from train.formulas import Three, check, computed, stepped
from train.small import CPU, small_batch, small_job, small_model, small_settings

CHANGES = [{}, {"weight_decay": 0.0}, {"beta1": 0.0, "beta2": 0.98}, {"beta2": 0.9999}]


@pytest.mark.parametrize("name", ["adamw", "lamb"])
@pytest.mark.parametrize("bias_correction", [True, False])
@pytest.mark.parametrize("overrides", CHANGES)
def test_equal_to_the_published_formulas(name, bias_correction, overrides):
    settings = OptimizerSettings(name, bias_correction=bias_correction, **({"weight_decay": 0.1} | overrides))
    check(settings, torch.device("cpu"))


def test_the_options_matter():
    """So that the test above can distinguish them."""
    kinds = [OptimizerSettings(n, bias_correction=b) for n in ("adamw", "lamb") for b in (True, False)]
    found = [computed(settings)["matrix"] for settings in kinds]
    for i, one in enumerate(found):
        assert all(np.abs(one - other).max() > 1e-3 for other in found[i + 1 :])


def test_corrected_adamw_is_that_of_torch_to_the_bit():
    """State that lies there from the start changes nothing."""
    ours, theirs = Three(), Three()
    stepped(ours, make_optimizer(ours, OptimizerSettings()), range(6))
    groups = [
        {"params": [theirs.matrix, theirs.zeros], "weight_decay": 0.01, "lr_multiplier": 1.0},
        {"params": [theirs.bias], "weight_decay": 0.0, "lr_multiplier": 1.0},
    ]
    stepped(theirs, torch.optim.AdamW(groups, betas=(0.9, 0.999), eps=1e-6, fused=True), range(6))
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


def test_without_correction_betas_near_one_are_refused():
    assert OptimizerSettings(beta2=0.99999).beta2 == 0.99999
    with pytest.raises(ValueError, match=r"at most 0\.9999, not 0\.99999"):
        OptimizerSettings(beta2=0.99999, bias_correction=False)
    with pytest.raises(ValueError, match=r"optimizer\.beta1 must be at least 0 and below 1"):
        OptimizerSettings(beta1=1.0)


def test_groups_say_whether_they_are_adapted_also_without_decay():
    model = Three()
    groups = make_optimizer(model, OptimizerSettings("lamb", weight_decay=0.0)).param_groups
    assert [(group["adapted"], group["weight_decay"], len(group["params"])) for group in groups] == [
        (True, 0.0, 2),
        (False, 0.0, 1),
    ]


@pytest.mark.parametrize("name", ["adamw", "lamb"])
def test_as_a_captured_step_uses_it(name):
    """The rate in a tensor, and gradients divided as they are read."""
    plain, scaled = Three(), Three()
    stepped(plain, make_optimizer(plain, OptimizerSettings(name)), range(6))
    optimizer = make_optimizer(scaled, OptimizerSettings(name))
    for group in optimizer.param_groups:
        group["lr"] = torch.zeros(())
    optimizer.grad_scale = torch.tensor(4.0)
    stepped(scaled, optimizer, range(6), scale=4.0)
    for a, b in zip(plain.parameters(), scaled.parameters(), strict=True):
        assert torch.allclose(a, b, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["adamw", "lamb"])
@pytest.mark.parametrize("bias_correction", [True, False])
def test_resume_and_restart_from_the_first_state(name, bias_correction):
    settings = OptimizerSettings(name, bias_correction=bias_correction)
    whole, broken = Three(), Three()
    optimizer = make_optimizer(whole, settings)
    start, weights = optimizer_tensors(whole, optimizer), {n: v.clone() for n, v in whole.state_dict().items()}
    assert not start, "nothing is kept before the first step"
    stepped(whole, optimizer, range(3))
    broken.load_state_dict(whole.state_dict())
    another = make_optimizer(broken, settings)
    load_optimizer_tensors(broken, another, optimizer_tensors(whole, optimizer))
    stepped(whole, optimizer, range(3, 6))
    stepped(broken, another, range(3, 6))
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), broken.parameters(), strict=True))
    broken.load_state_dict(weights)
    load_optimizer_tensors(broken, another, start)
    stepped(broken, another, range(6))
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), broken.parameters(), strict=True))


def test_a_parameter_without_gradient_is_unchanged_and_not_saved():
    model = Three()
    optimizer = make_optimizer(model, OptimizerSettings("lamb"))
    before = model.zeros.clone()
    model.matrix.grad = torch.ones_like(model.matrix)
    optimizer.step()
    assert torch.equal(model.zeros, before)
    assert set(optimizer_tensors(model, optimizer)) == {f"{q}/matrix" for q in ("step", "exp_avg", "exp_avg_sq")}


def test_state_of_a_fixed_parameter_is_an_error():
    model = Three()
    optimizer = make_optimizer(model, OptimizerSettings())
    stepped(model, optimizer, range(1))
    tensors = optimizer_tensors(model, optimizer)
    model.bias.requires_grad_(False)
    with pytest.raises(ValueError, match="optimizer state for 'bias'"):
        load_optimizer_tensors(model, make_optimizer(model, OptimizerSettings()), tensors)


# ---- in the loop


PUBLISHED = [OptimizerSettings("lamb", lr=1e-2), OptimizerSettings(lr=1e-2, bias_correction=False)]


@pytest.mark.parametrize("settings", PUBLISHED, ids=["lamb", "uncorrected"])
def test_a_run_that_was_stopped_ends_like_one_that_was_not(tmp_path, settings):
    def stop(status) -> None:
        if status.step == 15:
            os.kill(os.getpid(), signal.SIGTERM)

    def run(folder: Path, on_progress=lambda status: None) -> dict[str, torch.Tensor]:
        train(folder, small_job(), small_settings(optimizer=settings), CPU, on_progress)
        return load_file(folder / "model.safetensors")

    whole = run(tmp_path / "whole")
    with pytest.raises(Stopped):
        run(tmp_path / "broken", stop)
    assert Checkpoints(tmp_path / "broken").last_step() == 15
    broken = run(tmp_path / "broken")
    assert all(torch.equal(value, broken[name]) for name, value in whole.items())


def test_lamb_learns(tmp_path):
    settings = small_settings(
        optimizer=OptimizerSettings("lamb", lr=1e-2),
        schedule=ScheduleSettings(steps=300, warmup_fraction=0.1),
        checkpoint=CheckpointSettings(every_steps=300),
        validation=ValidationSettings(every_steps=50),
    )
    model = small_model(dropout=0.0, attention_dropout=0.0, init_std=0.1)
    train(tmp_path, small_job(model, lambda number: small_batch(number, 16)), settings, CPU, lambda status: None)
    lines = [line for line in read_metrics(tmp_path) if line["kind"] == "validation"]
    assert lines[-1]["mlm"] < 0.75 * lines[0]["mlm"]
