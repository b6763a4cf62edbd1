"""AdamW without decay on biases and norms, and its state as plain tensors by name."""

import torch
from torch import Tensor, nn

from hornbook.train.settings import OptimizerSettings


def make_optimizer(model: nn.Module, settings: OptimizerSettings) -> torch.optim.AdamW:
    """Matrices and tables decay, vectors (biases, norms) do not."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    betas = (settings.beta1, settings.beta2)
    return torch.optim.AdamW(groups, lr=settings.lr, betas=betas, eps=settings.eps, fused=True)


def set_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr


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
    optimizer.state.clear()
    for key, value in tensors.items():
        quantity, _, name = key.partition("/")
        if name not in parameters:
            raise ValueError(f"the checkpoint holds optimizer state for '{name}', which this model does not have")
        # The count of steps stays where the fused kernel wants it: beside the parameter.
        optimizer.state[parameters[name]][quantity] = value.to(parameters[name].device, copy=True)
