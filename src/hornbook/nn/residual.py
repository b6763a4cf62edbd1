"""The end of a sublayer: output projection, dropout, residual addition and the layer norm that follows.

    z = x + dropout(linear(h))           normed = norm(z)

After the matrix product this is a dozen passes over memory, a fifth of a training step on a fast GPU. On CUDA in half
precision one forward and one backward kernel do all of it, including the bias of the linear layer
(`residual_kernel.py`). Elsewhere plain PyTorch is used.

Shapes: T tokens, I input width of the projection, D model width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hornbook.nn import kernels

WIDEST = 8192  # longest row that a program can hold


def dropout_add_norm(
    x_TD: Tensor, h_TI: Tensor, linear: nn.Module, norm: nn.LayerNorm, dropout: float
) -> tuple[Tensor, Tensor]:
    """z = x + dropout(linear(h)), T x D, and norm(z), T x D."""
    if not is_fused(x_TD, linear):
        z_TD = x_TD + F.dropout(linear(h_TI), dropout, training=dropout > 0)
        return z_TD, norm(z_TD)
    y_TD = F.linear(h_TI, linear.weight)
    z_TD, normed_TD, _ = _fused_dropout_add_norm(
        x_TD, y_TD, linear.bias, norm.weight, norm.bias, _seed(x_TD, dropout), dropout, norm.eps
    )
    return z_TD, normed_TD


def is_fused(x_TD: Tensor, linear: nn.Module) -> bool:
    """Whether the operations around this linear layer use our fused kernels."""
    return kernels.use_triton(x_TD) and isinstance(linear, nn.Linear) and x_TD.shape[-1] <= WIDEST


def _seed(x_TD: Tensor, dropout: float) -> Tensor | None:
    """The seed of one dropout mask, from the device's generator, which every replay of a captured step reseeds."""
    return torch.randint(0, 2**31 - 1, (1,), device=x_TD.device) if dropout else None


@torch.library.custom_op("hornbook::dropout_add_norm", mutates_args=())
def _fused_dropout_add_norm(
    x_TD: Tensor,
    y_TD: Tensor,
    y_bias_D: Tensor,
    weight_D: Tensor,
    bias_D: Tensor,
    seed: Tensor | None,
    dropout: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    from hornbook.nn.kernels.residual import forward

    return forward(x_TD.contiguous(), y_TD.contiguous(), y_bias_D, weight_D, bias_D, seed, dropout, eps)


@torch.library.custom_op("hornbook::dropout_add_norm_backward", mutates_args=())
def _fused_dropout_add_norm_backward(
    z_gradient_TD: Tensor | None,
    normed_gradient_TD: Tensor,
    z_TD: Tensor,
    moments_T2: Tensor,
    weight_D: Tensor,
    seed: Tensor | None,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, of y (empty if equal to that of x), and of y's bias, the norm's weight and bias, 3 x D."""
    from hornbook.nn.kernels.residual import backward

    x_gradient_TD, y_gradient_TD, sums_3D = backward(
        None if z_gradient_TD is None else z_gradient_TD.contiguous(),
        normed_gradient_TD.contiguous(),
        z_TD,
        moments_T2,
        weight_D,
        seed,
        dropout,
    )
    return x_gradient_TD, _empty(z_TD) if y_gradient_TD is None else y_gradient_TD, sums_3D


def _empty(like: Tensor) -> Tensor:
    return like.new_empty(0)


def has_one_gradient(x_dtype: torch.dtype, y_dtype: torch.dtype, dropout: float) -> bool:
    """Whether x and y have the same gradient."""
    return dropout == 0 and x_dtype == y_dtype


@_fused_dropout_add_norm.register_fake
def _(x_TD, y_TD, y_bias_D, weight_D, bias_D, seed, dropout, eps):
    return torch.empty_like(x_TD), torch.empty_like(y_TD), x_TD.new_empty(x_TD.shape[0], 2, dtype=torch.float32)


@_fused_dropout_add_norm_backward.register_fake
def _(z_gradient_TD, normed_gradient_TD, z_TD, moments_T2, weight_D, seed, dropout):
    is_same = has_one_gradient(z_TD.dtype, normed_gradient_TD.dtype, dropout)
    y_gradient_TD = _empty(z_TD) if is_same else torch.empty_like(z_TD, dtype=normed_gradient_TD.dtype)
    return torch.empty_like(z_TD), y_gradient_TD, z_TD.new_empty(3, z_TD.shape[1], dtype=torch.float32)


def _setup_context(ctx, inputs, output) -> None:
    _, y_TD, _, weight_D, _, seed, ctx.dropout, _ = inputs
    z_TD, _, moments_T2 = output
    ctx.y_dtype = y_TD.dtype
    ctx.save_for_backward(z_TD, moments_T2, weight_D, seed)
    ctx.set_materialize_grads(False)  # z itself may be unused after the norm


def _backward(ctx, z_gradient_TD: Tensor | None, normed_gradient_TD: Tensor | None, _) -> tuple:
    z_TD, *rest = ctx.saved_tensors
    if normed_gradient_TD is None:  # as when a student matches this layer and no later one
        normed_gradient_TD = torch.zeros_like(z_TD, dtype=ctx.y_dtype)
    x_gradient_TD, y_gradient_TD, sums_3D = _fused_dropout_add_norm_backward(
        z_gradient_TD, normed_gradient_TD, z_TD, *rest, ctx.dropout
    )
    if has_one_gradient(z_TD.dtype, normed_gradient_TD.dtype, ctx.dropout):
        y_gradient_TD = x_gradient_TD
    return x_gradient_TD, y_gradient_TD, *sums_3D.unbind(0), None, None, None


_fused_dropout_add_norm.register_autograd(_backward, setup_context=_setup_context)
