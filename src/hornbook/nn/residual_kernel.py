"""The kernels of `residual.py`: all between two matrix products of a block, forwards and backwards in one pass each.

    z = x + dropout(y + y_bias)          normed = (z - mean) * scale * weight + bias

Four rows share a round of random numbers, which gives four. Backwards the same numbers are drawn again from the seed,
so no mask is kept. Sums over rows (gradients of `weight`, `bias` and `y_bias`) are taken on the way, a partial one by
each program, where a library's kernels would go through memory once more for each.

Imported only where there is CUDA, which brings `triton`. Shapes: T rows, D width, P programs.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from hornbook.nn.residual import has_one_gradient

COLUMNS_PER_WARP = 256
PROGRAMS_PER_PROCESSOR = 8  # of the pass backwards, whose programs keep sums over many rows
NUM_ROUNDS = 7  # of the generator (Philox4x32-7 passes the same tests as 10 rounds)


def forward(
    x_TD: Tensor,
    y_TD: Tensor,
    y_bias_D: Tensor,
    weight_D: Tensor | None,
    bias_D: Tensor | None,
    seed: Tensor | None,
    dropout: float,
    eps: float,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """z, what the norm makes of it, and mean and scale of its rows, T x 2; without a `weight_D` there is no norm."""
    num_rows, width = x_TD.shape
    z_TD = torch.empty_like(x_TD)
    has_norm = weight_D is not None
    normed_TD = torch.empty_like(y_TD) if has_norm else None
    moments_T2 = torch.empty(num_rows, 2, dtype=torch.float32, device=x_TD.device) if has_norm else None
    _forward[(triton.cdiv(num_rows, 4),)](
        x_TD, y_TD, y_bias_D, weight_D, bias_D, seed, z_TD, normed_TD, moments_T2, num_rows, width, eps, dropout,
        WIDTH=triton.next_power_of_2(width), HAS_NORM=has_norm, DROPS=dropout > 0, ROUNDS=NUM_ROUNDS,
        num_warps=_num_warps(width),
    )  # fmt: skip
    return z_TD, normed_TD, moments_T2


def backward(
    z_gradient_TD: Tensor | None,
    normed_gradient_TD: Tensor | None,
    z_TD: Tensor | None,
    moments_T2: Tensor | None,
    weight_D: Tensor | None,
    seed: Tensor | None,
    dropout: float,
    y_kind: torch.dtype,
) -> tuple[Tensor | None, Tensor | None, Tensor]:
    """The gradient of x, None where it is that of z; that of y, None where it is that of x; and sums over rows: the
    gradients of `y_bias` and, with a norm, of `weight` and `bias`, 3 x D or 1 x D."""
    like_TD = z_TD if z_TD is not None else z_gradient_TD
    num_rows, width = like_TD.shape
    has_norm = weight_D is not None
    x_gradient_TD = torch.empty_like(like_TD) if has_norm else None
    is_same = has_one_gradient(like_TD.dtype, y_kind, dropout)
    y_gradient_TD = None if is_same else torch.empty_like(like_TD, dtype=y_kind)
    num_groups = triton.cdiv(num_rows, 4)
    num_programs = min(num_groups, PROGRAMS_PER_PROCESSOR * _num_processors(like_TD.device))
    sums_3PD = torch.empty(3 if has_norm else 1, num_programs, width, dtype=torch.float32, device=like_TD.device)
    _backward[(num_programs,)](
        z_gradient_TD, normed_gradient_TD, z_TD, moments_T2, weight_D, seed, x_gradient_TD, y_gradient_TD, sums_3PD,
        num_rows, width, num_groups, dropout,
        WIDTH=triton.next_power_of_2(width), HAS_STREAM=z_gradient_TD is not None, HAS_NORM=has_norm,
        DROPS=dropout > 0, IS_SAME=is_same, ROUNDS=NUM_ROUNDS, num_warps=_num_warps(width),
    )  # fmt: skip
    return x_gradient_TD, y_gradient_TD, sums_3PD.sum(1)


def _num_warps(width: int) -> int:
    return min(8, max(1, triton.next_power_of_2(width) // COLUMNS_PER_WARP))


def _num_processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


@triton.jit
def _dropped(value, number: tl.constexpr, bits_0, bits_1, bits_2, bits_3, dropout):
    """A row of four, by 32 random bits for each of its values; what is kept is larger by what is not."""
    if number == 0:
        bits = bits_0
    elif number == 1:
        bits = bits_1
    elif number == 2:
        bits = bits_2
    else:
        bits = bits_3
    is_kept = bits.to(tl.uint32, bitcast=True).to(tl.float32) >= dropout * 4294967296.0
    return tl.where(is_kept, value * (1 / (1 - dropout)), 0.0)


@triton.jit
def _forward(
    x, y, y_bias, weight, bias, seed, z, normed, moments, num_rows, width, eps, dropout,
    WIDTH: tl.constexpr, HAS_NORM: tl.constexpr, DROPS: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    group = tl.program_id(0)
    at = tl.arange(0, WIDTH)
    inside = at < width
    added_bias = tl.load(y_bias + at, mask=inside, other=0.0).to(tl.float32)
    if HAS_NORM:
        scaled_by = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
        moved_by = tl.load(bias + at, mask=inside, other=0.0).to(tl.float32)
    if DROPS:
        bits_0, bits_1, bits_2, bits_3 = tl.randint4x(tl.load(seed), group * WIDTH + at, ROUNDS)
    for number in tl.static_range(4):
        row = tl.full((), 4, tl.int64) * group + number
        live = at < tl.where(row < num_rows, width, 0)
        added = tl.load(y + row * width + at, mask=live, other=0.0).to(tl.float32) + added_bias
        if DROPS:
            added = _dropped(added, number, bits_0, bits_1, bits_2, bits_3, dropout)
        value = tl.load(x + row * width + at, mask=live, other=0.0).to(tl.float32) + added
        rounded = value.to(z.dtype.element_ty)
        tl.store(z + row * width + at, rounded, mask=live)
        if HAS_NORM:
            value = rounded.to(tl.float32)  # as the pass backwards will read it
            mean = tl.sum(tl.where(inside, value, 0.0), 0) / width
            centred = tl.where(inside, value - mean, 0.0)
            scale = 1 / tl.sqrt(tl.sum(centred * centred, 0) / width + eps)
            result = centred * scale * scaled_by + moved_by
            tl.store(normed + row * width + at, result.to(normed.dtype.element_ty), mask=live)
            tl.store(moments + row * 2, mean, mask=row < num_rows)
            tl.store(moments + row * 2 + 1, scale, mask=row < num_rows)


@triton.jit
def _backward(
    z_gradient, normed_gradient, z, moments, weight, seed, x_gradient, y_gradient, sums,
    num_rows, width, num_groups, dropout,
    WIDTH: tl.constexpr, HAS_STREAM: tl.constexpr, HAS_NORM: tl.constexpr, DROPS: tl.constexpr, IS_SAME: tl.constexpr,
    ROUNDS: tl.constexpr,
):  # fmt: skip
    program, num_programs = tl.program_id(0), tl.num_programs(0)
    at = tl.arange(0, WIDTH)
    inside = at < width
    y_sum = tl.zeros((WIDTH,), tl.float32)
    weight_sum = tl.zeros((WIDTH,), tl.float32)
    bias_sum = tl.zeros((WIDTH,), tl.float32)
    if HAS_NORM:
        scaled_by = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    for group in range(program, num_groups, num_programs):
        if DROPS:
            bits_0, bits_1, bits_2, bits_3 = tl.randint4x(tl.load(seed), group * WIDTH + at, ROUNDS)
        for number in tl.static_range(4):
            row = tl.full((), 4, tl.int64) * group + number
            live = at < tl.where(row < num_rows, width, 0)
            gradient = tl.zeros((WIDTH,), tl.float32)
            if HAS_NORM:
                mean = tl.load(moments + row * 2, mask=row < num_rows, other=0.0)
                scale = tl.load(moments + row * 2 + 1, mask=row < num_rows, other=0.0)
                value = tl.load(z + row * width + at, mask=live, other=0.0).to(tl.float32)
                hat = tl.where(live, (value - mean) * scale, 0.0)
                from_norm = tl.load(normed_gradient + row * width + at, mask=live, other=0.0).to(tl.float32)
                weight_sum += from_norm * hat
                bias_sum += from_norm
                scaled = from_norm * scaled_by
                along = tl.sum(scaled * hat, 0) / width
                common = tl.sum(scaled, 0) / width
                gradient = tl.where(live, (scaled - common - hat * along) * scale, 0.0)
            if HAS_STREAM:
                gradient += tl.load(z_gradient + row * width + at, mask=live, other=0.0).to(tl.float32)
            if HAS_NORM:
                tl.store(x_gradient + row * width + at, gradient.to(x_gradient.dtype.element_ty), mask=live)
            if DROPS:
                gradient = _dropped(gradient, number, bits_0, bits_1, bits_2, bits_3, dropout)
            if not IS_SAME:
                tl.store(y_gradient + row * width + at, gradient.to(y_gradient.dtype.element_ty), mask=live)
            y_sum += gradient
    size = num_programs * width
    tl.store(sums + program * width + at, y_sum, mask=inside)
    if HAS_NORM:
        tl.store(sums + size + program * width + at, weight_sum, mask=inside)
        tl.store(sums + 2 * size + program * width + at, bias_sum, mask=inside)
