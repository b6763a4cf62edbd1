"""The kernels of matched vectors and relations: equal to what is written out, with the gradient, run in Python."""

import os
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("triton", reason="comes with torch for CUDA")

VECTORS = """
    import torch
    from hornbook.nn.kernels.losses import squared_vector_error
    from hornbook.objectives.distillation.losses import _WithGradient, vector_losses

    torch.manual_seed(0)
    for num_rows, width in ((10, 24), (3, 64), (1, 700)):
        ours, theirs = torch.randn(num_rows, width, requires_grad=True), torch.randn(num_rows, width)
        weights = torch.rand(num_rows)
        weights[0] = 0
        weights[-1] = 2
        found = _WithGradient.apply(ours, lambda: squared_vector_error(ours, theirs, weights))
        expected = (vector_losses("mse", ours, theirs) * weights).sum()
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(*(torch.autograd.grad(0.37 * each, ours)[0] for each in (found, expected)))
"""
RELATIONS = """
    import torch
    from hornbook.batch import Batch, Tokens
    from hornbook.nn.kernels import losses as loss_kernels
    from hornbook.objectives.distillation.losses import _fused_relation_sum, _resplit, relation_sum
    from hornbook.objectives.distillation.matching import Match

    loss_kernels.TILE = loss_kernels.TILE_OF_WIDE = 16  # several tiles in a sequence
    torch.manual_seed(0)
    lengths = [5, 37, 16, 1, 0]
    offsets = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    num = int(offsets[-1]) + 6  # the last are of no sequence
    zeros = torch.zeros(num, dtype=torch.int64)
    tokens = Tokens(zeros, zeros, zeros, zeros.bool(), offsets=offsets, offsets_host=offsets.long().numpy())
    batch = Batch({"tokens": tokens}, max_length=max(lengths))
    weights = torch.rand(num)
    weights[44:46] = 0
    for quantity in ("attention", "query-relations", "value-relations"):
        for direction in ("bidirectional", "causal"):
            for heads, width, their_width in (("each", 8, 20), ("4", 8, 24), ("each", 80, 26)):
                ours = torch.randn(num, 3, 2, width, requires_grad=True)
                theirs = torch.randn(num, 3, 2, their_width)
                match = Match(quantity, "mse", heads=heads)
                expected = relation_sum(match, ours, theirs, batch, weights, direction)
                resplit = [_resplit(match, each).contiguous() for each in (ours, theirs)]
                found = _fused_relation_sum(match, *resplit, batch, weights, direction)
                torch.testing.assert_close(found, expected)
                one, other = (torch.autograd.grad(0.37 * each, ours)[0] for each in (found, expected))
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
                assert other[:59].any() and not one[59:].any()
"""


@pytest.mark.parametrize("what", [VECTORS, RELATIONS], ids=["vectors", "relations"])
def test_the_kernels_equal_what_is_written_out(what):
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", textwrap.dedent(what)], check=True, env=environment)
