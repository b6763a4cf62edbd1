"""AdamW, LAMB or Muon, without decay on biases and norms, and its state as plain tensors by name."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from hornbook.train.lamb import Lamb
from hornbook.train.muon import Muon
from hornbook.train.settings import UNCORRECTED_START, OptimizerSettings

OTHERS = {"lamb": Lamb, "muon": Muon}


def make_optimizer(
    model: nn.Module, settings: OptimizerSettings, rate_of: Callable[[str], float] | None = None
) -> torch.optim.Optimizer:
    """Matrices and tables decay, vectors (biases, norms) do not. `rate_of` gives a parameter's share of the rate.

    The model must be where it is trained: the state lies beside it from the start, as a captured step needs it.
    """
    held: dict[tuple[bool, bool, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            in_block = settings.name == "muon" and parameter.ndim == 2 and "blocks." in name
            kind = (parameter.ndim >= 2, in_block, rate_of(name) if rate_of else 1.0)
            held.setdefault(kind, []).append(parameter)
    groups = [
        {
            "params": parameters,
            "weight_decay": settings.weight_decay if is_matrix else 0.0,
            "share": share,
            "adapted": is_matrix,  # LAMB asks for it
            "orthogonal": in_block,  # Muon asks for it
            "counted_from": 0 if settings.bias_correction else UNCORRECTED_START,
        }
        for (is_matrix, in_block, share), parameters in held.items()
    ]
    betas = (settings.beta1, settings.beta2)
    if settings.name in OTHERS:
        optimizer = OTHERS[settings.name](groups, settings.lr, betas, settings.eps)
    else:
        optimizer = torch.optim.AdamW(groups, settings.lr, betas, settings.eps, fused=True)
    _lay_out_state(optimizer)
    for leader, follower in getattr(model, "followed", ()):
        _follow(optimizer, leader, follower)
    return optimizer


def _follow(optimizer: torch.optim.Optimizer, leader: nn.Parameter, follower: nn.Parameter) -> None:
    """What a step changes in one is changed in the other too, besides its own changes."""
    before = torch.empty_like(leader, requires_grad=False)

    @torch.no_grad()
    def remember(*_: object) -> None:
        before.copy_(leader)

    @torch.no_grad()
    def take_over(*_: object) -> None:
        follower.add_(leader - before)

    optimizer.register_step_pre_hook(remember)
    optimizer.register_step_post_hook(take_over)


def _lay_out_state(optimizer: torch.optim.Optimizer) -> None:
    """The state before the first step; in place where it lies already, as a captured step reads it there."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            state = optimizer.state[parameter]
            if not state:  # the count beside the parameter and in float32: so the fused kernel wants it
                state["step"] = torch.empty((), dtype=torch.float32, device=parameter.device)
                for mean in ("exp_avg",) if group["orthogonal"] else ("exp_avg", "exp_avg_sq"):
                    state[mean] = torch.empty_like(parameter)
            for quantity, value in state.items():
                value.fill_(group["counted_from"] if quantity == "step" else 0)


def set_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):  # a captured step reads the rate from where it lay
            group["lr"].fill_(lr * group["share"])
        else:
            group["lr"] = lr * group["share"]


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Every tensor of the optimizer's state under `<quantity>/<parameter>`, of the parameters that made a step."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{quantity}/{names[parameter]}": value.detach().cpu().contiguous()
        for group in optimizer.param_groups
        for parameter in _stepped(optimizer, group)
        for quantity, value in optimizer.state[parameter].items()
    }


def _stepped(optimizer: torch.optim.Optimizer, group: dict) -> list[nn.Parameter]:
    counts = torch.stack([optimizer.state[parameter]["step"] for parameter in group["params"]]).tolist()
    return [
        parameter for parameter, count in zip(group["params"], counts, strict=True) if count > group["counted_from"]
    ]


def load_optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Everything as before the first step, then what `tensors` hold."""
    _lay_out_state(optimizer)
    parameters = dict(model.named_parameters())
    for key, value in tensors.items():
        quantity, _, name = key.partition("/")
        if name not in parameters or parameters[name] not in optimizer.state:
            raise ValueError(f"the checkpoint holds optimizer state for '{name}', which this model does not have")
        optimizer.state[parameters[name]][quantity].copy_(value)
