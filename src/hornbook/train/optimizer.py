"""AdamW without decay on biases and norms, and its state as plain tensors by name."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from hornbook.train.settings import OptimizerSettings


def make_optimizer(
    model: nn.Module, settings: OptimizerSettings, rate_of: Callable[[str], float] | None = None
) -> torch.optim.AdamW:
    """Matrices and tables decay, vectors (biases, norms) do not. `rate_of` gives a parameter's share of the rate."""
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            decay = settings.weight_decay if parameter.ndim >= 2 else 0.0
            groups.setdefault((decay, rate_of(name) if rate_of else 1.0), []).append(parameter)
    betas = (settings.beta1, settings.beta2)
    return torch.optim.AdamW(
        [{"params": held, "weight_decay": decay, "share": share} for (decay, share), held in groups.items()],
        lr=settings.lr,
        betas=betas,
        eps=settings.eps,
        fused=True,
    )


def set_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):  # a captured step reads the rate from where it lay
            group["lr"].fill_(lr * group["share"])
        else:
            group["lr"] = lr * group["share"]


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Every tensor of the optimizer's state under `<quantity>/<parameter>`."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{quantity}/{names[parameter]}": value.detach().cpu().contiguous()
        for parameter, state in optimizer.state.items()
        for quantity, value in state.items()
    }


def load_optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    parameters = dict(model.named_parameters())
    for state in optimizer.state.values():  # as before the first step; in place, as a captured step reads it there
        for value in state.values():
            value.zero_()
    for key, value in tensors.items():
        quantity, _, name = key.partition("/")
        if name not in parameters:
            raise ValueError(f"the checkpoint holds optimizer state for '{name}', which this model does not have")
        state = optimizer.state[parameters[name]]
        if quantity in state:
            state[quantity].copy_(value)
        else:  # the count of steps stays where the fused kernel wants it: beside the parameter
            state[quantity] = value.to(parameters[name].device, copy=True)
