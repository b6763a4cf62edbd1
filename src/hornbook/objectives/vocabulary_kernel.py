"""The kernel of `vocabulary_loss.py`: cross-entropy over a row of scores, then the gradient written over the scores.

A row of 50,257 scores in half precision is 100 KB. It is read once for its sum and once more, from the cache, for the
gradient, which is written where the scores were: two passes over memory, where a loss and its way back take five.

Imported only where there is CUDA, which brings `triton`.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK, NUM_WARPS = 4096, 8


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
        num_warps=NUM_WARPS,
    )
    return losses_K


@triton.jit
def _overwrite(scores, values, weights, losses, row_stride, vocab_size, padded_size, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    scores += row * row_stride
    value = tl.load(values + row)
    weight = tl.load(weights + row)
    top = float("-inf")
    total = 0.0  # of exp(score - top)
    own = 0.0  # the score of the value; summed up and not loaded, as another thread may have overwritten it by then
    for start in range(0, vocab_size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        score = tl.load(scores + at, mask=at < vocab_size, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(score, 0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(score - higher), 0)
        own += tl.sum(tl.where(at == value, score, 0.0), 0)
        top = higher
    log_total = top + tl.log(total)
    tl.store(losses + row, (log_total - own) * weight)
    for start in range(0, padded_size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        score = tl.load(scores + at, mask=at < vocab_size, other=float("-inf")).to(tl.float32)
        gradient = (tl.exp(score - log_total) - tl.where(at == value, 1.0, 0.0)) * weight
        tl.store(scores + at, gradient.to(scores.dtype.element_ty), mask=at < padded_size)
