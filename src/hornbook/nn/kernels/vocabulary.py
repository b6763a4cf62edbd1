"""Triton kernel of `vocabulary_loss.py`: cross-entropy of each row of logits, then overwrites them by the gradient.

A row of 50,257 logits in half precision is 100 KB. It is read once for its sum and again, from the cache, for the
gradient, which replaces the logits: two passes over memory, where a separate loss and its backward pass take five.

Imported only on CUDA, where Triton is available.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK, EACH, NUM_WARPS = 8192, 8, 16
LOWEST = tl.constexpr(-1e30)  # below any logit but finite, so that differences are not NaN
LOG2_E = tl.constexpr(1.4426950408889634)


def overwrite_with_gradient(logits_KV: Tensor, values_K: Tensor, weights_K: Tensor, vocab_size: int) -> Tensor:
    """Returns weight x cross-entropy of each row, K, and overwrites the logits by its gradient. Columns from
    `vocab_size` on are padding: they are ignored, and their gradient is 0."""
    losses_K = torch.empty(len(logits_KV), dtype=torch.float32, device=logits_KV.device)
    _overwrite[(len(logits_KV),)](
        logits_KV,
        values_K,
        weights_K,
        losses_K,
        logits_KV.stride(0),
        vocab_size,
        logits_KV.shape[1],
        BLOCK=BLOCK,
        EACH=EACH,
        num_warps=NUM_WARPS,
    )
    return losses_K


@triton.jit
def _exp(score, minus):
    """e^score / 2^minus, by one multiply-add and the hardware's exp2."""
    return tl.exp2(score * LOG2_E - minus)


@triton.jit
def _overwrite(
    scores, values, weights, losses, row_stride, vocab_size, padded_size, BLOCK: tl.constexpr, EACH: tl.constexpr
):  # fmt: skip
    """Each group of `EACH` columns, held by one thread, keeps its own maximum and sum until the end: threads
    synchronise once per row, and exp is computed little more than twice per logit."""
    row = tl.program_id(0).to(tl.int64)
    scores += row * row_stride
    value = tl.load(values + row)
    weight = tl.load(weights + row)
    own = tl.load(scores + value).to(tl.float32)
    places = tl.arange(0, BLOCK // EACH)[:, None] * EACH + tl.arange(0, EACH)[None, :]
    whole = vocab_size // BLOCK * BLOCK
    # The last block first: only it has padding columns.
    rest = whole + places
    is_token = rest < vocab_size
    loaded = tl.load(scores + rest, mask=rest < padded_size, other=0.0).to(tl.float32)
    tops = tl.max(tl.where(is_token, loaded, LOWEST), 1)
    totals = tl.sum(tl.where(is_token, _exp(loaded, tops[:, None] * LOG2_E), 0.0), 1)
    for start in range(0, whole, BLOCK):
        score = tl.load(scores + start + places).to(tl.float32)
        higher = tl.maximum(tops, tl.max(score, 1))
        totals = totals * _exp(tops, higher * LOG2_E) + tl.sum(_exp(score, higher[:, None] * LOG2_E), 1)
        tops = higher
    top = tl.max(tops, 0)
    log_total = top + tl.log(tl.sum(totals * _exp(tops, top * LOG2_E), 0))
    tl.store(losses + row, (log_total - own) * weight)
    minus = log_total * LOG2_E
    for start in range(0, whole, BLOCK):
        score = tl.load(scores + start + places).to(tl.float32)
        tl.store(scores + start + places, (_exp(score, minus) * weight).to(scores.dtype.element_ty))
    loaded = tl.load(scores + rest, mask=rest < padded_size, other=0.0).to(tl.float32)
    gradient = tl.where(is_token, _exp(loaded, minus) * weight, 0.0)
    tl.store(scores + rest, gradient.to(scores.dtype.element_ty), mask=rest < padded_size)
    tl.debug_barrier()  # before one thread overwrites what another wrote
    tl.store(scores + value, ((_exp(own, minus) - 1) * weight).to(scores.dtype.element_ty))
