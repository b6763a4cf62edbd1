"""Triton kernel for losses that compute their gradient in the forward pass: the backward pass only scales it.

Imported only on CUDA, where Triton is available.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096


def scaled(gradient: Tensor, by: Tensor, dtype: torch.dtype) -> Tensor:
    """gradient x by (a scalar tensor on the device), computed in float32 in one pass and returned as `dtype`."""
    out = torch.empty_like(gradient, dtype=dtype)
    _scaled[(triton.cdiv(out.numel(), BLOCK),)](gradient, by, out, out.numel(), BLOCK=BLOCK)
    return out


@triton.jit
def _scaled(gradient, by, out, size, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    product = tl.load(gradient + at, mask=at < size, other=0.0).to(tl.float32) * tl.load(by).to(tl.float32)
    tl.store(out + at, product.to(out.dtype.element_ty), mask=at < size)
