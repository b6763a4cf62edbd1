"""Triton kernels of losses that compute their gradient in the forward pass, so that the backward pass only scales it.

The cross-entropy of rows of logits (`objectives/vocabulary_loss.py`) overwrites them by the gradient. A row of 50,257
logits in half precision is 100 KB. It is read once for its sum and again, from the cache, for the gradient: two passes
over memory, where a separate loss and its backward pass take five.

Squared errors of vectors, and of products of queries, keys or values (`objectives/distillation/losses.py`): in plain
PyTorch the attention scores are N x H x S x S numbers per model, with a dozen passes over them; here they exist one
tile at a time, and each tile contributes to loss and gradient at once. A program processes a tile of tokens of one
sequence and one head twice, as attending tokens and as attended tokens, so that nothing is summed across programs and
the result is deterministic.

Imported only on CUDA, where Triton is available. Shapes: K rows of V logits, T tokens, N sequences, H heads, C head
width, D width, B tiles of the longest sequence.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

SCALED_BLOCK = 4096
BLOCK, EACH, NUM_WARPS = 8192, 8, 16  # of the cross-entropy
LOWEST = tl.constexpr(-1e30)  # below any logit but finite, so that differences are not NaN
LOG2_E = tl.constexpr(1.4426950408889634)
COLUMNS_PER_WARP, MAX_WARPS = 512, 8  # of squared errors
TILE, TILE_OF_WIDE, WIDE = 64, 32, 64  # tokens per tile; fewer if heads are wider than WIDE


def scaled(gradient: Tensor, by: Tensor, dtype: torch.dtype) -> Tensor:
    """gradient x by (a scalar tensor on the device), computed in float32 in one pass and returned as `dtype`."""
    out = torch.empty_like(gradient, dtype=dtype)
    _scaled[(triton.cdiv(out.numel(), SCALED_BLOCK),)](gradient, by, out, out.numel(), BLOCK=SCALED_BLOCK)
    return out


@triton.jit
def _scaled(gradient, by, out, size, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    product = tl.load(gradient + at, mask=at < size, other=0.0).to(tl.float32) * tl.load(by).to(tl.float32)
    tl.store(out + at, product.to(out.dtype.element_ty), mask=at < size)


def overwrite_with_gradient(logits_KV: Tensor, values_K: Tensor, weights_K: Tensor, vocab_size: int) -> Tensor:
    """Returns weight x cross-entropy of each row, K, and overwrites the logits by its gradient. Columns from
    `vocab_size` on are padding: they are ignored, and their gradient is 0."""
    losses_K = torch.empty(len(logits_KV), dtype=torch.float32, device=logits_KV.device)
    _overwrite[(len(logits_KV),)](
        logits_KV, values_K, weights_K, losses_K, logits_KV.stride(0), vocab_size, logits_KV.shape[1],
        BLOCK=BLOCK, EACH=EACH, num_warps=NUM_WARPS,
    )  # fmt: skip
    return losses_K


@triton.jit
def _exp(score, minus):
    """e^score / 2^minus, by one multiply-add and the hardware's exp2."""
    return tl.exp2(score * LOG2_E - minus)


@triton.jit
def _overwrite(
    logits, values, weights, losses, row_stride, vocab_size, padded_size, BLOCK: tl.constexpr, EACH: tl.constexpr
):  # fmt: skip
    """Each group of `EACH` columns, held by one thread, keeps its own maximum and sum until the end: threads
    synchronise once per row, and exp is computed little more than twice per logit."""
    row = tl.program_id(0).to(tl.int64)
    logits += row * row_stride
    value = tl.load(values + row)
    weight = tl.load(weights + row)
    own = tl.load(logits + value).to(tl.float32)
    places = tl.arange(0, BLOCK // EACH)[:, None] * EACH + tl.arange(0, EACH)[None, :]
    whole = vocab_size // BLOCK * BLOCK
    # The last block first: only it has padding columns.
    rest = whole + places
    is_token = rest < vocab_size
    loaded = tl.load(logits + rest, mask=rest < padded_size, other=0.0).to(tl.float32)
    tops = tl.max(tl.where(is_token, loaded, LOWEST), 1)
    totals = tl.sum(tl.where(is_token, _exp(loaded, tops[:, None] * LOG2_E), 0.0), 1)
    for start in range(0, whole, BLOCK):
        logit = tl.load(logits + start + places).to(tl.float32)
        higher = tl.maximum(tops, tl.max(logit, 1))
        totals = totals * _exp(tops, higher * LOG2_E) + tl.sum(_exp(logit, higher[:, None] * LOG2_E), 1)
        tops = higher
    top = tl.max(tops, 0)
    log_total = top + tl.log(tl.sum(totals * _exp(tops, top * LOG2_E), 0))
    tl.store(losses + row, (log_total - own) * weight)
    minus = log_total * LOG2_E
    for start in range(0, whole, BLOCK):
        logit = tl.load(logits + start + places).to(tl.float32)
        tl.store(logits + start + places, (_exp(logit, minus) * weight).to(logits.dtype.element_ty))
    loaded = tl.load(logits + rest, mask=rest < padded_size, other=0.0).to(tl.float32)
    gradient = tl.where(is_token, _exp(loaded, minus) * weight, 0.0)
    tl.store(logits + rest, gradient.to(logits.dtype.element_ty), mask=rest < padded_size)
    tl.debug_barrier()  # before one thread overwrites what another wrote
    tl.store(logits + value, ((_exp(own, minus) - 1) * weight).to(logits.dtype.element_ty))


def squared_vector_error(student_TD: Tensor, teacher_TD: Tensor, weights_T: Tensor) -> tuple[Tensor, Tensor]:
    """Sum of weight x mean((student - teacher)^2) over vectors, and its gradient with respect to `student_TD`."""
    num_rows, width = student_TD.shape
    losses_T = torch.empty(num_rows, dtype=torch.float32, device=student_TD.device)
    gradient_TD = torch.empty_like(student_TD)
    padded_width = max(16, triton.next_power_of_2(width))
    _squared_vector_error[(num_rows,)](
        student_TD, teacher_TD, weights_T, losses_T, gradient_TD, width,
        WIDTH=padded_width, num_warps=min(MAX_WARPS, max(1, padded_width // COLUMNS_PER_WARP)),
    )  # fmt: skip
    return losses_T.sum(), gradient_TD


def squared_relation_error(
    student_T3HC: Tensor,
    teacher_T3HC: Tensor,
    weights_T: Tensor,
    offsets: Tensor,
    max_length: int,
    sides: tuple[int, int],
    direction: str,
) -> tuple[Tensor, Tensor]:
    """Sum of weight x mean((student - teacher)^2) over tokens, where the mean is over heads and attended tokens, and
    both are the products of the two factors `sides` (queries, keys or values) / sqrt(C); and its gradient with respect
    to `student_T3HC`."""
    _, _, num_heads, width = student_T3HC.shape
    teacher_width, num_sequences = teacher_T3HC.shape[-1], len(offsets) - 1
    padded_width, teacher_padded_width = (max(16, triton.next_power_of_2(each)) for each in (width, teacher_width))
    tile = TILE if max(padded_width, teacher_padded_width) <= WIDE else TILE_OF_WIDE
    num_tiles = triton.cdiv(max_length, tile)
    losses_NHB = torch.empty(num_sequences, num_heads, num_tiles, dtype=torch.float32, device=student_T3HC.device)
    gradient_T3HC = torch.zeros_like(student_T3HC)
    _squared_relation_error[(num_tiles, num_heads, num_sequences)](
        student_T3HC, teacher_T3HC, weights_T, offsets, losses_NHB, gradient_T3HC, num_heads, width, teacher_width,
        width**-0.5, teacher_width**-0.5,
        FIRST=sides[0], SECOND=sides[1], IS_CAUSAL=direction == "causal",
        TILE=tile, WIDTH=padded_width, TEACHER_WIDTH=teacher_padded_width, num_warps=4,
    )  # fmt: skip
    return losses_NHB.sum(), gradient_T3HC


@triton.jit
def _squared_vector_error(student, teacher, weights, losses, gradient, width, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, WIDTH)
    inside = at < width
    places = row.to(tl.int64) * width + at
    error = tl.load(student + places, mask=inside, other=0.0).to(tl.float32)
    error -= tl.load(teacher + places, mask=inside, other=0.0).to(tl.float32)
    share = tl.load(weights + row).to(tl.float32) / width
    tl.store(losses + row, share * tl.sum(error * error, 0))
    tl.store(gradient + places, (2 * share * error).to(gradient.dtype.element_ty), mask=inside)


@triton.jit
def _tile(of, tokens, length, begin, part, head, num_heads, width, WIDTH: tl.constexpr):
    """The queries, keys or values of one head for a tile of tokens."""
    at = tl.arange(0, WIDTH)
    places = ((begin + tokens).to(tl.int64) * 3 + part)[:, None] * num_heads * width + head * width + at[None, :]
    return tl.load(of + places, mask=(tokens < length)[:, None] & (at < width)[None, :], other=0.0)


@triton.jit
def _share(weights, tokens, length, begin, num_heads, IS_CAUSAL: tl.constexpr):
    """The weight of each product of an attending token."""
    if IS_CAUSAL:
        num_attended = tokens + 1
    else:
        num_attended = tokens * 0 + length
    weight = tl.load(weights + begin + tokens, mask=tokens < length, other=0.0).to(tl.float32)
    return tl.where(tokens < length, weight / (num_heads * num_attended), 0.0)


@triton.jit
def _mask(attending, attended, length, IS_CAUSAL: tl.constexpr):
    mask = (attending < length) & (attended < length)
    if IS_CAUSAL:
        mask = mask & (attended <= attending)
    return mask


@triton.jit
def _squared_relation_error(
    student, teacher, weights, offsets, losses, gradient, num_heads, width, teacher_width, scale, teacher_scale,
    FIRST: tl.constexpr, SECOND: tl.constexpr, IS_CAUSAL: tl.constexpr,
    TILE: tl.constexpr, WIDTH: tl.constexpr, TEACHER_WIDTH: tl.constexpr,
):  # fmt: skip
    tile, head, sequence = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    begin = tl.load(offsets + sequence)
    length = tl.load(offsets + sequence + 1) - begin
    loss = 0.0
    if tile * TILE < length:
        here = tile * TILE + tl.arange(0, TILE)
        kind = student.dtype.element_ty
        x_here = _tile(student, here, length, begin, FIRST, head, num_heads, width, WIDTH)
        y_here = _tile(student, here, length, begin, SECOND, head, num_heads, width, WIDTH)
        teacher_x_here = _tile(teacher, here, length, begin, FIRST, head, num_heads, teacher_width, TEACHER_WIDTH)
        teacher_y_here = _tile(teacher, here, length, begin, SECOND, head, num_heads, teacher_width, TEACHER_WIDTH)
        share_here = _share(weights, here, length, begin, num_heads, IS_CAUSAL)
        x_gradient = tl.zeros((TILE, WIDTH), tl.float32)
        y_gradient = tl.zeros((TILE, WIDTH), tl.float32)
        for start in range(0, length, TILE):
            there = start + tl.arange(0, TILE)
            x_there = _tile(student, there, length, begin, FIRST, head, num_heads, width, WIDTH)
            y_there = _tile(student, there, length, begin, SECOND, head, num_heads, width, WIDTH)
            teacher_x = _tile(teacher, there, length, begin, FIRST, head, num_heads, teacher_width, TEACHER_WIDTH)
            teacher_y = _tile(teacher, there, length, begin, SECOND, head, num_heads, teacher_width, TEACHER_WIDTH)
            # this tile attends
            error = (
                tl.dot(x_here, tl.trans(y_there)) * scale - tl.dot(teacher_x_here, tl.trans(teacher_y)) * teacher_scale
            )
            error = tl.where(_mask(here[:, None], there[None, :], length, IS_CAUSAL), error, 0.0)
            shared = error * share_here[:, None]
            loss += tl.sum(shared * error)
            x_gradient += tl.dot(shared.to(kind), y_there)
            # this tile is attended to
            error = (
                tl.dot(y_here, tl.trans(x_there)) * scale - tl.dot(teacher_y_here, tl.trans(teacher_x)) * teacher_scale
            )
            error = tl.where(_mask(there[None, :], here[:, None], length, IS_CAUSAL), error, 0.0)
            share_there = _share(weights, there, length, begin, num_heads, IS_CAUSAL)
            y_gradient += tl.dot((error * share_there[None, :]).to(kind), x_there)
        at = tl.arange(0, WIDTH)
        inside = (here < length)[:, None] & (at < width)[None, :]
        places = ((begin + here).to(tl.int64) * 3)[:, None] * num_heads * width + head * width + at[None, :]
        if FIRST == SECOND:
            x_gradient += y_gradient
        else:
            to_second = gradient + places + SECOND * num_heads * width
            tl.store(to_second, (2 * scale * y_gradient).to(kind), mask=inside)
        tl.store(gradient + places + FIRST * num_heads * width, (2 * scale * x_gradient).to(kind), mask=inside)
    tl.store(losses + (sequence * num_heads + head) * tl.num_programs(0) + tile, loss)
