"""LAMB (You et al. 2019, arXiv 1904.00962): Adam's update, scaled per matrix by a trust ratio.

    update = corrected mean / (sqrt(corrected mean of squares) + eps) + weight_decay * p
    p      = p - lr * (|p| / |update|) * update

The trust ratio |p| / |update| is 1 where either norm is 0, and for groups that are not `adapted`: biases and norms, as
in ALBERT's published code. Query, key and value are one matrix here and share a ratio; in ALBERT's code each has its
own.

A step can be captured as a CUDA graph: the host reads nothing from the device, the learning rate may be a tensor, and
the gradients are divided by `grad_scale`, as in `torch.optim.AdamW`.
"""

import math
from collections.abc import Iterable
from typing import Protocol

import torch
from torch import Tensor


class Shards(Protocol):
    """Matrices whose rows are spread over several processes, each of which updates its own rows. LAMB and Muon need
    whole matrices; `hornbook.train.parallel.sharding` implements it."""

    def norms(self, rows: list[Tensor]) -> list[Tensor]:
        """The norms of the whole matrices with these rows on this process."""
        ...

    def gathered(self, parameters: list[Tensor], rows: list[Tensor]) -> list[Tensor]:
        """The whole matrices, from values for the rows of these parameters."""
        ...

    def local_rows(self, matrices: list[Tensor]) -> list[Tensor]:
        """This process's rows of whole matrices."""
        ...


class Lamb(torch.optim.Optimizer):
    """`adapted` of a parameter group turns the trust ratio on. The state of every parameter (`exp_avg`, `exp_avg_sq`
    and the count `step`) must exist before the first step; `make_optimizer` creates it."""

    def __init__(self, groups: Iterable[dict], lr: float, betas: tuple[float, float], eps: float):
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0, "adapted": True})
        self.grad_scale: Tensor | None = None
        self.shards: Shards | None = None  # set if the parameters are rows of larger matrices

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

        updates = torch._foreach_div(means, _bias_corrections(counts, beta1))
        roots = torch._foreach_div(squares, _bias_corrections(counts, beta2))
        torch._foreach_sqrt_(roots)
        torch._foreach_add_(roots, group["eps"])
        torch._foreach_div_(updates, roots)
        if group["weight_decay"]:
            torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        if group["adapted"]:
            norms = torch._foreach_norm if self.shards is None else self.shards.norms
            torch._foreach_mul_(updates, _trust_ratios(norms(parameters), norms(updates)))
        torch._foreach_mul_(updates, group["lr"])
        torch._foreach_sub_(parameters, updates)


def _bias_corrections(counts: list[Tensor], beta: float) -> list[Tensor]:
    """1 - beta^count by `expm1`: rounding beta^count first would lose four of seven digits at beta = 0.999."""
    powers = torch._foreach_mul(counts, math.log(beta) if beta > 0 else -math.inf)
    torch._foreach_expm1_(powers)
    return torch._foreach_neg(powers)


def _trust_ratios(p_norms: list[Tensor], update_norms: list[Tensor]) -> list[Tensor]:
    p_norms, update_norms = torch.stack(p_norms), torch.stack(update_norms)
    return list(torch.where((p_norms > 0) & (update_norms > 0), p_norms / update_norms, 1.0).unbind())
