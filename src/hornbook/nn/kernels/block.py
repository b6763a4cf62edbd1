"""Triton kernels of `nn/fused_ops.py`, between the matrix products of a block: queries, keys and values, bias and GELU,
and the end of a sublayer, forward and backward in one pass each.

Gradients of biases and norms are sums over all rows. The backward kernels accumulate them in the same pass, one partial
sum per program; separate kernels would have to read the gradient of the input again.

Imported only on CUDA, where Triton is available. Shapes: T rows, I inner width, D model width, H heads, C head width,
P programs.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from hornbook.nn.fused_ops import has_one_gradient
from hornbook.nn.kernels import num_processors, num_programs_per_column

# Tiles of a program. In the kernels that sum over rows, a thread has the same columns of all rows, so that the sums
# stay in the thread, and loads are prefetched.
QKV_COLUMNS, QKV_ROWS, QKV_WARPS, QKV_STAGES = 256, 8, 1, 2
GELU_COLUMNS, GELU_ROWS, GELU_WARPS = 256, 16, 4
BACK_COLUMNS, BACK_ROWS, BACK_WARPS, BACK_STAGES = 1024, 4, 4, 2  # of GELU

COLUMNS_PER_WARP, MAX_WARPS = 512, 8  # of the end of a sublayer
# In its backward pass programs keep sums over many rows, and prefetch two rows while they process one. Rows wider than
# WIDEST_AHEAD would need more shared memory for that than most GPUs have.
COLUMNS_PER_PROCESSOR, MAX_PER_PROCESSOR, NUM_STAGES, WIDEST_AHEAD = 4096, 16, 3, 4096
PHILOX_ROUNDS = 7  # of the generator (Philox4x32-7 passes the same tests as 10 rounds)


def concat_qkv(q_THC: Tensor, k_THC: Tensor, v_THC: Tensor) -> tuple[Tensor, Tensor]:
    """The concatenation of three matrices, T x 3 x H x C, and the sums of its columns, 3HC."""
    num_rows, num_heads, head_width = q_THC.shape
    width = num_heads * head_width
    qkv_T3HC = q_THC.new_empty(num_rows, 3, num_heads, head_width)
    num_blocks = triton.cdiv(width, QKV_COLUMNS)
    num_programs = num_programs_per_column(q_THC.device, num_blocks, triton.cdiv(num_rows, QKV_ROWS))
    sums_P3D = torch.empty(num_programs, 3 * width, dtype=torch.float32, device=q_THC.device)
    _concat_qkv[(num_blocks, num_programs)](
        q_THC, k_THC, v_THC, qkv_T3HC, sums_P3D, num_rows, width,
        COLUMNS=QKV_COLUMNS, ROWS=QKV_ROWS, STAGES=QKV_STAGES, num_warps=QKV_WARPS,
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


def gelu(h_TI: Tensor, bias_I: Tensor, is_tanh: bool) -> Tensor:
    num_rows, width = h_TI.shape
    out_TI = torch.empty_like(h_TI)
    _gelu[(triton.cdiv(width, GELU_COLUMNS), triton.cdiv(num_rows, GELU_ROWS))](
        h_TI, bias_I, out_TI, num_rows, width,
        COLUMNS=GELU_COLUMNS, ROWS=GELU_ROWS, IS_TANH=is_tanh, num_warps=GELU_WARPS,
    )  # fmt: skip
    return out_TI


def gelu_backward(gradient_TI: Tensor, h_TI: Tensor, bias_I: Tensor, is_tanh: bool) -> tuple[Tensor, Tensor]:
    """The gradients of h and of the bias."""
    num_rows, width = h_TI.shape
    h_gradient_TI = torch.empty_like(h_TI)
    num_blocks = triton.cdiv(width, BACK_COLUMNS)
    num_programs = num_programs_per_column(h_TI.device, num_blocks, triton.cdiv(num_rows, BACK_ROWS))
    sums_PI = torch.empty(num_programs, width, dtype=torch.float32, device=h_TI.device)
    _gelu_backward[(num_blocks, num_programs)](
        gradient_TI, h_TI, bias_I, h_gradient_TI, sums_PI, num_rows, width,
        COLUMNS=BACK_COLUMNS, ROWS=BACK_ROWS, IS_TANH=is_tanh, STAGES=BACK_STAGES, num_warps=BACK_WARPS,
    )  # fmt: skip
    return h_gradient_TI, sums_PI.sum(0)


@triton.jit
def _gelu_share(x, IS_TANH: tl.constexpr):
    """gelu(x) / x."""
    if IS_TANH:  # 0.5 (1 + tanh(a)) = 1 / (1 + e^(-2 a)), by the hardware's exp2
        share = 1 / (1 + tl.exp2(x * (-2.3022081983 - 0.1029432396 * x * x)))
    else:
        share = 0.5 * (1 + tl.erf(x * 0.7071067812))
    return share


@triton.jit
def _gelu(h, bias, out, num_rows, width, COLUMNS: tl.constexpr, ROWS: tl.constexpr, IS_TANH: tl.constexpr):
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    inside = (rows < num_rows)[:, None] & (columns < width)[None, :]
    at = rows.to(tl.int64)[:, None] * width + columns[None, :]
    x = tl.load(h + at, mask=inside, other=0.0).to(tl.float32)
    x += tl.load(bias + columns, mask=columns < width, other=0.0).to(tl.float32)[None, :]
    tl.store(out + at, (x * _gelu_share(x, IS_TANH)).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _gelu_backward(
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
        share = _gelu_share(x, IS_TANH)
        if IS_TANH:
            slope = share + x * share * (1 - share) * 1.5957691216 * (1 + 0.134145 * x * x)
        else:
            slope = share + x * tl.exp(-0.5 * x * x) * 0.3989422804
        result = tl.load(gradient + at, mask=inside, other=0.0).to(tl.float32) * slope
        tl.store(h_gradient + at, result.to(h_gradient.dtype.element_ty), mask=inside)
        total += tl.sum(result, 0)
    tl.store(sums + program * width + columns, total, mask=columns < width)


# --- Bias, dropout, residual addition and norm -----------------------------------------------------------------------
#
#     z = x + dropout(y + y_bias)          normed = (z - mean) * scale * weight + bias
#
# Eight neighbours in a row share one call of the random generator, 16 bits each. The backward pass generates the same
# numbers again from the seed, so no mask is stored.


def dropout_add_norm(
    x_TD: Tensor,
    y_TD: Tensor,
    y_bias_D: Tensor,
    weight_D: Tensor,
    bias_D: Tensor,
    seed: Tensor | None,
    dropout: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """z, T x D; norm(z), T x D; and the mean and scale (1 / standard deviation) of each row of z, T x 2."""
    num_rows, width = x_TD.shape
    z_TD, normed_TD = torch.empty_like(x_TD), torch.empty_like(y_TD)
    moments_T2 = torch.empty(num_rows, 2, dtype=torch.float32, device=x_TD.device)
    _dropout_add_norm[(num_rows,)](
        x_TD, y_TD, y_bias_D, weight_D, bias_D, seed, z_TD, normed_TD, moments_T2, width, eps, dropout,
        WIDTH=_padded_width(width), DROPS=dropout > 0, ROUNDS=PHILOX_ROUNDS, num_warps=_num_warps(width),
    )  # fmt: skip
    return z_TD, normed_TD, moments_T2


def dropout_add_norm_backward(
    z_gradient_TD: Tensor | None,
    normed_gradient_TD: Tensor,
    z_TD: Tensor,
    moments_T2: Tensor,
    weight_D: Tensor,
    seed: Tensor | None,
    dropout: float,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """The gradients of x and of y (None if it equals that of x); and the gradients of `y_bias`, `weight` and `bias`,
    3 x D."""
    num_rows, width = z_TD.shape
    y_dtype = normed_gradient_TD.dtype
    x_gradient_TD = torch.empty_like(z_TD)
    is_same = has_one_gradient(z_TD.dtype, y_dtype, dropout)
    y_gradient_TD = None if is_same else torch.empty_like(z_TD, dtype=y_dtype)
    num_programs = min(num_rows, _programs_per_processor(width) * num_processors(z_TD.device))
    sums_3PD = torch.empty(3, num_programs, width, dtype=torch.float32, device=z_TD.device)
    _dropout_add_norm_backward[(num_programs,)](
        z_gradient_TD, normed_gradient_TD, z_TD, moments_T2, weight_D, seed, x_gradient_TD, y_gradient_TD, sums_3PD,
        num_rows, width, dropout,
        WIDTH=_padded_width(width), HAS_STREAM=z_gradient_TD is not None, DROPS=dropout > 0, IS_SAME=is_same,
        ROUNDS=PHILOX_ROUNDS, STAGES=NUM_STAGES if _padded_width(width) <= WIDEST_AHEAD else 1,
        num_warps=_num_warps(width),
    )  # fmt: skip
    return x_gradient_TD, y_gradient_TD, sums_3PD.sum(1)


def _padded_width(width: int) -> int:
    return max(16, triton.next_power_of_2(width))


def _num_warps(width: int) -> int:
    return min(MAX_WARPS, max(1, _padded_width(width) // COLUMNS_PER_WARP))


def _programs_per_processor(width: int) -> int:
    return min(MAX_PER_PROCESSOR, max(1, COLUMNS_PER_PROCESSOR // _padded_width(width)))


@triton.jit
def _dropped(values, row, seed, dropout, WIDTH: tl.constexpr, ROUNDS: tl.constexpr):
    """Dropout of a row, by 16 random bits per value; the kept values are scaled by 1 / (1 - dropout)."""
    draw = row * (WIDTH // 8) + tl.arange(0, WIDTH // 8)
    bits_0, bits_1, bits_2, bits_3 = tl.randint4x(tl.load(seed), draw, ROUNDS)
    words = tl.interleave(tl.interleave(bits_0, bits_1), tl.interleave(bits_2, bits_3))
    bits = tl.interleave(words & 0xFFFF, (words >> 16) & 0xFFFF)
    return tl.where(bits.to(tl.float32) >= dropout * 65536.0, values * (1 / (1 - dropout)), 0.0)


@triton.jit
def _add_pairs(a, b, c, d):
    return a + c, b + d


@triton.jit
def _dropout_add_norm(
    x, y, y_bias, weight, bias, seed, z, normed, moments, width, eps, dropout,
    WIDTH: tl.constexpr, DROPS: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    at = tl.arange(0, WIDTH)
    inside = at < width
    at_row = row.to(tl.int64) * width + at
    added = tl.load(y + at_row, mask=inside, other=0.0).to(tl.float32)
    added += tl.load(y_bias + at, mask=inside, other=0.0).to(tl.float32)
    if DROPS:
        added = _dropped(added, row, seed, dropout, WIDTH, ROUNDS)
    total = tl.load(x + at_row, mask=inside, other=0.0).to(tl.float32) + added
    rounded = total.to(z.dtype.element_ty)
    tl.store(z + at_row, rounded, mask=inside)
    value = rounded.to(tl.float32)  # as the backward pass will read it
    mean = tl.sum(value, 0) / width
    centred = tl.where(inside, value - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, 0) / width + eps)
    weight_row = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    bias_row = tl.load(bias + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(normed + at_row, (centred * scale * weight_row + bias_row).to(normed.dtype.element_ty), mask=inside)
    tl.store(moments + row * 2, mean)
    tl.store(moments + row * 2 + 1, scale)


@triton.jit
def _dropout_add_norm_backward(
    z_gradient, normed_gradient, z, moments, weight, seed, x_gradient, y_gradient, sums, num_rows, width, dropout,
    WIDTH: tl.constexpr, HAS_STREAM: tl.constexpr, DROPS: tl.constexpr, IS_SAME: tl.constexpr,
    ROUNDS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    program, num_programs = tl.program_id(0), tl.num_programs(0)
    at = tl.arange(0, WIDTH)
    inside = at < width
    y_sum = tl.zeros((WIDTH,), tl.float32)
    weight_sum = tl.zeros((WIDTH,), tl.float32)
    bias_sum = tl.zeros((WIDTH,), tl.float32)
    weight_row = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    for row in tl.range(program, num_rows, num_programs, num_stages=STAGES):
        at_row = tl.full((), 1, tl.int64) * row * width + at
        mean, scale = tl.load(moments + row * 2), tl.load(moments + row * 2 + 1)
        hat = (tl.load(z + at_row, mask=inside, other=0.0).to(tl.float32) - mean) * scale
        from_norm = tl.load(normed_gradient + at_row, mask=inside, other=0.0).to(tl.float32)
        weight_sum += from_norm * hat
        bias_sum += from_norm
        scaled = from_norm * weight_row
        along, common = tl.reduce((scaled * hat, scaled), 0, _add_pairs)
        gradient = (scaled - (common + hat * along) * (1 / width)) * scale
        if HAS_STREAM:
            gradient += tl.load(z_gradient + at_row, mask=inside, other=0.0).to(tl.float32)
        tl.store(x_gradient + at_row, gradient.to(x_gradient.dtype.element_ty), mask=inside)
        if DROPS:
            gradient = _dropped(gradient, row, seed, dropout, WIDTH, ROUNDS)
        if not IS_SAME:
            tl.store(y_gradient + at_row, gradient.to(y_gradient.dtype.element_ty), mask=inside)
        y_sum += gradient
    size = num_programs * width
    tl.store(sums + program * width + at, y_sum, mask=inside)
    tl.store(sums + size + program * width + at, weight_sum, mask=inside)
    tl.store(sums + 2 * size + program * width + at, bias_sum, mask=inside)
