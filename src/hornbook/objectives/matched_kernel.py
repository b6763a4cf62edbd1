"""The kernels of `matched_losses.py` for squared differences: of vectors, and of products of queries, keys or values.

Written out, the scores of attention are N x H x S x S numbers of each side, and a dozen passes over them; here they
exist a tile at a time, and each tile gives its part of the loss and of the gradient at once. A program takes some
tokens of one sequence and one head, once as those that look and once as those that are looked at, so that nothing is
added up between programs and every run gives the same bits.

Imported only where there is CUDA, which brings `triton`. Shapes: T tokens, N sequences, H heads, C width of a head,
D width, B tiles of the longest sequence.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

COLUMNS_PER_WARP, MOST_WARPS = 512, 8
TILE, TILE_OF_WIDE, WIDE = 64, 32, 64  # tokens of a tile; with heads that are wider, fewer
DIRECTIONS = {"both": 0, "left": 1, "right": 2}


def squared_vector_error(ours_TD: Tensor, theirs_TD: Tensor, weights_T: Tensor) -> tuple[Tensor, Tensor]:
    """Sum of weight x mean((ours - theirs)^2) over vectors, and the gradient of ours."""
    num_rows, width = ours_TD.shape
    losses_T = torch.empty(num_rows, dtype=torch.float32, device=ours_TD.device)
    gradient_TD = torch.empty_like(ours_TD)
    room = max(16, triton.next_power_of_2(width))
    _squared_vector_error[(num_rows,)](
        ours_TD, theirs_TD, weights_T, losses_T, gradient_TD, width,
        WIDTH=room, num_warps=min(MOST_WARPS, max(1, room // COLUMNS_PER_WARP)),
    )  # fmt: skip
    return losses_T.sum(), gradient_TD


def squared_relation_error(
    ours_T3HC: Tensor,
    theirs_T3HC: Tensor,
    weights_T: Tensor,
    starts: Tensor,
    longest: int,
    sides: tuple[int, int],
    direction: str,
) -> tuple[Tensor, Tensor]:
    """Sum of weight x mean((ours - theirs)^2) over tokens, where the mean is over heads and the tokens looked at and
    each side is the product of the first and the second of queries, keys and values / sqrt(C); and the gradient of
    ours."""
    _, _, num_heads, width = ours_T3HC.shape
    their_width, num_sequences = theirs_T3HC.shape[-1], len(starts) - 1
    room, their_room = (max(16, triton.next_power_of_2(each)) for each in (width, their_width))
    tile = TILE if max(room, their_room) <= WIDE else TILE_OF_WIDE
    num_tiles = triton.cdiv(longest, tile)
    losses_NHB = torch.empty(num_sequences, num_heads, num_tiles, dtype=torch.float32, device=ours_T3HC.device)
    gradient_T3HC = torch.zeros_like(ours_T3HC)
    _squared_relation_error[(num_tiles, num_heads, num_sequences)](
        ours_T3HC, theirs_T3HC, weights_T, starts, losses_NHB, gradient_T3HC, num_heads, width, their_width,
        width**-0.5, their_width**-0.5,
        FIRST=sides[0], SECOND=sides[1], DIRECTION=DIRECTIONS[direction], TILE=tile, WIDTH=room, THEIR_WIDTH=their_room,
        num_warps=4,
    )  # fmt: skip
    return losses_NHB.sum(), gradient_T3HC


@triton.jit
def _squared_vector_error(ours, theirs, weights, losses, gradient, width, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, WIDTH)
    inside = at < width
    places = row.to(tl.int64) * width + at
    apart = tl.load(ours + places, mask=inside, other=0.0).to(tl.float32)
    apart -= tl.load(theirs + places, mask=inside, other=0.0).to(tl.float32)
    share = tl.load(weights + row).to(tl.float32) / width
    tl.store(losses + row, share * tl.sum(apart * apart, 0))
    tl.store(gradient + places, (2 * share * apart).to(gradient.dtype.element_ty), mask=inside)


@triton.jit
def _tile(of, tokens, length, begin, part, head, num_heads, width, WIDTH: tl.constexpr):
    """Some tokens' queries, keys or values of one head."""
    at = tl.arange(0, WIDTH)
    places = ((begin + tokens).to(tl.int64) * 3 + part)[:, None] * num_heads * width + head * width + at[None, :]
    return tl.load(of + places, mask=(tokens < length)[:, None] & (at < width)[None, :], other=0.0)


@triton.jit
def _share(weights, tokens, length, begin, num_heads, DIRECTION: tl.constexpr):
    """How much each product of a token that looks counts."""
    if DIRECTION == 0:
        num_seen = tokens * 0 + length
    elif DIRECTION == 1:
        num_seen = tokens + 1
    else:
        num_seen = length - tokens
    weight = tl.load(weights + begin + tokens, mask=tokens < length, other=0.0).to(tl.float32)
    return tl.where(tokens < length, weight / (num_heads * num_seen), 0.0)


@triton.jit
def _is_seen(looking, looked_at, length, DIRECTION: tl.constexpr):
    seen = (looking < length) & (looked_at < length)
    if DIRECTION == 1:
        seen = seen & (looked_at <= looking)
    elif DIRECTION == 2:
        seen = seen & (looked_at >= looking)
    return seen


@triton.jit
def _squared_relation_error(
    ours, theirs, weights, starts, losses, gradient, num_heads, width, their_width, scale, their_scale,
    FIRST: tl.constexpr, SECOND: tl.constexpr, DIRECTION: tl.constexpr,
    TILE: tl.constexpr, WIDTH: tl.constexpr, THEIR_WIDTH: tl.constexpr,
):  # fmt: skip
    tile, head, sequence = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    begin = tl.load(starts + sequence)
    length = tl.load(starts + sequence + 1) - begin
    loss = 0.0
    if tile * TILE < length:
        here = tile * TILE + tl.arange(0, TILE)
        kind = ours.dtype.element_ty
        x_here = _tile(ours, here, length, begin, FIRST, head, num_heads, width, WIDTH)
        y_here = _tile(ours, here, length, begin, SECOND, head, num_heads, width, WIDTH)
        their_x_here = _tile(theirs, here, length, begin, FIRST, head, num_heads, their_width, THEIR_WIDTH)
        their_y_here = _tile(theirs, here, length, begin, SECOND, head, num_heads, their_width, THEIR_WIDTH)
        share_here = _share(weights, here, length, begin, num_heads, DIRECTION)
        x_gradient = tl.zeros((TILE, WIDTH), tl.float32)
        y_gradient = tl.zeros((TILE, WIDTH), tl.float32)
        for start in range(0, length, TILE):
            there = start + tl.arange(0, TILE)
            x_there = _tile(ours, there, length, begin, FIRST, head, num_heads, width, WIDTH)
            y_there = _tile(ours, there, length, begin, SECOND, head, num_heads, width, WIDTH)
            their_x = _tile(theirs, there, length, begin, FIRST, head, num_heads, their_width, THEIR_WIDTH)
            their_y = _tile(theirs, there, length, begin, SECOND, head, num_heads, their_width, THEIR_WIDTH)
            # these tokens look
            apart = tl.dot(x_here, tl.trans(y_there)) * scale - tl.dot(their_x_here, tl.trans(their_y)) * their_scale
            apart = tl.where(_is_seen(here[:, None], there[None, :], length, DIRECTION), apart, 0.0)
            shared = apart * share_here[:, None]
            loss += tl.sum(shared * apart)
            x_gradient += tl.dot(shared.to(kind), y_there)
            # these tokens are looked at
            apart = tl.dot(y_here, tl.trans(x_there)) * scale - tl.dot(their_y_here, tl.trans(their_x)) * their_scale
            apart = tl.where(_is_seen(there[None, :], here[:, None], length, DIRECTION), apart, 0.0)
            share_there = _share(weights, there, length, begin, num_heads, DIRECTION)
            y_gradient += tl.dot((apart * share_there[None, :]).to(kind), x_there)
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
