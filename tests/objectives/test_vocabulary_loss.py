"""The fused loss over the vocabulary: equal to the plain one, with its gradients, by the kernel run in Python."""

import os
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("triton", reason="comes with torch for CUDA")

IN_PYTHON = """
    import torch
    from hornbook.objectives import vocabulary_loss
    from hornbook.nn.kernels import losses as loss_kernels
    from hornbook.objectives.mlm import summed_loss

    loss_kernels.BLOCK, vocabulary_loss.PART_ROWS = 64, 7
    torch.manual_seed(0)
    for vocab_size, padded_size in ((150, 192), (64, 64), (128, 192), (40, 64)):
        x, matrix = torch.randn(20, 16, requires_grad=True), torch.randn(padded_size, 16, requires_grad=True)
        values, weights = torch.randint(0, vocab_size, (20,)), torch.rand(20)
        values[:2], weights[3] = torch.tensor([0, vocab_size - 1]), 0
        found = vocabulary_loss._FusedLoss.apply(x, matrix, values, weights, vocab_size)
        gradients = torch.autograd.grad(0.37 * found, (x, matrix))
        expected = summed_loss((x @ matrix.T)[:, :vocab_size], values, weights)
        torch.testing.assert_close(found, expected)
        for one, other in zip(gradients, torch.autograd.grad(0.37 * expected, (x, matrix))):
            torch.testing.assert_close(one, other)
        assert not gradients[1][vocab_size:].any()
"""


def test_the_kernel_equals_the_plain_loss():
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", textwrap.dedent(IN_PYTHON)], check=True, env=environment)
