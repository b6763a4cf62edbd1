"""The kernels of `vocabulary_loss.py`: cross-entropy over a row of scores, then the gradient written over the scores.

A row of 50,257 scores in half precision is 100 KB. It is read once for its sum and once more, from the cache, for the
gradient, which is written where the scores were: two passes over memory, where a loss and its way back take five.

Imported only where there is CUDA, which brings `triton`.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK, NUM_WARPS, NUM_STAGES = 2048, 8, 3
SCALED_BLOCK = 4096
LOWEST = tl.constexpr(-1e30)  # below any score, and a number, so that differences are numbers


def overwrite_with_gradient(scores_KV: Tensor, values_K: Tensor, weights_K: Tensor, vocab_size: int) -> Tensor:
    """weight x cross-entropy of each row, K; then `scores_KV` hold its gradient. Columns from `vocab_size` on are no
    tokens: they count for nothing and their gradient is 0."""
    losses_K = torch.empty(len(scores_KV), dtype=torch.float32, device=scores_KV.device)
    _overwrite[(len(scores_KV),)](
        scores_KV,
        values_K,
        weights_K,
        losses_K,
        scores_KV.stride(0),
        vocab_size,
        scores_KV.shape[1],
        BLOCK=BLOCK,
        STAGES=NUM_STAGES,
        num_warps=NUM_WARPS,
    )
    return losses_K


def scaled(gradient: Tensor, by: Tensor, kind: torch.dtype) -> Tensor:
    """gradient x by, a single number on the device, in float32 and in one pass."""
    out = torch.empty_like(gradient, dtype=kind)
    _scaled[(triton.cdiv(out.numel(), SCALED_BLOCK),)](gradient, by, out, out.numel(), BLOCK=SCALED_BLOCK)
    return out


@triton.jit
def _scaled(gradient, by, out, size, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    product = tl.load(gradient + at, mask=at < size, other=0.0).to(tl.float32) * tl.load(by).to(tl.float32)
    tl.store(out + at, product.to(out.dtype.element_ty), mask=at < size)


@triton.jit
def _scores(scores, at, vocab_size, padded_size):
    """Those of some tokens, minus infinity behind the last. The padded size is a multiple of what a thread loads at once;
    a mask by the true one would make it load its numbers one by one."""
    loaded = tl.load(scores + at, mask=at < padded_size, other=0.0).to(tl.float32)
    return tl.where(at < vocab_size, loaded, float("-inf"))


@triton.jit
def _overwrite(
    scores, values, weights, losses, row_stride, vocab_size, padded_size, BLOCK: tl.constexpr, STAGES: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    scores += row * row_stride
    value = tl.load(values + row)
    weight = tl.load(weights + row)
    own = tl.load(scores + value).to(tl.float32)
    # Each place of a block has a maximum and a sum of its own until the end: threads wait for each other once in a row.
    tops = tl.full((BLOCK,), LOWEST, tl.float32)
    totals = tl.zeros((BLOCK,), tl.float32)  # of exp(score - top)
    for start in tl.range(0, vocab_size, BLOCK, num_stages=STAGES):
        at = start + tl.arange(0, BLOCK)
        score = _scores(scores, at, vocab_size, padded_size)
        higher = tl.maximum(tops, score)
        totals = totals * tl.exp(tops - higher) + tl.exp(score - higher)
        tops = higher
    top = tl.max(tops, 0)
    log_total = top + tl.log(tl.sum(totals * tl.exp(tops - top), 0))
    tl.store(losses + row, (log_total - own) * weight)
    for start in tl.range(0, padded_size, BLOCK, num_stages=STAGES):
        at = start + tl.arange(0, BLOCK)
        score = _scores(scores, at, vocab_size, padded_size)
        gradient = (tl.exp(score - log_total) - tl.where(at == value, 1.0, 0.0)) * weight
        tl.store(scores + at, gradient.to(scores.dtype.element_ty), mask=at < padded_size)
