"""The operations between the matrix products of a block: queries, keys and values, activation, and the end of a
sublayer. Run separately, they take dozens of passes over memory and a fifth of a training step on a fast GPU. On CUDA,
in training under autocast, each is one kernel in the forward and one in the backward pass, which also computes the
gradient of the bias (`kernels/block.py`). Elsewhere plain PyTorch is used.

Shapes: T tokens, D model width, I inner width, H heads, C head width.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hornbook.nn import kernels

WIDEST = 8192  # longest row that a program can hold
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
}


def is_fused(x_TD: Tensor, linear: nn.Module) -> bool:
    """Whether the operations around this linear layer use our fused kernels."""
    return kernels.use_triton(x_TD) and isinstance(linear, nn.Linear) and x_TD.shape[-1] <= WIDEST


def project_qkv_stacked(x_TD: Tensor, linear: nn.Module, num_heads: int) -> Tensor:
    """Queries, keys and values in one tensor, T x 3 x H x C."""
    return linear(x_TD).unflatten(-1, (3, num_heads, -1))


def project_qkv(x_TD: Tensor, linear: nn.Module, num_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values as three tensors, each T x H x C."""
    if not is_fused(x_TD, linear):
        return project_qkv_stacked(x_TD, linear, num_heads).unbind(1)
    qkv_T3HC = F.linear(x_TD, linear.weight, linear.bias.detach()).unflatten(-1, (3, num_heads, -1))
    return _SplitQkv.apply(qkv_T3HC, linear.bias)


class _SplitQkv(torch.autograd.Function):
    """Splits the queries, keys and values. The first input already contains the bias, detached; the bias is also an
    input of its own so that it receives its gradient here."""

    @staticmethod
    def forward(ctx, qkv_T3HC: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
        return qkv_T3HC.unbind(1)

    @staticmethod
    def backward(ctx, q_gradient_THC: Tensor, k_gradient_THC: Tensor, v_gradient_THC: Tensor) -> tuple[Tensor, Tensor]:
        return _concat_qkv(q_gradient_THC, k_gradient_THC, v_gradient_THC)


@torch.library.custom_op("hornbook::concat_qkv", mutates_args=())
def _concat_qkv(q_THC: Tensor, k_THC: Tensor, v_THC: Tensor) -> tuple[Tensor, Tensor]:
    """The concatenation, T x 3 x H x C, and its sum over the tokens in float32, 3HC."""
    from hornbook.nn.kernels.block import concat_qkv

    return concat_qkv(q_THC.contiguous(), k_THC.contiguous(), v_THC.contiguous())


@_concat_qkv.register_fake
def _(q_THC, k_THC, v_THC):
    num_tokens, *head = q_THC.shape
    return (
        q_THC.new_empty(num_tokens, 3, *head),
        q_THC.new_empty(3 * q_THC.shape[1] * q_THC.shape[2], dtype=torch.float32),
    )


def linear_activation(x_TD: Tensor, linear: nn.Module, activation: str) -> Tensor:
    """activation(linear(x)), T x I."""
    if not is_fused(x_TD, linear) or activation == "relu":
        return ACTIVATIONS[activation](linear(x_TD))
    return _gelu(F.linear(x_TD, linear.weight), linear.bias, activation == "gelu_tanh")


@torch.library.custom_op("hornbook::gelu", mutates_args=())
def _gelu(h_TI: Tensor, bias_I: Tensor, is_tanh: bool) -> Tensor:
    from hornbook.nn.kernels.block import gelu

    return gelu(h_TI.contiguous(), bias_I, is_tanh)


@torch.library.custom_op("hornbook::gelu_backward", mutates_args=())
def _gelu_backward(gradient_TI: Tensor, h_TI: Tensor, bias_I: Tensor, is_tanh: bool) -> tuple[Tensor, Tensor]:
    from hornbook.nn.kernels.block import gelu_backward

    return gelu_backward(gradient_TI.contiguous(), h_TI.contiguous(), bias_I, is_tanh)


@_gelu.register_fake
def _(h_TI, bias_I, is_tanh):
    return torch.empty_like(h_TI)


@_gelu_backward.register_fake
def _(gradient_TI, h_TI, bias_I, is_tanh):
    return torch.empty_like(h_TI), torch.empty_like(bias_I, dtype=torch.float32)


def _gelu_setup_context(ctx, inputs, output) -> None:
    h_TI, bias_I, ctx.is_tanh = inputs
    ctx.save_for_backward(h_TI, bias_I)


def _gelu_gradients(ctx, gradient_TI: Tensor) -> tuple:
    return *_gelu_backward(gradient_TI, *ctx.saved_tensors, ctx.is_tanh), None


_gelu.register_autograd(_gelu_gradients, setup_context=_gelu_setup_context)


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
    from hornbook.nn.kernels.block import dropout_add_norm

    return dropout_add_norm(x_TD.contiguous(), y_TD.contiguous(), y_bias_D, weight_D, bias_D, seed, dropout, eps)


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
    from hornbook.nn.kernels.block import dropout_add_norm_backward

    x_gradient_TD, y_gradient_TD, sums_3D = dropout_add_norm_backward(
        None if z_gradient_TD is None else z_gradient_TD.contiguous(),
        normed_gradient_TD.contiguous(),
        z_TD,
        moments_T2,
        weight_D,
        seed,
        dropout,
    )
    return x_gradient_TD, z_TD.new_empty(0) if y_gradient_TD is None else y_gradient_TD, sums_3D


def has_one_gradient(x_dtype: torch.dtype, y_dtype: torch.dtype, dropout: float) -> bool:
    """Whether x and y have the same gradient."""
    return dropout == 0 and x_dtype == y_dtype


@_fused_dropout_add_norm.register_fake
def _(x_TD, y_TD, y_bias_D, weight_D, bias_D, seed, dropout, eps):
    return torch.empty_like(x_TD), torch.empty_like(y_TD), x_TD.new_empty(x_TD.shape[0], 2, dtype=torch.float32)


@_fused_dropout_add_norm_backward.register_fake
def _(z_gradient_TD, normed_gradient_TD, z_TD, moments_T2, weight_D, seed, dropout):
    is_same = has_one_gradient(z_TD.dtype, normed_gradient_TD.dtype, dropout)
    y_gradient_TD = z_TD.new_empty(0) if is_same else torch.empty_like(z_TD, dtype=normed_gradient_TD.dtype)
    return torch.empty_like(z_TD), y_gradient_TD, z_TD.new_empty(3, z_TD.shape[1], dtype=torch.float32)


def _norm_setup_context(ctx, inputs, output) -> None:
    _, y_TD, _, weight_D, _, seed, ctx.dropout, _ = inputs
    z_TD, _, moments_T2 = output
    ctx.y_dtype = y_TD.dtype
    ctx.save_for_backward(z_TD, moments_T2, weight_D, seed)
    ctx.set_materialize_grads(False)  # z itself may be unused after the norm


def _norm_gradients(ctx, z_gradient_TD: Tensor | None, normed_gradient_TD: Tensor | None, _) -> tuple:
    z_TD, *rest = ctx.saved_tensors
    if normed_gradient_TD is None:  # as when a student matches this layer and no later one
        normed_gradient_TD = torch.zeros_like(z_TD, dtype=ctx.y_dtype)
    x_gradient_TD, y_gradient_TD, sums_3D = _fused_dropout_add_norm_backward(
        z_gradient_TD, normed_gradient_TD, z_TD, *rest, ctx.dropout
    )
    if has_one_gradient(z_TD.dtype, normed_gradient_TD.dtype, ctx.dropout):
        y_gradient_TD = x_gradient_TD
    return x_gradient_TD, y_gradient_TD, *sums_3D.unbind(0), None, None, None


_fused_dropout_add_norm.register_autograd(_norm_gradients, setup_context=_norm_setup_context)
