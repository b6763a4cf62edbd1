"""For losses that make their gradient on the way forward: on the way back it is only multiplied by what comes in.

Imported only where there is CUDA, which brings `triton`.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096


def scaled(gradient: Tensor, by: Tensor, kind: torch.dtype) -> Tensor:
    """gradient x by, a single number on the device, in float32 and in one pass."""
    out = torch.empty_like(gradient, dtype=kind)
    _scaled[(triton.cdiv(out.numel(), BLOCK),)](gradient, by, out, out.numel(), BLOCK=BLOCK)
    return out


@triton.jit
def _scaled(gradient, by, out, size, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    product = tl.load(gradient + at, mask=at < size, other=0.0).to(tl.float32) * tl.load(by).to(tl.float32)
    tl.store(out + at, product.to(out.dtype.element_ty), mask=at < size)
