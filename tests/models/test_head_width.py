"""Heads of a width that the flash kernel does not support: padding them with zeros changes nothing if the scale is
kept."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from hornbook.nn.block import PackedLayout, attention, widened


@pytest.mark.parametrize(("width", "expected"), [(26, 32), (32, 32), (1, 8)])
def test_padding_a_head_with_zeros_changes_nothing(random, width, expected):
    q, k, v = (torch.from_numpy(random.normal(size=(11, 3, width))) for _ in range(3))
    wide = [widened(each) for each in (q, k, v)]
    assert all(each.shape[-1] == expected and not each[..., width:].any() for each in wide)
    offsets = np.array([0, 11])
    there = attention(q, k, v, PackedLayout(torch.from_numpy(offsets), offsets, 11))
    shaped = [each.transpose(0, 1)[None] for each in wide]
    padded = F.scaled_dot_product_attention(*shaped, scale=width**-0.5)[0].transpose(0, 1)[..., :width]
    torch.testing.assert_close(padded, there, rtol=1e-12, atol=1e-12)
    assert widened(q) is q if width == expected else True
