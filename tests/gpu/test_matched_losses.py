"""What a student matches, by the kernels in bfloat16: near the same in float64, written out."""

import numpy as np
import pytest
import torch

from hornbook.batch import Batch
from hornbook.objectives import matched_losses
from hornbook.objectives.matched_losses import relation_sum, vector_sum
from hornbook.objectives.matching import Match

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA"),
]
CUDA = torch.device("cuda")


def close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return float((found.double() - expected).norm() / expected.norm()) < 1e-2


def both(compute, ours: torch.Tensor, theirs: torch.Tensor) -> tuple:
    """Sum and gradient, by the kernels and written out."""
    found = []
    for kind, is_half in ((torch.bfloat16, True), (torch.float64, False)):
        x = ours.to(kind).requires_grad_()
        with torch.autocast("cuda", torch.bfloat16, enabled=is_half):
            total = compute(x, theirs.to(kind))
        found += [total, *torch.autograd.grad(0.25 * total, x)]
    return tuple(found)


@pytest.mark.parametrize("direction", ["both", "left", "right"])
@pytest.mark.parametrize(
    ("quantity", "width", "their_width"),
    [("attention", 26, 64), ("attention", 64, 64), ("attention", 8, 32), ("key-relations", 32, 128)],
)
def test_relations(monkeypatch, quantity, width, their_width, direction):
    used = []
    fused = matched_losses._fused_relation_sum
    monkeypatch.setattr(matched_losses, "_fused_relation_sum", lambda *args: used.append(1) or fused(*args))
    torch.manual_seed(0)
    lengths = [13, 128, 1, 77, 0, 64]
    starts = np.concatenate([[0], np.cumsum(lengths)])
    zeros = torch.zeros(int(starts[-1]), dtype=torch.int64, device=CUDA)
    on_device = torch.from_numpy(starts.astype(np.int32)).to(CUDA)
    batch = Batch(zeros, zeros, zeros, zeros.bool(), on_device, starts, longest=128)
    ours = torch.randn(len(zeros), 3, 4, width, device=CUDA).bfloat16()
    theirs = torch.randn(len(zeros), 3, 4, their_width, device=CUDA).bfloat16()
    weights = torch.rand(len(zeros), device=CUDA)
    match = Match(quantity, "mse")
    total, gradient, expected, expected_gradient = both(
        lambda a, b: relation_sum(match, a, b, batch, weights, direction), ours, theirs
    )
    assert used == [1]
    assert close(total, expected) and close(gradient, expected_gradient)


@pytest.mark.parametrize("width", [96, 384, 768])
def test_vectors(width):
    torch.manual_seed(0)
    ours, theirs = (torch.randn(333, width, device=CUDA).bfloat16() for _ in range(2))
    weights = torch.rand(333, device=CUDA)
    total, gradient, expected, expected_gradient = both(
        lambda a, b: vector_sum("mse", a, b, weights.to(a.device)), ours, theirs
    )
    assert close(total, expected) and close(gradient, expected_gradient)
