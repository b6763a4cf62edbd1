"""AdamW, LAMB and Muon, without weight decay on biases and norms, and their state as named tensors."""

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from hornbook.train.settings import UNCORRECTED_START, OptimizerSettings

if TYPE_CHECKING:
    from hornbook.train.parallel.sharding import ShardedModule

NEWTON_SCHULZ_STEPS = 5
# a, b and c in x (a + b x^2 + c x^4): steep at 0; five steps bring every singular value above 0.01 close to 1.
NEWTON_SCHULZ_COEFFICIENTS = 3.4445, -4.7750, 2.0315
ADAMW_RMS = 0.2  # root mean square of AdamW's updates, as measured in arXiv 2502.16982


class _CapturableOptimizer(torch.optim.Optimizer):
    """What LAMB and Muon share. A step can be captured as a CUDA graph: the host reads nothing from the device, the
    learning rate may be a tensor, and the gradients are divided by `grad_scale`, as in `torch.optim.AdamW`. The state
    of every parameter must exist before the first step; `make_optimizer` creates it."""

    def __init__(self, groups: Iterable[dict], lr: float, betas: tuple[float, float], eps: float):
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})
        self.grad_scale: Tensor | None = None
        self.shards: ShardedModule | None = None  # set if the parameters are rows of larger matrices

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                states = [self.state[parameter] for parameter in parameters]
                torch._foreach_add_([state["step"] for state in states], 1)
                self._update(group, parameters, [parameter.grad for parameter in parameters], states)

    def _update(self, group: dict, parameters: list[Tensor], gradients: list[Tensor], states: list[dict]) -> None:
        raise NotImplementedError

    def _scaled(self, gradients: list[Tensor]) -> list[Tensor]:
        return gradients if self.grad_scale is None else torch._foreach_div(gradients, self.grad_scale)


class Lamb(_CapturableOptimizer):
    """LAMB (You et al. 2019, arXiv 1904.00962): Adam's update, scaled per matrix by a trust ratio.

        update = corrected mean / (sqrt(corrected mean of squares) + eps) + weight_decay * p
        p      = p - lr * (|p| / |update|) * update

    The trust ratio |p| / |update| is 1 where either norm is 0, and for groups that are not `adapted`: biases and norms,
    as in ALBERT's published code. Query, key and value are one matrix here and share a ratio; in ALBERT's code each has
    its own.
    """

    def _update(self, group: dict, parameters: list[Tensor], gradients: list[Tensor], states: list[dict]) -> None:
        gradients = self._scaled(gradients)
        means, squares = ([state[quantity] for state in states] for quantity in ("exp_avg", "exp_avg_sq"))
        counts = [state["step"] for state in states]
        beta1, beta2 = group["betas"]
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


class Muon(_CapturableOptimizer):
    """Muon (Jordan et al. 2024, scaled as in arXiv 2502.16982): orthogonalised updates of the matrices of the blocks,
    in groups that are `orthogonal`.

        mean   = beta1 * mean + (1 - beta1) * gradient
        update = the nearest orthogonal matrix to (beta1 * mean + (1 - beta1) * gradient), by five Newton-Schulz
                 iterations
        p      = p - lr * weight_decay * p - lr * 0.2 * sqrt(max(rows, columns)) * update

    The factor gives the updates the typical root mean square of AdamW's, so that learning rate and weight decay mean
    the same for both. All other parameters (embeddings, heads, biases, norms) are updated by AdamW. `torch.optim.Muon`
    cannot be captured, and processes matrices one by one.
    """

    def _update(self, group: dict, parameters: list[Tensor], gradients: list[Tensor], states: list[dict]) -> None:
        if not group["orthogonal"]:
            self._adamw(group, parameters, gradients, states)
            return
        beta, gradients = group["betas"][0], self._scaled(gradients)
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
    """N matrices of R rows and C columns; in bfloat16 on CUDA, whose rounding errors the steps correct."""
    is_tall = x_NRC.shape[1] > x_NRC.shape[2]
    dtype = x_NRC.dtype
    x_NRC = x_NRC / x_NRC.norm(dim=(1, 2), keepdim=True).clamp(min=1e-30)  # no singular value above 1
    x_NRC = x_NRC.to(torch.bfloat16 if x_NRC.is_cuda else dtype)
    x_NRC = x_NRC.mT if is_tall else x_NRC
    a, b, c = NEWTON_SCHULZ_COEFFICIENTS
    for _ in range(NEWTON_SCHULZ_STEPS):
        square_NRR = x_NRC @ x_NRC.mT
        polynomial_NRR = torch.baddbmm(square_NRR, square_NRR, square_NRR, beta=b, alpha=c)
        x_NRC = torch.baddbmm(x_NRC, polynomial_NRR, x_NRC, beta=a)
    return (x_NRC.mT if is_tall else x_NRC).to(dtype)


OPTIMIZERS = {"adamw": partial(torch.optim.AdamW, fused=True), "lamb": Lamb, "muon": Muon}


def make_optimizer(
    model: nn.Module, settings: OptimizerSettings, lr_multiplier_of: Callable[[str], float] | None = None
) -> torch.optim.Optimizer:
    """The optimizer of a model. Weight decay applies to matrices and embeddings, not to vectors (biases, norms).
    `lr_multiplier_of` maps the name of a parameter to its learning-rate multiplier.

    The model must already be on its device: the state is allocated there at once, as a captured step needs fixed
    addresses.
    """
    parameters_by_kind: dict[tuple[bool, bool, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            in_block = settings.name == "muon" and parameter.ndim == 2 and "blocks." in name
            kind = (parameter.ndim >= 2, in_block, lr_multiplier_of(name) if lr_multiplier_of else 1.0)
            parameters_by_kind.setdefault(kind, []).append(parameter)
    groups = [
        {
            "params": parameters,
            "weight_decay": settings.weight_decay if is_matrix else 0.0,
            "lr_multiplier": lr_multiplier,
            "adapted": is_matrix,  # read by LAMB
            "orthogonal": in_block,  # read by Muon
            "counted_from": 0 if settings.bias_correction else UNCORRECTED_START,
        }
        for (is_matrix, in_block, lr_multiplier), parameters in parameters_by_kind.items()
    ]
    betas = (settings.beta1, settings.beta2)
    optimizer = OPTIMIZERS[settings.name](groups, settings.lr, betas, settings.eps)
    _reset_state(optimizer)
    for leader, follower in getattr(model, "followed", ()):
        _follow(optimizer, leader, follower)
    return optimizer


def _follow(optimizer: torch.optim.Optimizer, leader: nn.Parameter, follower: nn.Parameter) -> None:
    """Adds every change that a step makes to `leader` to `follower` too."""
    before = torch.empty_like(leader, requires_grad=False)

    @torch.no_grad()
    def remember(*_: object) -> None:
        before.copy_(leader)

    @torch.no_grad()
    def add_change(*_: object) -> None:
        follower.add_(leader - before)

    optimizer.register_step_pre_hook(remember)
    optimizer.register_step_post_hook(add_change)


def _reset_state(optimizer: torch.optim.Optimizer) -> None:
    """Creates the state before the first step, or resets it in place, as a captured step reads it from there."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            state = optimizer.state[parameter]
            if not state:  # the fused kernel needs the count in float32 on the parameter's device
                state["step"] = torch.empty((), dtype=torch.float32, device=parameter.device)
                for mean in ("exp_avg",) if group["orthogonal"] else ("exp_avg", "exp_avg_sq"):
                    state[mean] = torch.empty_like(parameter)
            for quantity, value in state.items():
                value.fill_(group["counted_from"] if quantity == "step" else 0)


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):  # in place: a captured step reads this tensor
            group["lr"].fill_(lr * group["lr_multiplier"])
        else:
            group["lr"] = lr * group["lr_multiplier"]


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state as `<quantity>/<parameter>`, for the parameters that have been updated at least once."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    tensors = {}
    for group in optimizer.param_groups:
        counts = torch.stack([optimizer.state[parameter]["step"] for parameter in group["params"]]).tolist()
        for parameter, count in zip(group["params"], counts, strict=True):
            if count > group["counted_from"]:
                state = optimizer.state[parameter].items()
                tensors |= {f"{key}/{names[parameter]}": value.detach().cpu().contiguous() for key, value in state}
    return tensors


def load_optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Resets the optimizer's state, then loads `tensors` into it."""
    _reset_state(optimizer)
    parameters = dict(model.named_parameters())
    for key, value in tensors.items():
        quantity, _, name = key.partition("/")
        if name not in parameters or parameters[name] not in optimizer.state:
            raise ValueError(f"the checkpoint has optimizer state for '{name}', which is not a parameter of this model")
        state = optimizer.state[parameters[name]]
        if quantity not in state or state[quantity].shape != value.shape:
            raise ValueError(
                f"the checkpoint has '{quantity}' of shape {tuple(value.shape)} for '{name}', which this optimizer "
                "does not have, so it is damaged or of another version: start a new run"
            )
        state[quantity].copy_(value)
