"""The loss over a large vocabulary together with the matrix product before it, for models that predict every token.

    scores = x W'        loss = sum over rows of weight x cross-entropy(scores, value)

Done apart, the scores of 32,768 tokens over 50,257 take 3.3 GB, and so do the loss's own values and their gradient, and
memory is gone through for each. Here rows go in parts of so many; the scores of a part become their own gradient in
place, and the gradients of `x` and `W` are made of it at once. What is kept for the way back is these.

Shapes: K rows, D width, V vocabulary (padded).
"""

import torch
from torch import Tensor

from hornbook import kernels

PART_ROWS = 32_768


def is_fused(x_KD: Tensor) -> bool:
    """Whether `fused_loss` can run."""
    return len(x_KD) > 0 and kernels.use_triton(x_KD)


def fused_loss(x_KD: Tensor, matrix_VD: Tensor, values_K: Tensor, weights_K: Tensor, vocab_size: int) -> Tensor:
    """The summed loss, for the way back too; rows of the matrix from `vocab_size` on are no tokens."""
    kind = torch.get_autocast_dtype("cuda")
    return _FusedLoss.apply(x_KD.to(kind), matrix_VD, values_K, weights_K, vocab_size)


class _FusedLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x_KD: Tensor, matrix_VD: Tensor, values_K: Tensor, weights_K: Tensor, vocab_size: int) -> Tensor:
        from hornbook.objectives.vocabulary_kernel import overwrite_with_gradient

        rounded_VD = matrix_VD.to(x_KD.dtype)
        x_gradient_KD = torch.empty_like(x_KD)
        gradient_VD = None
        losses = []
        for start in range(0, len(x_KD), PART_ROWS):
            part = slice(start, start + PART_ROWS)
            scores_PV = x_KD[part] @ rounded_VD.mT
            losses.append(overwrite_with_gradient(scores_PV, values_K[part], weights_K[part], vocab_size).sum())
            torch.mm(scores_PV, rounded_VD, out=x_gradient_KD[part])
            its_gradient_VD = scores_PV.mT @ x_KD[part]
            gradient_VD = its_gradient_VD if gradient_VD is None else gradient_VD.float().add_(its_gradient_VD)
        ctx.save_for_backward(x_gradient_KD, gradient_VD)
        ctx.kind = matrix_VD.dtype
        return torch.stack(losses).sum()

    @staticmethod
    def backward(ctx, outer: Tensor) -> tuple[Tensor | None, ...]:
        from hornbook.objectives.gradient_kernel import scaled

        x_gradient_KD, gradient_VD = ctx.saved_tensors
        return scaled(x_gradient_KD, outer, x_gradient_KD.dtype), scaled(gradient_VD, outer, ctx.kind), None, None, None
