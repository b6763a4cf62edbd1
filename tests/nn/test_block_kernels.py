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
    from hornbook.nn.fused_ops import _fused_dropout_add_norm

    torch.manual_seed(0)
    for num_rows, width in ((10, 24), (13, 64), (1, 40), (50, 16)):
        for dropout in (0.0, 0.3):
            seed = torch.tensor([12345]) if dropout else None
            ones, zeros = torch.ones(num_rows, width), torch.zeros(num_rows, width)
            kept = (_fused_dropout_add_norm(zeros, ones, *[zeros[0]] * 3, seed, dropout, 1e-5)[0] != 0).float()
            x, y, g, h = (torch.randn(num_rows, width, requires_grad=True) for _ in range(4))
            y_bias, weight, bias = (torch.randn(width, requires_grad=True) for _ in range(3))
            inputs = (x, y, y_bias, weight, bias)
            expected = x + (y + y_bias) * kept / (1 - dropout)
            found, normed, _ = _fused_dropout_add_norm(*inputs, seed, dropout, 1e-5)
            expected_normed = F.layer_norm(expected, (width,), weight, bias, 1e-5)
            torch.testing.assert_close(found, expected)
            torch.testing.assert_close(normed, expected_normed)
            of_sum = [(z * g).sum() for z in (found, expected)]
            of_normed = [(n * h).sum() for n in (normed, expected_normed)]
            of_both = [one + other for one, other in zip(of_sum, of_normed)]
            for losses in (of_both, of_normed, of_sum):  # the sum itself goes nowhere else in a post-norm block
                gradients = (
                    torch.autograd.grad(loss, inputs, retain_graph=True, materialize_grads=True) for loss in losses
                )
                for one, other in zip(*gradients):
                    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
            opcheck(_fused_dropout_add_norm, (*inputs, seed, dropout, 1e-5))
"""
DROPOUT = """
    import torch
    from hornbook.nn.fused_ops import _fused_dropout_add_norm

    ones, zeros = torch.ones(400, 96), torch.zeros(400, 96)
    rest = [zeros[0]] * 3
    masks = [_fused_dropout_add_norm(zeros, ones, *rest, torch.tensor([seed]), 0.25, 1e-5)[0] for seed in (1, 1, 2)]
    assert torch.equal(masks[0], masks[1])
    assert set(masks[0].unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    kept = [(mask != 0).float() for mask in masks]
    assert abs(kept[0].mean() - 0.75) < 0.01  # three deviations are 0.007
    # Rows beside each other, columns beside each other and other seeds have nothing to do with each other.
    for other in (kept[0].roll(1, 0), kept[0].roll(1, 1), kept[0].roll(2, 1), kept[0].roll(4, 1), kept[2]):
        assert abs(torch.corrcoef(torch.stack((kept[0].flatten(), other.flatten())))[0, 1]) < 0.02
"""
GELU = """
    import torch
    import torch.nn.functional as F
    from torch.library import opcheck
    from hornbook.nn import kernels
    from hornbook.nn.fused_ops import _gelu

    kernels.PROGRAMS_PER_PROCESSOR = 3  # each with several parts to sum up
    torch.manual_seed(0)
    for num_rows, width in ((5, 40), (40, 300), (700, 12), (9, 2049)):
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
QKV = """
    import torch
    from torch.library import opcheck
    from hornbook.nn import kernels
    from hornbook.nn import fused_ops
    from hornbook.nn.fused_ops import _concat_qkv, project_qkv

    kernels.PROGRAMS_PER_PROCESSOR = 3  # each with several parts to sum up
    fused_ops.is_fused = lambda x_TD, linear: is_fused
    torch.manual_seed(0)
    for num_rows, num_heads, width in ((5, 2, 4), (70, 3, 48), (100, 1, 10), (33, 5, 77)):
        x, linear = torch.randn(num_rows, 12, requires_grad=True), torch.nn.Linear(12, 3 * num_heads * width)
        readers = torch.randn(3, num_rows, num_heads, width)
        found = []
        for is_fused in (True, False):
            three = project_qkv(x, linear, num_heads)
            loss = sum((one * reader).sum() for one, reader in zip(three, readers))
            found.append((*three, *torch.autograd.grad(loss, (x, linear.weight, linear.bias))))
        for one, other in zip(*found):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    opcheck(_concat_qkv, tuple(readers))
"""
PROGRAMS = {"residual": RESIDUAL, "dropout": DROPOUT, "gelu": GELU, "qkv": QKV}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_kernels_equal_what_is_written_out(program):
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, env=environment)
