"""Triton kernel of `nn/fused_ops.py`: concatenates three matrices and sums their columns.

Imported only on CUDA, where Triton is available. Shapes: T rows, D width of one matrix, P programs.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from hornbook.nn.kernels import num_programs_per_column

# Tile of a program in each matrix; a thread has the same columns of all rows, and loads are prefetched.
COLUMNS, ROWS, NUM_WARPS, NUM_STAGES = 256, 8, 1, 2


def concat_qkv(q_THC: Tensor, k_THC: Tensor, v_THC: Tensor) -> tuple[Tensor, Tensor]:
    num_rows, num_heads, head_width = q_THC.shape
    width = num_heads * head_width
    qkv_T3HC = q_THC.new_empty(num_rows, 3, num_heads, head_width)
    num_blocks = triton.cdiv(width, COLUMNS)
    num_programs = num_programs_per_column(q_THC.device, num_blocks, triton.cdiv(num_rows, ROWS))
    sums_P3D = torch.empty(num_programs, 3 * width, dtype=torch.float32, device=q_THC.device)
    _concat_qkv[(num_blocks, num_programs)](
        q_THC, k_THC, v_THC, qkv_T3HC, sums_P3D, num_rows, width,
        COLUMNS=COLUMNS, ROWS=ROWS, STAGES=NUM_STAGES, num_warps=NUM_WARPS,
    )  # fmt: skip
    return qkv_T3HC, sums_P3D.sum(0)


@triton.jit
def _concat_qkv(
    q, k, v, qkv, sums, num_rows, width, COLUMNS: tl.constexpr, ROWS: tl.constexpr, STAGES: tl.constexpr
):  # fmt: skip
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    program, num_programs = tl.program_id(1), tl.num_programs(1)
    q_sum = tl.zeros((COLUMNS,), tl.float32)
    k_sum = tl.zeros((COLUMNS,), tl.float32)
    v_sum = tl.zeros((COLUMNS,), tl.float32)
    for first in tl.range(program * ROWS, num_rows, num_programs * ROWS, num_stages=STAGES):
        rows = (first + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        inside = (rows < num_rows) & (columns < width)[None, :]
        source, target = rows * width + columns[None, :], rows * (3 * width) + columns[None, :]
        q_part = tl.load(q + source, mask=inside, other=0.0)
        k_part = tl.load(k + source, mask=inside, other=0.0)
        v_part = tl.load(v + source, mask=inside, other=0.0)
        tl.store(qkv + target, q_part, mask=inside)
        tl.store(qkv + target + width, k_part, mask=inside)
        tl.store(qkv + target + 2 * width, v_part, mask=inside)
        q_sum += tl.sum(q_part.to(tl.float32), 0)
        k_sum += tl.sum(k_part.to(tl.float32), 0)
        v_sum += tl.sum(v_part.to(tl.float32), 0)
    at = sums + program * 3 * width + columns
    tl.store(at, q_sum, mask=columns < width)
    tl.store(at + width, k_sum, mask=columns < width)
    tl.store(at + 2 * width, v_sum, mask=columns < width)
