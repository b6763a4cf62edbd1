"""The loss over a vocabulary, fused with the matrix product before it, for models that predict every token; and the
unigram baseline that any useful model must beat.

    logits = x W'        loss = sum over rows of weight x cross-entropy(logits, value)

Computed separately, the logits of 32,768 tokens over a vocabulary of 50,257 take 3.3 GB, and so do the
log-probabilities and their gradient, each with its own passes over memory. In `fused_loss` the rows are processed in
chunks of PART_ROWS: the logits of a chunk are overwritten by their gradient, from which the gradients of `x` and `W`
are computed immediately. Only those are saved for the backward pass.

Shapes: K rows, P rows of a chunk, D width, V vocabulary (padded).
"""

import numpy as np
import torch
from torch import Tensor

from hornbook.batch import Batch
from hornbook.nn import kernels
from hornbook.train.objective import Objective
from hornbook.train.randomness import seed_of

PART_ROWS = 32_768
TOKEN_TERMS = ("mlm", "clm")  # terms whose targets are tokens


def can_fuse_loss(x_KD: Tensor) -> bool:
    return len(x_KD) > 0 and kernels.use_triton(x_KD)


def fused_loss(x_KD: Tensor, matrix_VD: Tensor, values_K: Tensor, weights_K: Tensor, vocab_size: int) -> Tensor:
    """The loss summed over the rows, differentiable in `x_KD` and `matrix_VD`. Rows of the matrix from `vocab_size` on
    are padding."""
    dtype = torch.get_autocast_dtype("cuda")
    return _FusedLoss.apply(x_KD.to(dtype), matrix_VD, values_K, weights_K, vocab_size)


class _FusedLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x_KD: Tensor, matrix_VD: Tensor, values_K: Tensor, weights_K: Tensor, vocab_size: int) -> Tensor:
        from hornbook.nn.kernels.losses import overwrite_with_gradient

        rounded_VD = matrix_VD.to(x_KD.dtype)
        x_gradient_KD = torch.empty_like(x_KD)
        gradient_VD = None
        losses = []
        for start in range(0, len(x_KD), PART_ROWS):
            part = slice(start, start + PART_ROWS)
            logits_PV = x_KD[part] @ rounded_VD.mT
            losses.append(overwrite_with_gradient(logits_PV, values_K[part], weights_K[part], vocab_size).sum())
            torch.mm(logits_PV, rounded_VD, out=x_gradient_KD[part])
            part_gradient_VD = logits_PV.mT @ x_KD[part]
            del logits_PV  # before those of the next chunk are allocated
            gradient_VD = part_gradient_VD if gradient_VD is None else gradient_VD.float().add_(part_gradient_VD)
        ctx.save_for_backward(x_gradient_KD, gradient_VD)
        ctx.matrix_dtype = matrix_VD.dtype
        return torch.stack(losses).sum()

    @staticmethod
    def backward(ctx, outer: Tensor) -> tuple[Tensor | None, ...]:
        from hornbook.nn.kernels.losses import scaled

        x_gradient_KD, gradient_VD = ctx.saved_tensors
        x_gradient_KD = scaled(x_gradient_KD, outer, x_gradient_KD.dtype)
        return x_gradient_KD, scaled(gradient_VD, outer, ctx.matrix_dtype), None, None, None


def unigram_baseline(objective: Objective, held_out: list[Batch], token_counts: np.ndarray) -> dict[str, float]:
    """Loss and accuracy on the validation targets if every token is predicted with its relative frequency.

    Returns `{"mlm": ..., "mlm_accuracy": ...}`, the same for `clm`, or both: loss = - mean log (count + 1) / (total +
    vocabulary); the accuracy is that of always predicting the most frequent token.
    """
    counts = token_counts.astype(np.float64) + 1
    log_probabilities = np.log(counts / counts.sum())
    most_frequent = int(token_counts.argmax())
    sums: dict[str, np.ndarray] = {}  # of losses, hits and weights
    for i, batch in enumerate(held_out):
        for term, targets in objective.prepare(batch, seed_of("validation", i)).targets.items():
            if term in TOKEN_TERMS:
                values, weights = targets.values_K.cpu().numpy(), targets.weights_K.cpu().numpy()
                rows = np.stack([-log_probabilities[values], values == most_frequent, np.ones(len(values))])
                sums[term] = sums.get(term, 0.0) + rows @ weights.astype(np.float64)
    metrics = {}
    for term, (loss, hits, total) in sums.items():
        metrics |= {term: float(loss / max(total, 1)), f"{term}_accuracy": float(hits / max(total, 1))}
    return metrics
