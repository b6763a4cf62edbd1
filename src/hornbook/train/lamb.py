"""LAMB (You et al. 2019, arXiv 1904.00962): Adam's update, with each matrix moved in proportion to its own size.

    update = corrected mean / (sqrt(corrected mean of squares) + eps) + weight_decay * p
    p      = p - lr * (|p| / |update|) * update

The ratio of the norms is 1 where either is 0, and for groups that are not `adapted`: biases and norms, as ALBERT was
published. Query, key and value are one matrix here and share a ratio; ALBERT's code gives each its own.

The host reads nothing from the device, the rate may be a tensor, and `grad_scale` divides the gradients as it does in
`torch.optim.AdamW`: a step can be captured as a CUDA graph.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor


class Lamb(torch.optim.Optimizer):
    """Each group says by `adapted` whether its parameters get the ratio of norms. State must lie there before a step:
    `exp_avg`, `exp_avg_sq` and the count `step` of every parameter, as `make_optimizer` lays them out."""

    def __init__(self, groups: Iterable[dict], lr: float, betas: tuple[float, float], eps: float):
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0, "adapted": True})
        self.grad_scale: Tensor | None = None

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                self._update(group, parameters)

    def _update(self, group: dict, parameters: list[Tensor]) -> None:
        gradients = [parameter.grad for parameter in parameters]
        if self.grad_scale is not None:
            gradients = torch._foreach_div(gradients, self.grad_scale)
        states = [self.state[parameter] for parameter in parameters]
        means, squares = ([state[quantity] for state in states] for quantity in ("exp_avg", "exp_avg_sq"))
        counts = [state["step"] for state in states]
        beta1, beta2 = group["betas"]
        torch._foreach_add_(counts, 1)
        torch._foreach_lerp_(means, gradients, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - beta2)

        updates = torch._foreach_div(means, _corrections(counts, beta1))
        roots = torch._foreach_div(squares, _corrections(counts, beta2))
        torch._foreach_sqrt_(roots)
        torch._foreach_add_(roots, group["eps"])
        torch._foreach_div_(updates, roots)
        if group["weight_decay"]:
            torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        if group["adapted"]:
            torch._foreach_mul_(updates, _ratios(parameters, updates))
        torch._foreach_mul_(updates, group["lr"])
        torch._foreach_sub_(parameters, updates)


def _corrections(counts: list[Tensor], beta: float) -> list[Tensor]:
    """1 - beta^count, whose digits would be lost where beta^count is rounded first: at 0.999 four of seven."""
    powers = torch._foreach_mul(counts, math.log(beta) if beta > 0 else -math.inf)
    torch._foreach_expm1_(powers)
    return torch._foreach_neg(powers)


def _ratios(parameters: list[Tensor], updates: list[Tensor]) -> list[Tensor]:
    sizes, steps = (torch.stack(torch._foreach_norm(each)) for each in (parameters, updates))
    return list(torch.where((sizes > 0) & (steps > 0), sizes / steps, 1.0).unbind())
