"""What a student matches, by the kernels in bfloat16: near the same in float64, written out."""

import numpy as np
import pytest
import torch

from hornbook.batch import Batch, Tokens
from hornbook.objectives.distillation.losses import relation_sum, vector_sum
from hornbook.objectives.distillation.matching import Match

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA"),
]
CUDA = torch.device("cuda")


def close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return float((found.double() - expected).norm() / expected.norm()) < 1e-2


def counted(monkeypatch, name: str) -> list[int]:
    """Grows by one with each call of a kernel."""
    from hornbook.nn.kernels import losses as loss_kernels  # brings triton, which is only where CUDA is

    calls, kernel = [], getattr(loss_kernels, name)
    monkeypatch.setattr(loss_kernels, name, lambda *args: calls.append(1) or kernel(*args))
    return calls


def both(compute, ours: torch.Tensor, theirs: torch.Tensor, their_kind: torch.dtype = torch.bfloat16) -> tuple:
    """Sum and gradient, by the kernels and written out."""
    found = []
    for is_half in (True, False):
        kind = torch.bfloat16 if is_half else torch.float64
        x = ours.to(kind).requires_grad_()
        with torch.autocast("cuda", torch.bfloat16, enabled=is_half):
            total = compute(x, theirs.to(their_kind if is_half else kind))
        found += [total.detach(), *torch.autograd.grad(0.25 * total, x)]
    return tuple(found)


@pytest.mark.parametrize("direction", ["bidirectional", "causal"])
@pytest.mark.parametrize(
    ("quantity", "heads", "width", "their_width", "their_kind"),
    [
        ("attention", "each", 26, 64, torch.bfloat16),
        ("attention", "each", 64, 64, torch.bfloat16),
        ("attention", "each", 64, 64, torch.float32),  # as it is kept of a teacher
        ("attention", "each", 8, 32, torch.bfloat16),
        ("attention", "2", 24, 64, torch.bfloat16),
        ("key-relations", "each", 32, 128, torch.float32),
    ],
)
def test_relations(monkeypatch, quantity, heads, width, their_width, their_kind, direction):
    calls = counted(monkeypatch, "squared_relation_error")
    torch.manual_seed(0)
    lengths = [13, 128, 1, 77, 0, 64]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    zeros = torch.zeros(int(offsets[-1]), dtype=torch.int64, device=CUDA)
    on_device = torch.from_numpy(offsets.astype(np.int32)).to(CUDA)
    tokens = Tokens(zeros, zeros, zeros, zeros.bool(), offsets=on_device, offsets_host=offsets)
    batch = Batch({"tokens": tokens}, max_length=128)
    ours = torch.randn(len(zeros), 3, 4, width, device=CUDA).bfloat16()
    theirs = torch.randn(3, len(zeros), 4, their_width, device=CUDA).bfloat16().transpose(0, 1)
    weights = torch.rand(len(zeros), device=CUDA)
    match = Match(quantity, "mse", heads=heads)
    total, gradient, expected, expected_gradient = both(
        lambda a, b: relation_sum(match, a, b, batch, weights, direction), ours, theirs, their_kind
    )
    assert calls == [1]
    assert close(total, expected) and close(gradient, expected_gradient)


@pytest.mark.parametrize("width", [96, 384, 768])
def test_vectors(monkeypatch, width):
    calls = counted(monkeypatch, "squared_vector_error")
    torch.manual_seed(0)
    ours, theirs = (torch.randn(333, width, device=CUDA).bfloat16() for _ in range(2))
    weights = torch.rand(333, device=CUDA)
    total, gradient, expected, expected_gradient = both(
        lambda a, b: vector_sum("mse", a, b, weights), ours, theirs, torch.float32
    )
    assert calls == [1]
    assert close(total, expected) and close(gradient, expected_gradient)
