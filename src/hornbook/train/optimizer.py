"""Builds AdamW, LAMB or Muon, without weight decay on biases and norms; saves and loads the state as named tensors."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from hornbook.train.lamb import Lamb
from hornbook.train.muon import Muon
from hornbook.train.settings import UNCORRECTED_START, OptimizerSettings

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
    """Gives each parameter group its learning rate."""
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
