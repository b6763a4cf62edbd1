"""Muon: equal to that of torch where that can go, AdamW for the rest, exact over a resume, ready to be captured."""

import numpy as np
import pytest
import torch
from torch import nn

from hornbook.train.optimizer import load_optimizer_tensors, make_optimizer, optimizer_tensors, orthogonal
from hornbook.train.settings import OptimizerSettings
from train.formulas import gradients, stepped

SETTINGS = OptimizerSettings("muon", beta1=0.95, weight_decay=0.1)


class Small(nn.Module):
    """Two blocks with a wide, a tall and a square matrix and a bias, and a table outside of them."""

    def __init__(self):
        super().__init__()
        random = torch.Generator().manual_seed(0)
        shapes = {"wide": (4, 12), "tall": (12, 4), "square": (6, 6), "bias": (4,)}
        step_inputs = lambda shape: nn.Parameter(torch.randn(shape, generator=random))  # noqa: E731
        self.blocks = nn.ModuleList(
            nn.ParameterDict({name: step_inputs(shape) for name, shape in shapes.items()}) for _ in range(2)
        )
        self.table = step_inputs((7, 4))


def test_equal_to_that_of_torch_and_adamw_for_the_rest():
    """torch's rounds run in half precision, hence the tolerance; AdamW's part is equal to the bit."""
    ours, theirs = Small(), Small()
    stepped(ours, make_optimizer(ours, SETTINGS), range(6))
    matrices = [p for name, p in theirs.named_parameters() if "blocks" in name and p.ndim == 2]
    muon = torch.optim.Muon(matrices, momentum=0.95, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    rest = [
        {"params": [theirs.table], "weight_decay": 0.1},
        {"params": [p for p in theirs.parameters() if p.ndim == 1], "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(rest, betas=(0.95, 0.999), eps=1e-6, fused=True)
    for step in range(6):
        for parameter, gradient in zip(theirs.parameters(), gradients(theirs, step).values(), strict=True):
            parameter.grad = gradient
        for optimizer in (muon, adamw):
            for group in optimizer.param_groups:
                group["lr"] = 1e-2 * (step + 1)
            optimizer.step()
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        if "blocks" in name and a.ndim == 2:
            moved = (b - dict(Small().named_parameters())[name]).norm()
            assert (a - b).norm() < 0.02 * moved, name
        else:
            assert torch.equal(a, b), name


@pytest.mark.parametrize("shape", [(8, 8), (8, 20), (20, 8)])
def test_an_update_keeps_directions_and_evens_sizes(shape):
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    left, sizes, right = np.linalg.svd(matrix.numpy(), full_matrices=False)
    (found,) = orthogonal([matrix])
    between = left.T @ found.numpy() @ right.T
    evened = np.diag(between)
    assert np.abs(between - np.diag(evened)).max() < 1e-9
    large = sizes > 0.05 * np.linalg.norm(sizes)
    assert large.sum() > 4 and (evened[large] > 0.65).all() and (evened[large] < 1.25).all()


def test_no_gradient_at_all_moves_nothing_and_gives_numbers():
    (found,) = orthogonal([torch.zeros(3, 5)])
    assert torch.equal(found, torch.zeros(3, 5))


def test_as_a_captured_step_uses_it():
    """The rate in a tensor, and gradients divided as they are read; by another number each time, for one that stays
    would not turn an update."""
    plain, scaled = Small(), Small()
    stepped(plain, make_optimizer(plain, SETTINGS), range(4))
    optimizer = make_optimizer(scaled, SETTINGS)
    for group in optimizer.param_groups:
        group["lr"] = torch.zeros(())
    for step in range(4):
        optimizer.grad_scale = torch.tensor(4.0**step)
        stepped(scaled, optimizer, range(step, step + 1), scale=4.0**step)
    for a, b in zip(plain.parameters(), scaled.parameters(), strict=True):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-6)


def test_resume_continues_where_it_stopped():
    whole, broken = Small(), Small()
    optimizer = make_optimizer(whole, SETTINGS)
    stepped(whole, optimizer, range(3))
    kept = optimizer_tensors(whole, optimizer)
    assert "exp_avg/blocks.0.wide" in kept and "exp_avg_sq/blocks.0.wide" not in kept and "exp_avg_sq/table" in kept
    broken.load_state_dict(whole.state_dict())
    another = make_optimizer(broken, SETTINGS)
    load_optimizer_tensors(broken, another, kept)
    stepped(whole, optimizer, range(3, 6))
    stepped(broken, another, range(3, 6))
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), broken.parameters(), strict=True))
