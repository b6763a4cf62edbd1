"""Muon (Jordan et al. 2024, scaled as in arXiv 2502.16982): the matrices of blocks move by orthogonal updates.

    mean   = beta1 * mean + (1 - beta1) * gradient
    update = the nearest orthogonal matrix to (beta1 * mean + (1 - beta1) * gradient), by five Newton-Schulz rounds
    p      = p - lr * weight_decay * p - lr * 0.2 * sqrt(max(rows, columns)) * update

The factor gives an update the size that one of AdamW usually has, so that rate and decay mean the same for both. What
is no matrix of a block (tables, heads, biases, norms) is updated by AdamW.

The host reads nothing from the device, the rate may be a tensor, and `grad_scale` divides the gradients as it does in
`torch.optim.AdamW`: a step can be captured as a CUDA graph. `torch.optim.Muon` can not, and takes matrices one by one.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

ROUNDS = 5
# Of x (a + b x^2 + c x^4): steep at 0, and after five rounds every singular value from 0.01 on lies near 1.
A, B, C = 3.4445, -4.7750, 2.0315
USUAL_SIZE = 0.2  # root mean square of AdamW's updates, as measured in that paper


class Muon(torch.optim.Optimizer):
    """Each group says by `orthogonal` whether its parameters are matrices of blocks. State must lie there before a
    step: `exp_avg`, `exp_avg_sq` (not of orthogonal groups) and the count `step`, as `make_optimizer` lays them out."""

    def __init__(self, groups: Iterable[dict], lr: float, betas: tuple[float, float], eps: float):
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0, "orthogonal": False})
        self.grad_scale: Tensor | None = None

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                states = [self.state[parameter] for parameter in parameters]
                torch._foreach_add_([state["step"] for state in states], 1)
                update = self._update_matrices if group["orthogonal"] else self._update_rest
                update(group, parameters, [parameter.grad for parameter in parameters], states)

    def _update_matrices(self, group: dict, parameters: list[Tensor], gradients: list[Tensor], states: list) -> None:
        beta = group["betas"][0]
        if self.grad_scale is not None:
            gradients = torch._foreach_div(gradients, self.grad_scale)
        means = [state["exp_avg"] for state in states]
        torch._foreach_lerp_(means, gradients, 1 - beta)
        updates = orthogonal(torch._foreach_lerp(gradients, means, beta))
        torch._foreach_mul_(updates, [USUAL_SIZE * math.sqrt(max(update.shape)) for update in updates])
        if group["weight_decay"]:
            torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        torch._foreach_mul_(updates, group["lr"])
        torch._foreach_sub_(parameters, updates)

    def _update_rest(self, group: dict, parameters: list[Tensor], gradients: list[Tensor], states: list) -> None:
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


def orthogonal(matrices: list[Tensor]) -> list[Tensor]:
    """For each matrix one with its singular vectors and all singular values about 1. Equal shapes go together."""
    by_shape: dict[torch.Size, list[int]] = {}
    for place, matrix in enumerate(matrices):
        by_shape.setdefault(matrix.shape, []).append(place)
    found: list[Tensor] = [torch.empty(0)] * len(matrices)
    for places in by_shape.values():
        for place, each in zip(places, _orthogonal(torch.stack([matrices[p] for p in places])).unbind(), strict=True):
            found[place] = each
    return found


def _orthogonal(x_NRC: Tensor) -> Tensor:
    """N matrices of R rows and C columns; in half precision on CUDA, where the rounds forgive it."""
    is_tall = x_NRC.shape[1] > x_NRC.shape[2]
    dtype = x_NRC.dtype
    x_NRC = x_NRC / x_NRC.norm(dim=(1, 2), keepdim=True).clamp(min=1e-30)  # no singular value above 1
    x_NRC = x_NRC.to(torch.bfloat16 if x_NRC.is_cuda else dtype)
    x_NRC = x_NRC.mT if is_tall else x_NRC
    for _ in range(ROUNDS):
        square_NRR = x_NRC @ x_NRC.mT
        polynomial_NRR = torch.baddbmm(square_NRR, square_NRR, square_NRR, beta=B, alpha=C)
        x_NRC = torch.baddbmm(x_NRC, polynomial_NRR, x_NRC, beta=A)
    return (x_NRC.mT if is_tall else x_NRC).to(dtype)
