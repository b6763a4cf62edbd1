"""Muon (Jordan et al. 2024, scaled as in arXiv 2502.16982): orthogonalised updates of the matrices of the blocks.

    mean   = beta1 * mean + (1 - beta1) * gradient
    update = the nearest orthogonal matrix to (beta1 * mean + (1 - beta1) * gradient), by five Newton-Schulz iterations
    p      = p - lr * weight_decay * p - lr * 0.2 * sqrt(max(rows, columns)) * update

The factor gives the updates the typical root mean square of AdamW's, so that learning rate and weight decay mean the
same for both. All other parameters (embeddings, heads, biases, norms) are updated by AdamW.

A step can be captured as a CUDA graph: the host reads nothing from the device, the learning rate may be a tensor, and
the gradients are divided by `grad_scale`, as in `torch.optim.AdamW`. `torch.optim.Muon` cannot be captured, and
processes matrices one by one.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from hornbook.train.lamb import Shards

NUM_ITERATIONS = 5
# Coefficients of x (a + b x^2 + c x^4): steep at 0; five iterations bring every singular value above 0.01 close to 1.
A, B, C = 3.4445, -4.7750, 2.0315
ADAMW_RMS = 0.2  # root mean square of AdamW's updates, as measured in arXiv 2502.16982


class Muon(torch.optim.Optimizer):
    """`orthogonal` of a parameter group marks matrices of blocks. The state of every parameter (`exp_avg`, the count
    `step` and, except in orthogonal groups, `exp_avg_sq`) must exist before the first step; `make_optimizer` creates
    it."""

    def __init__(self, groups: Iterable[dict], lr: float, betas: tuple[float, float], eps: float):
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0, "orthogonal": False})
        self.grad_scale: Tensor | None = None
        self.shards: Shards | None = None  # set if the parameters are rows of larger matrices

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                states = [self.state[parameter] for parameter in parameters]
                torch._foreach_add_([state["step"] for state in states], 1)
                update = self._muon if group["orthogonal"] else self._adamw
                update(group, parameters, [parameter.grad for parameter in parameters], states)

    def _muon(self, group: dict, parameters: list[Tensor], gradients: list[Tensor], states: list) -> None:
        beta = group["betas"][0]
        if self.grad_scale is not None:
            gradients = torch._foreach_div(gradients, self.grad_scale)
        means = [state["exp_avg"] for state in states]
        torch._foreach_lerp_(means, gradients, 1 - beta)
        updates = torch._foreach_lerp(gradients, means, beta)
        if self.shards is None:
            updates = orthogonal_updates(updates)
        else:
            updates = self.shards.local_rows(orthogonal_updates(self.shards.gathered(parameters, updates)))
        if group["weight_decay"]:
            torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        torch._foreach_mul_(updates, group["lr"])
        torch._foreach_sub_(parameters, updates)

    def _adamw(self, group: dict, parameters: list[Tensor], gradients: list[Tensor], states: list) -> None:
        torch._fused_adamw_(
            parameters,
            gradients,
            *([state[quantity] for state in states] for quantity in ("exp_avg", "exp_avg_sq")),
            max_exp_avg_sqs=[],
            state_steps=[state["step"] for state in states],
            lr=group["lr"],
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
            grad_scale=self.grad_scale,
        )


def orthogonal_updates(matrices: list[Tensor]) -> list[Tensor]:
    """Orthogonal matrices, scaled to the size of AdamW's updates."""
    updates = orthogonal(matrices)
    torch._foreach_mul_(updates, [ADAMW_RMS * math.sqrt(max(update.shape)) for update in updates])
    return updates


def orthogonal(matrices: list[Tensor]) -> list[Tensor]:
    """Matrices with the same singular vectors and all singular values about 1. Equal shapes are processed together."""
    by_shape: dict[torch.Size, list[int]] = {}
    for i, matrix in enumerate(matrices):
        by_shape.setdefault(matrix.shape, []).append(i)
    results: list[Tensor] = [torch.empty(0)] * len(matrices)
    for indices in by_shape.values():
        batch = _orthogonal(torch.stack([matrices[i] for i in indices]))
        for i, result in zip(indices, batch.unbind(), strict=True):
            results[i] = result
    return results


def _orthogonal(x_NRC: Tensor) -> Tensor:
    """N matrices of R rows and C columns; in bfloat16 on CUDA, whose rounding errors the iterations correct."""
    is_tall = x_NRC.shape[1] > x_NRC.shape[2]
    dtype = x_NRC.dtype
    x_NRC = x_NRC / x_NRC.norm(dim=(1, 2), keepdim=True).clamp(min=1e-30)  # no singular value above 1
    x_NRC = x_NRC.to(torch.bfloat16 if x_NRC.is_cuda else dtype)
    x_NRC = x_NRC.mT if is_tall else x_NRC
    for _ in range(NUM_ITERATIONS):
        square_NRR = x_NRC @ x_NRC.mT
        polynomial_NRR = torch.baddbmm(square_NRR, square_NRR, square_NRR, beta=B, alpha=C)
        x_NRC = torch.baddbmm(x_NRC, polynomial_NRR, x_NRC, beta=A)
    return (x_NRC.mT if is_tall else x_NRC).to(dtype)
