"""Triton kernels of `nn/fused_ops.py`: bias and GELU in one pass, and the gradients of both in one backward pass.

The gradient of the bias is a sum over all rows. Each program accumulates its partial sum while it computes the gradient
of the input; a separate kernel would have to read that gradient again.

Imported only on CUDA, where Triton is available. Shapes: T rows, I width, P programs.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from hornbook.nn.kernels import num_programs_per_column

COLUMNS, ROWS, NUM_WARPS = 256, 16, 4  # tile of a program
# In the backward pass a thread has the same columns of all rows, so that sums over rows stay in the thread, and loads
# are prefetched.
BACK_COLUMNS, BACK_ROWS, BACK_WARPS, BACK_STAGES = 1024, 4, 4, 2


def forward(h_TI: Tensor, bias_I: Tensor, is_tanh: bool) -> Tensor:
    num_rows, width = h_TI.shape
    out_TI = torch.empty_like(h_TI)
    _forward[(triton.cdiv(width, COLUMNS), triton.cdiv(num_rows, ROWS))](
        h_TI, bias_I, out_TI, num_rows, width, COLUMNS=COLUMNS, ROWS=ROWS, IS_TANH=is_tanh, num_warps=NUM_WARPS
    )
    return out_TI


def backward(gradient_TI: Tensor, h_TI: Tensor, bias_I: Tensor, is_tanh: bool) -> tuple[Tensor, Tensor]:
    """The gradients of h and of the bias."""
    num_rows, width = h_TI.shape
    h_gradient_TI = torch.empty_like(h_TI)
    num_blocks = triton.cdiv(width, BACK_COLUMNS)
    num_programs = num_programs_per_column(h_TI.device, num_blocks, triton.cdiv(num_rows, BACK_ROWS))
    sums_PI = torch.empty(num_programs, width, dtype=torch.float32, device=h_TI.device)
    _backward[(num_blocks, num_programs)](
        gradient_TI, h_TI, bias_I, h_gradient_TI, sums_PI, num_rows, width,
        COLUMNS=BACK_COLUMNS, ROWS=BACK_ROWS, IS_TANH=is_tanh, STAGES=BACK_STAGES, num_warps=BACK_WARPS,
    )  # fmt: skip
    return h_gradient_TI, sums_PI.sum(0)


@triton.jit
def _share(x, IS_TANH: tl.constexpr):
    """gelu(x) / x."""
    if IS_TANH:  # 0.5 (1 + tanh(a)) = 1 / (1 + e^(-2 a)), by the hardware's exp2
        share = 1 / (1 + tl.exp2(x * (-2.3022081983 - 0.1029432396 * x * x)))
    else:
        share = 0.5 * (1 + tl.erf(x * 0.7071067812))
    return share


@triton.jit
def _forward(h, bias, out, num_rows, width, COLUMNS: tl.constexpr, ROWS: tl.constexpr, IS_TANH: tl.constexpr):
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    inside = (rows < num_rows)[:, None] & (columns < width)[None, :]
    at = rows.to(tl.int64)[:, None] * width + columns[None, :]
    x = tl.load(h + at, mask=inside, other=0.0).to(tl.float32)
    x += tl.load(bias + columns, mask=columns < width, other=0.0).to(tl.float32)[None, :]
    tl.store(out + at, (x * _share(x, IS_TANH)).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _backward(
    gradient, h, bias, h_gradient, sums, num_rows, width,
    COLUMNS: tl.constexpr, ROWS: tl.constexpr, IS_TANH: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    program, num_programs = tl.program_id(1), tl.num_programs(1)
    bias_row = tl.load(bias + columns, mask=columns < width, other=0.0).to(tl.float32)[None, :]
    total = tl.zeros((COLUMNS,), tl.float32)
    for first in tl.range(program * ROWS, num_rows, num_programs * ROWS, num_stages=STAGES):
        rows = first + tl.arange(0, ROWS)
        inside = (rows < num_rows)[:, None] & (columns < width)[None, :]
        at = rows.to(tl.int64)[:, None] * width + columns[None, :]
        x = tl.load(h + at, mask=inside, other=0.0).to(tl.float32) + bias_row
        share = _share(x, IS_TANH)
        if IS_TANH:
            slope = share + x * share * (1 - share) * 1.5957691216 * (1 + 0.134145 * x * x)
        else:
            slope = share + x * tl.exp(-0.5 * x * x) * 0.3989422804
        result = tl.load(gradient + at, mask=inside, other=0.0).to(tl.float32) * slope
        tl.store(h_gradient + at, result.to(h_gradient.dtype.element_ty), mask=inside)
        total += tl.sum(result, 0)
    tl.store(sums + program * width + columns, total, mask=columns < width)
