"""The kernels of `residual.py`: all between two matrix products of a block, forwards and backwards in one pass each.

    z = x + dropout(y + y_bias)          normed = (z - mean) * scale * weight + bias

Eight neighbours in a row share one draw of the random generator, 16 bits each. Backwards the same numbers are drawn
again from the seed, so no mask is kept. Sums over rows (gradients of `weight`, `bias` and `y_bias`) are taken on the
way, a partial one by each program, where a library's kernels would go through memory once more for each.

Imported only where there is CUDA, which brings `triton`. Shapes: T rows, D width, P programs.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from hornbook.kernels import num_processors
from hornbook.nn.residual import has_one_gradient

COLUMNS_PER_WARP, MOST_WARPS = 512, 8
# Of the pass backwards: programs keep sums over many rows, and load two rows ahead while they work on one. Rows wider
# than the last of these would need more fast memory for that than most chips have.
COLUMNS_PER_PROCESSOR, MOST_PER_PROCESSOR, NUM_STAGES, WIDEST_AHEAD = 4096, 16, 3, 4096
NUM_ROUNDS = 7  # of the generator (Philox4x32-7 passes the same tests as 10 rounds)


def forward(
    x_TD: Tensor,
    y_TD: Tensor,
    y_bias_D: Tensor,
    weight_D: Tensor,
    bias_D: Tensor,
    seed: Tensor | None,
    dropout: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """z, what the norm makes of it, and mean and scale of its rows, T x 2."""
    num_rows, width = x_TD.shape
    z_TD, normed_TD = torch.empty_like(x_TD), torch.empty_like(y_TD)
    moments_T2 = torch.empty(num_rows, 2, dtype=torch.float32, device=x_TD.device)
    _forward[(num_rows,)](
        x_TD, y_TD, y_bias_D, weight_D, bias_D, seed, z_TD, normed_TD, moments_T2, width, eps, dropout,
        WIDTH=_room(width), DROPS=dropout > 0, ROUNDS=NUM_ROUNDS, num_warps=_num_warps(width),
    )  # fmt: skip
    return z_TD, normed_TD, moments_T2


def backward(
    z_gradient_TD: Tensor | None,
    normed_gradient_TD: Tensor,
    z_TD: Tensor,
    moments_T2: Tensor,
    weight_D: Tensor,
    seed: Tensor | None,
    dropout: float,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """The gradients of x and of y, None where it is that of x; and sums over rows, 3 x D: the gradients of `y_bias`,
    `weight` and `bias`."""
    num_rows, width = z_TD.shape
    y_kind = normed_gradient_TD.dtype
    x_gradient_TD = torch.empty_like(z_TD)
    is_same = has_one_gradient(z_TD.dtype, y_kind, dropout)
    y_gradient_TD = None if is_same else torch.empty_like(z_TD, dtype=y_kind)
    num_programs = min(num_rows, _programs_per_processor(width) * num_processors(z_TD.device))
    sums_3PD = torch.empty(3, num_programs, width, dtype=torch.float32, device=z_TD.device)
    _backward[(num_programs,)](
        z_gradient_TD, normed_gradient_TD, z_TD, moments_T2, weight_D, seed, x_gradient_TD, y_gradient_TD, sums_3PD,
        num_rows, width, dropout,
        WIDTH=_room(width), HAS_STREAM=z_gradient_TD is not None, DROPS=dropout > 0, IS_SAME=is_same, ROUNDS=NUM_ROUNDS,
        STAGES=NUM_STAGES if _room(width) <= WIDEST_AHEAD else 1, num_warps=_num_warps(width),
    )  # fmt: skip
    return x_gradient_TD, y_gradient_TD, sums_3PD.sum(1)


def _room(width: int) -> int:
    return max(16, triton.next_power_of_2(width))


def _num_warps(width: int) -> int:
    return min(MOST_WARPS, max(1, _room(width) // COLUMNS_PER_WARP))


def _programs_per_processor(width: int) -> int:
    return min(MOST_PER_PROCESSOR, max(1, COLUMNS_PER_PROCESSOR // _room(width)))


@triton.jit
def _dropped(values, row, seed, dropout, WIDTH: tl.constexpr, ROUNDS: tl.constexpr):
    """A row with some of its values at 0, by 16 random bits for each; what is kept is larger by what is not."""
    draw = row * (WIDTH // 8) + tl.arange(0, WIDTH // 8)
    bits_0, bits_1, bits_2, bits_3 = tl.randint4x(tl.load(seed), draw, ROUNDS)
    words = tl.interleave(tl.interleave(bits_0, bits_1), tl.interleave(bits_2, bits_3))
    bits = tl.interleave(words & 0xFFFF, (words >> 16) & 0xFFFF)
    return tl.where(bits.to(tl.float32) >= dropout * 65536.0, values * (1 / (1 - dropout)), 0.0)


@triton.jit
def _both_added(a, b, c, d):
    return a + c, b + d


@triton.jit
def _forward(
    x, y, y_bias, weight, bias, seed, z, normed, moments, width, eps, dropout,
    WIDTH: tl.constexpr, DROPS: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    at = tl.arange(0, WIDTH)
    inside = at < width
    places = row.to(tl.int64) * width + at
    added = tl.load(y + places, mask=inside, other=0.0).to(tl.float32)
    added += tl.load(y_bias + at, mask=inside, other=0.0).to(tl.float32)
    if DROPS:
        added = _dropped(added, row, seed, dropout, WIDTH, ROUNDS)
    sum_of_both = tl.load(x + places, mask=inside, other=0.0).to(tl.float32) + added
    rounded = sum_of_both.to(z.dtype.element_ty)
    tl.store(z + places, rounded, mask=inside)
    value = rounded.to(tl.float32)  # as the pass backwards will read it
    mean = tl.sum(value, 0) / width
    centred = tl.where(inside, value - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, 0) / width + eps)
    scaled_by = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    moved_by = tl.load(bias + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(normed + places, (centred * scale * scaled_by + moved_by).to(normed.dtype.element_ty), mask=inside)
    tl.store(moments + row * 2, mean)
    tl.store(moments + row * 2 + 1, scale)


@triton.jit
def _backward(
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
    scaled_by = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    for row in tl.range(program, num_rows, num_programs, num_stages=STAGES):
        places = tl.full((), 1, tl.int64) * row * width + at
        mean, scale = tl.load(moments + row * 2), tl.load(moments + row * 2 + 1)
        hat = (tl.load(z + places, mask=inside, other=0.0).to(tl.float32) - mean) * scale
        from_norm = tl.load(normed_gradient + places, mask=inside, other=0.0).to(tl.float32)
        weight_sum += from_norm * hat
        bias_sum += from_norm
        scaled = from_norm * scaled_by
        along, common = tl.reduce((scaled * hat, scaled), 0, _both_added)
        gradient = (scaled - (common + hat * along) * (1 / width)) * scale
        if HAS_STREAM:
            gradient += tl.load(z_gradient + places, mask=inside, other=0.0).to(tl.float32)
        tl.store(x_gradient + places, gradient.to(x_gradient.dtype.element_ty), mask=inside)
        if DROPS:
            gradient = _dropped(gradient, row, seed, dropout, WIDTH, ROUNDS)
        if not IS_SAME:
            tl.store(y_gradient + places, gradient.to(y_gradient.dtype.element_ty), mask=inside)
        y_sum += gradient
    size = num_programs * width
    tl.store(sums + program * width + at, y_sum, mask=inside)
    tl.store(sums + size + program * width + at, weight_sum, mask=inside)
    tl.store(sums + 2 * size + program * width + at, bias_sum, mask=inside)
