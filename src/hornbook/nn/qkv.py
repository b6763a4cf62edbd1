"""Queries, keys and values, computed by one matrix product and then split for attention.

The backward pass concatenates the three gradients, and sums the result over all tokens for the gradient of the bias. On
CUDA in half precision one kernel does both in one pass over memory (`qkv_kernel.py`). Elsewhere plain PyTorch is used.

Shapes: T tokens, D model width, H heads, C head width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hornbook.nn.residual import is_fused


def queries_keys_values(x_TD: Tensor, linear: nn.Module, num_heads: int) -> Tensor:
    """Queries, keys and values in one tensor, T x 3 x H x C."""
    return linear(x_TD).unflatten(-1, (3, num_heads, -1))


def split_qkv(x_TD: Tensor, linear: nn.Module, num_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values as three tensors, each T x H x C."""
    if not is_fused(x_TD, linear):
        return queries_keys_values(x_TD, linear, num_heads).unbind(1)
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
    from hornbook.nn.kernels.qkv import concat_qkv

    return concat_qkv(q_THC.contiguous(), k_THC.contiguous(), v_THC.contiguous())


@_concat_qkv.register_fake
def _(q_THC, k_THC, v_THC):
    num_tokens, *head = q_THC.shape
    return (
        q_THC.new_empty(num_tokens, 3, *head),
        q_THC.new_empty(3 * q_THC.shape[1] * q_THC.shape[2], dtype=torch.float32),
    )
