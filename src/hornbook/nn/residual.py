"""Back to the stream: what a part of a block ends in is dropped out, added to the stream, and normed for the next part.

    z = x + dropout(linear(h))           normed = norm(z)

Between two matrix products these are a dozen passes over memory, and on a fast GPU a fifth of a training step. There,
in half precision, one kernel does them forwards and one backwards (`residual_kernel.py`), and the bias of the linear
layer belongs to it too. Elsewhere it is written out.

Shapes: T tokens, I width that comes in, D width of the stream.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hornbook import kernels

WIDEST = 8192  # of a row that a program holds


def dropout_add_norm(
    x_TD: Tensor, h_TI: Tensor, linear: nn.Module, norm: nn.LayerNorm, dropout: float
) -> tuple[Tensor, Tensor]:
    """x + dropout(linear(h)), and what a norm makes of it."""
    if not is_fused(x_TD, linear):
        z_TD = x_TD + F.dropout(linear(h_TI), dropout, training=dropout > 0)
        return z_TD, norm(z_TD)
    y_TD = F.linear(h_TI, linear.weight)
    z_TD, normed_TD, _ = _added_and_normed(
        x_TD, y_TD, linear.bias, norm.weight, norm.bias, _seed(x_TD, dropout), dropout, norm.eps
    )
    return z_TD, normed_TD


def is_fused(x_TD: Tensor, linear: nn.Module) -> bool:
    """Whether what is done with a linear layer's product is done by a kernel of ours."""
    return kernels.use_triton(x_TD) and isinstance(linear, nn.Linear) and x_TD.shape[-1] <= WIDEST


def _seed(x_TD: Tensor, dropout: float) -> Tensor | None:
    """For one draw of dropout; by the device's generator, which a captured step sets anew each time."""
    return torch.randint(0, 2**31 - 1, (1,), device=x_TD.device) if dropout else None


@torch.library.custom_op("hornbook::added_and_normed", mutates_args=())
def _added_and_normed(
    x_TD: Tensor,
    y_TD: Tensor,
    y_bias_D: Tensor,
    weight_D: Tensor,
    bias_D: Tensor,
    seed: Tensor | None,
    dropout: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    from hornbook.nn.residual_kernel import forward

    return forward(x_TD.contiguous(), y_TD.contiguous(), y_bias_D, weight_D, bias_D, seed, dropout, eps)


@torch.library.custom_op("hornbook::added_and_normed_backward", mutates_args=())
def _added_and_normed_backward(
    z_gradient_TD: Tensor | None,
    normed_gradient_TD: Tensor,
    z_TD: Tensor,
    moments_T2: Tensor,
    weight_D: Tensor,
    seed: Tensor | None,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x, of y, of no size where it is that of x, and of y's bias, the norm's weight and its bias."""
    from hornbook.nn.residual_kernel import backward

    x_gradient_TD, y_gradient_TD, sums_3D = backward(
        None if z_gradient_TD is None else z_gradient_TD.contiguous(),
        normed_gradient_TD.contiguous(),
        z_TD,
        moments_T2,
        weight_D,
        seed,
        dropout,
    )
    return x_gradient_TD, _none(z_TD) if y_gradient_TD is None else y_gradient_TD, sums_3D


def _none(like: Tensor) -> Tensor:
    return like.new_empty(0)


def has_one_gradient(x_kind: torch.dtype, y_kind: torch.dtype, dropout: float) -> bool:
    """Whether x and y have one gradient."""
    return dropout == 0 and x_kind == y_kind


@_added_and_normed.register_fake
def _(x_TD, y_TD, y_bias_D, weight_D, bias_D, seed, dropout, eps):
    return torch.empty_like(x_TD), torch.empty_like(y_TD), x_TD.new_empty(x_TD.shape[0], 2, dtype=torch.float32)


@_added_and_normed_backward.register_fake
def _(z_gradient_TD, normed_gradient_TD, z_TD, moments_T2, weight_D, seed, dropout):
    is_same = has_one_gradient(z_TD.dtype, normed_gradient_TD.dtype, dropout)
    y_gradient_TD = _none(z_TD) if is_same else torch.empty_like(z_TD, dtype=normed_gradient_TD.dtype)
    return torch.empty_like(z_TD), y_gradient_TD, z_TD.new_empty(3, z_TD.shape[1], dtype=torch.float32)


def _keep(ctx, inputs, output) -> None:
    _, y_TD, _, weight_D, _, seed, ctx.dropout, _ = inputs
    z_TD, _, moments_T2 = output
    ctx.y_kind = y_TD.dtype
    ctx.save_for_backward(z_TD, moments_T2, weight_D, seed)
    ctx.set_materialize_grads(False)  # after the norm nobody may ask for the sum itself


def _back(ctx, z_gradient_TD: Tensor | None, normed_gradient_TD: Tensor | None, _) -> tuple:
    z_TD, *rest = ctx.saved_tensors
    if normed_gradient_TD is None:  # as where a student matches a layer, and no later one
        normed_gradient_TD = torch.zeros_like(z_TD, dtype=ctx.y_kind)
    x_gradient_TD, y_gradient_TD, sums_3D = _added_and_normed_backward(
        z_gradient_TD, normed_gradient_TD, z_TD, *rest, ctx.dropout
    )
    if has_one_gradient(z_TD.dtype, normed_gradient_TD.dtype, ctx.dropout):
        y_gradient_TD = x_gradient_TD
    return x_gradient_TD, y_gradient_TD, *sums_3D.unbind(0), None, None, None


_added_and_normed.register_autograd(_back, setup_context=_keep)
