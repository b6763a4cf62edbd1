"""activation(linear(x)), the middle of a feed-forward network.

On CUDA in half precision, bias and GELU are one kernel, whose backward pass also computes the gradient of the bias
(`gelu_kernel.py`). Elsewhere, and for other activations, plain PyTorch is used.

Shapes: T tokens, D input width, I output width.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hornbook.nn.residual import is_fused

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
}


def linear_activation(x_TD: Tensor, linear: nn.Module, activation: str) -> Tensor:
    """activation(linear(x)), T x I."""
    if not is_fused(x_TD, linear) or activation == "relu":
        return ACTIVATIONS[activation](linear(x_TD))
    return _gelu(F.linear(x_TD, linear.weight), linear.bias, activation == "gelu_tanh")


@torch.library.custom_op("hornbook::gelu", mutates_args=())
def _gelu(h_TI: Tensor, bias_I: Tensor, is_tanh: bool) -> Tensor:
    from hornbook.nn.kernels.gelu import forward

    return forward(h_TI.contiguous(), bias_I, is_tanh)


@torch.library.custom_op("hornbook::gelu_backward", mutates_args=())
def _gelu_backward(gradient_TI: Tensor, h_TI: Tensor, bias_I: Tensor, is_tanh: bool) -> tuple[Tensor, Tensor]:
    from hornbook.nn.kernels.gelu import backward

    return backward(gradient_TI.contiguous(), h_TI.contiguous(), bias_I, is_tanh)


@_gelu.register_fake
def _(h_TI, bias_I, is_tanh):
    return torch.empty_like(h_TI)


@_gelu_backward.register_fake
def _(gradient_TI, h_TI, bias_I, is_tanh):
    return torch.empty_like(h_TI), torch.empty_like(bias_I, dtype=torch.float32)


def _setup_context(ctx, inputs, output) -> None:
    h_TI, bias_I, ctx.is_tanh = inputs
    ctx.save_for_backward(h_TI, bias_I)


def _backward(ctx, gradient_TI: Tensor) -> tuple:
    return *_gelu_backward(gradient_TI, *ctx.saved_tensors, ctx.is_tanh), None


_gelu.register_autograd(_backward, setup_context=_setup_context)
