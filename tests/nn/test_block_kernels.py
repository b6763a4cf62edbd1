"""The kernels between a block's matrix products: equal to what is written out, with all gradients, run in Python."""

import os
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("triton", reason="comes with torch for CUDA")

RESIDUAL = """
    import torch
    import torch.nn.functional as F
    from torch.library import opcheck
    from hornbook.nn.residual import _added, _added_and_normed

    torch.manual_seed(0)
    for num_rows, width in ((10, 24), (13, 64), (1, 40), (50, 16)):
        for dropout in (0.0, 0.3):
            seed = torch.tensor([12345]) if dropout else None
            ones, zeros = torch.ones(num_rows, width), torch.zeros(num_rows, width)
            kept = (_added(zeros, ones, zeros[0], seed, dropout) != 0).float()
            x, y, g, h = (torch.randn(num_rows, width, requires_grad=True) for _ in range(4))
            y_bias, weight, bias = (torch.randn(width, requires_grad=True) for _ in range(3))
            inputs = (x, y, y_bias, weight, bias)
            expected = x + (y + y_bias) * kept / (1 - dropout)
            found = _added(x, y, y_bias, seed, dropout)
            torch.testing.assert_close(found, expected)
            gradients = (torch.autograd.grad(each, inputs[:3], g, retain_graph=True) for each in (found, expected))
            for one, other in zip(*gradients):
                torch.testing.assert_close(one, other)
            found, normed, _ = _added_and_normed(*inputs, seed, dropout, 1e-5)
            expected_normed = F.layer_norm(expected, (width,), weight, bias, 1e-5)
            torch.testing.assert_close(found, expected)
            torch.testing.assert_close(normed, expected_normed)
            for share in (0.0, 1.0):  # of the loss that reads the sum itself: 0 as in post-norm blocks
                losses = [(n * h).sum() for n in (normed, expected_normed)]
                if share:
                    losses = [loss + (z * g).sum() for loss, z in zip(losses, (found, expected))]
                gradients = (torch.autograd.grad(loss, inputs, retain_graph=True) for loss in losses)
                for one, other in zip(*gradients):
                    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
            opcheck(_added, (x, y, y_bias, seed, dropout))
            opcheck(_added_and_normed, (*inputs, seed, dropout, 1e-5))
"""
DROPOUT = """
    import torch
    from hornbook.nn.residual import _added

    ones, zeros = torch.ones(400, 96), torch.zeros(400, 96)
    masks = [_added(zeros, ones, zeros[0], torch.tensor([seed]), 0.25) for seed in (1, 1, 2)]
    assert torch.equal(masks[0], masks[1])
    assert set(masks[0].unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    kept = [(mask != 0).float() for mask in masks]
    assert abs(kept[0].mean() - 0.75) < 0.01  # three deviations are 0.007
    # Rows beside each other, columns beside each other and other seeds have nothing to do with each other.
    for other in (kept[0].roll(1, 0), kept[0].roll(1, 1), kept[0].roll(4, 0), kept[2]):
        assert abs(torch.corrcoef(torch.stack((kept[0].flatten(), other.flatten())))[0, 1]) < 0.02
"""
GELU = """
    import torch
    import torch.nn.functional as F
    from torch.library import opcheck
    from hornbook.nn import gelu_kernel
    from hornbook.nn.activation import _gelu

    gelu_kernel.NUM_BACKWARD = 3  # each with several parts to sum up
    torch.manual_seed(0)
    for num_rows, width in ((5, 40), (40, 300), (700, 12)):
        for is_tanh in (True, False):
            h, bias = (2 * torch.randn(num_rows, width)).requires_grad_(), torch.randn(width, requires_grad=True)
            found = _gelu(h, bias, is_tanh)
            expected = F.gelu(h + bias, approximate="tanh" if is_tanh else "none")
            torch.testing.assert_close(found, expected)
            g = torch.randn(num_rows, width)
            for one, other in zip(*(torch.autograd.grad(each, (h, bias), g) for each in (found, expected))):
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    opcheck(_gelu, (h, bias, True))
"""


@pytest.mark.parametrize("program", [RESIDUAL, DROPOUT, GELU], ids=["residual", "dropout", "gelu"])
def test_kernels_equal_what_is_written_out(program):
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, env=environment)
