"""The published formulas of AdamW and LAMB in float64, and a few parameters to compare an optimizer with them on."""

import numpy as np
import torch
from torch import nn

from hornbook.train.optimizer import make_optimizer, set_learning_rate
from hornbook.train.settings import OptimizerSettings

RATES = [1e-2 * (step + 1) for step in range(6)]


class Three(nn.Module):
    """A matrix, a matrix of zeros and a bias."""

    def __init__(self):
        super().__init__()
        random = torch.Generator().manual_seed(0)
        self.matrix = nn.Parameter(torch.randn(5, 3, generator=random))
        self.zeros = nn.Parameter(torch.zeros(2, 3))
        self.bias = nn.Parameter(torch.randn(3, generator=random))


def gradients(model: nn.Module, step: int) -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(100 + step)
    return {name: torch.randn(p.shape, generator=random) for name, p in model.named_parameters()}


def stepped(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range, scale: float = 1.0) -> None:
    for step in steps:
        for (_, parameter), gradient in zip(model.named_parameters(), gradients(model, step).values(), strict=True):
            parameter.grad = gradient.to(parameter.device) * scale
        set_learning_rate(optimizer, RATES[step])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def computed(settings: OptimizerSettings) -> dict[str, np.ndarray]:
    """The published formulas, number by number, in float64."""
    model = Three()
    values = {name: p.detach().double().numpy() for name, p in model.named_parameters()}
    means, squares = ({name: np.zeros_like(value) for name, value in values.items()} for _ in range(2))
    for step, lr in enumerate(RATES):
        for name, gradient in gradients(model, step).items():
            gradient = gradient.double().numpy()
            means[name] = settings.beta1 * means[name] + (1 - settings.beta1) * gradient
            squares[name] = settings.beta2 * squares[name] + (1 - settings.beta2) * gradient**2
            mean, square = means[name], squares[name]
            if settings.bias_correction:
                mean, square = mean / (1 - settings.beta1 ** (step + 1)), square / (1 - settings.beta2 ** (step + 1))
            update = mean / (np.sqrt(square) + settings.eps)
            if name != "bias":
                update = update + settings.weight_decay * values[name]
            if name != "bias" and settings.name == "lamb":
                size, moved = np.linalg.norm(values[name]), np.linalg.norm(update)
                update = update * (size / moved if size > 0 and moved > 0 else 1.0)
            values[name] = values[name] - lr * update
    return values


def check(settings: OptimizerSettings, device: torch.device) -> None:
    """Steps on the device end where the formulas do: to what float32 keeps, of which a GPU's division and root, which
    are not rounded to the last digit, take some."""
    tolerance = 3e-5 if device.type == "cpu" else 1e-4
    model = Three().to(device)
    stepped(model, make_optimizer(model, settings), range(len(RATES)))
    for (name, value), expected in zip(model.named_parameters(), computed(settings).values(), strict=True):
        np.testing.assert_allclose(value.detach().cpu().numpy(), expected, rtol=tolerance, atol=1e-6, err_msg=name)
