"""Queries, keys and values: one matrix product makes them side by side, attention reads them apart.

Backwards their three gradients are laid side by side again, and the gradient of the bias is the sum of that over all
tokens. On CUDA in half precision one kernel does both on one way through memory (`qkv_kernel.py`). Elsewhere it is
written out.

Shapes: T tokens, D width of the stream, H heads, C width of a head.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hornbook.nn.residual import is_fused


def queries_keys_values(x_TD: Tensor, linear: nn.Module, num_heads: int) -> Tensor:
    """T x 3 x H x C."""
    return linear(x_TD).unflatten(-1, (3, num_heads, -1))


def split_qkv(x_TD: Tensor, linear: nn.Module, num_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """The same as three, T x H x C."""
    if not is_fused(x_TD, linear):
        return queries_keys_values(x_TD, linear, num_heads).unbind(1)
    qkv_T3HC = F.linear(x_TD, linear.weight, linear.bias.detach()).unflatten(-1, (3, num_heads, -1))
    return _Apart.apply(qkv_T3HC, linear.bias)


class _Apart(torch.autograd.Function):
    """Its second input has been added to the first before, where nothing looked for its gradient."""

    @staticmethod
    def forward(ctx, qkv_T3HC: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
        return qkv_T3HC.unbind(1)

    @staticmethod
    def backward(ctx, q_gradient_THC: Tensor, k_gradient_THC: Tensor, v_gradient_THC: Tensor) -> tuple[Tensor, Tensor]:
        return _side_by_side(q_gradient_THC, k_gradient_THC, v_gradient_THC)


@torch.library.custom_op("hornbook::side_by_side", mutates_args=())
def _side_by_side(q_THC: Tensor, k_THC: Tensor, v_THC: Tensor) -> tuple[Tensor, Tensor]:
    """T x 3 x H x C, and its sum over the tokens in float32, 3HC."""
    from hornbook.nn.qkv_kernel import side_by_side

    return side_by_side(q_THC.contiguous(), k_THC.contiguous(), v_THC.contiguous())


@_side_by_side.register_fake
def _(q_THC, k_THC, v_THC):
    num_tokens, *head = q_THC.shape
    return (
        q_THC.new_empty(num_tokens, 3, *head),
        q_THC.new_empty(3 * q_THC.shape[1] * q_THC.shape[2], dtype=torch.float32),
    )
