"""The Transformer block that every model is a stack of, and its attention over a packed batch.

Post-norm, as in BERT: x = norm(x + sublayer(x)). Pre-norm, as in GPT-2: x = x + sublayer(norm(x)).

Each sequence attends within itself, without a padding mask. On CUDA in half precision this is one variable-length
FlashAttention kernel, or, when training on Hopper GPUs, a dense cuDNN kernel if all sequences have the same length of
at least 512 tokens, heads are at most 128 wide and there is no window. Elsewhere it is a loop over runs of equally long
sequences, each with unmasked attention, which on a CPU is 1.9 to 2.4 x faster than padding and masking.

Shapes: T tokens, N sequences, S sequence length, D width, I inner width, H heads, C = D / H head width.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hornbook.nn.fused_ops import dropout_add_norm, linear_activation, project_qkv, project_qkv_stacked
from hornbook.nn.kv_cache import KeyValueCache

Direction = Literal["bidirectional", "causal"]
FLASH_MULTIPLE, FLASH_WIDEST = 8, 256  # head widths that the FlashAttention kernel supports
DENSE_WIDEST, DENSE_SHORTEST = 128, 512  # head width and sequence length from which cuDNN is used
HOPPER = 9  # major compute capability
_ATTENTION, _FFN = ("attention", "attention_norm"), ("fc1", "fc2", "norm")
SHARED_PARTS = {"none": (), "attention": _ATTENTION, "ffn": _FFN, "all": _ATTENTION + _FFN}


class PackedLayout(NamedTuple):
    """The sequences of a packed batch, as attention needs them."""

    offsets: Tensor | None  # int32, N + 1, on the device: FlashAttention's cu_seqlens; None: all have `max_length`
    offsets_host: np.ndarray | None  # the same on the host; may be None if `runs_flash`
    max_length: int  # upper bound on the sequence lengths
    num_causal: int | None = None  # as in `Batch`


class SelfAttention(nn.Module):
    """Self-attention within each sequence, with queries, keys and values from one matrix product.

    `forward` stops before the output projection `out`, which `Block` fuses with dropout, residual and norm.
    """

    def __init__(self, width: int, num_heads: int, dropout: float, direction: Direction, window: int | None = None):
        super().__init__()
        self.num_heads = num_heads
        self.dropout = dropout
        self.direction = direction
        self.window = window
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(
        self,
        x_TD: Tensor,
        layout: PackedLayout,
        cache: KeyValueCache | None = None,
        qkv: list[Tensor] | None = None,
    ) -> Tensor:
        """The attended values before the output projection, T x D.

        `cache`: the keys and values are written to it; in a decoding step the tokens attend to its contents.
        `qkv`: a list to which the queries, keys and values are appended, T x 3 x H x C.
        """
        if qkv is None and cache is None:
            q, k, v = project_qkv(x_TD, self.qkv, self.num_heads)
        else:
            qkv_T3HC = project_qkv_stacked(x_TD, self.qkv, self.num_heads)
            q, k, v = qkv_T3HC.unbind(1)
        if qkv is not None:
            qkv.append(qkv_T3HC)
        if cache is not None:
            cache.write(qkv_T3HC[:, 1:])
            if cache.attends:
                return cache.attend(q, self.window).flatten(1)
        dropout = self.dropout if self.training else 0.0
        return attention(q, k, v, layout, self.direction, dropout, self.window).flatten(1)


class Block(nn.Module):
    """Self-attention, then a feed-forward network of `inner_width`, each with dropout and a residual connection, and
    with a layer norm after the sum or, if `pre_norm`, before the sublayer."""

    def __init__(
        self,
        width: int,
        num_heads: int,
        inner_width: int,
        activation: str,
        dropout: float,
        attention_dropout: float,
        norm_eps: float,
        direction: Direction = "bidirectional",
        pre_norm: bool = False,
        window: int | None = None,
    ):
        super().__init__()
        self.pre_norm = pre_norm
        self.activation = activation
        self.dropout = dropout
        self.attention = SelfAttention(width, num_heads, attention_dropout, direction, window)
        self.attention_norm = nn.LayerNorm(width, norm_eps)
        self.fc1 = nn.Linear(width, inner_width)
        self.fc2 = nn.Linear(inner_width, width)
        self.norm = nn.LayerNorm(width, norm_eps)

    def forward(
        self,
        x_TD: Tensor,
        normed_TD: Tensor | None,
        next_norm: nn.LayerNorm | None,
        layout: PackedLayout,
        cache: KeyValueCache | None = None,
        qkv: list[Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The residual stream after this block, T x D, and the input of the next block's attention, T x D.

        With pre-norm the second result is `next_norm` (required) of the first. It is computed here because it can be
        fused with the residual addition, which saves a pass over memory. `normed_TD` is that result of the previous
        block, None for the first block. With post-norm both results are the same, and neither argument is used.
        `cache` and `qkv` as in `SelfAttention`.
        """
        dropout = self.dropout if self.training else 0.0
        out = self.attention.out
        if self.pre_norm:
            normed_TD = self.attention_norm(x_TD) if normed_TD is None else normed_TD
            attended_TD = self.attention(normed_TD, layout, cache, qkv)
            x_TD, normed_TD = dropout_add_norm(x_TD, attended_TD, out, self.norm, dropout)
            h_TI = linear_activation(normed_TD, self.fc1, self.activation)
            return dropout_add_norm(x_TD, h_TI, self.fc2, next_norm, dropout)
        # Under autocast layer norm returns float32; casting back to the input's dtype halves the memory traffic.
        dtype = x_TD.dtype
        attended_TD = self.attention(x_TD, layout, cache, qkv)
        x_TD = dropout_add_norm(x_TD, attended_TD, out, self.attention_norm, dropout)[1].to(dtype)
        h_TI = linear_activation(x_TD, self.fc1, self.activation)
        x_TD = dropout_add_norm(x_TD, h_TI, self.fc2, self.norm, dropout)[1].to(dtype)
        return x_TD, x_TD


def stack(
    num_layers: int, sharing: str = "none", windows: Sequence[int | None] = (None,), **block_arguments
) -> nn.ModuleList:
    """`num_layers` blocks. `sharing` names the weights that all blocks share: `none`, `all`, only the `attention`, or
    only the feed-forward network (`ffn`). The attention `windows` are assigned to the blocks in rotation."""
    if sharing == "all":
        return nn.ModuleList([Block(**block_arguments)] * num_layers)
    blocks = nn.ModuleList(Block(**block_arguments, window=windows[i % len(windows)]) for i in range(num_layers))
    for block in blocks[1:]:
        for part in SHARED_PARTS[sharing]:
            setattr(block, part, getattr(blocks[0], part))
    return blocks


def initialize(module: nn.Module, std: float, generator: torch.Generator, linear_scale: float = 1.0) -> None:
    """BERT's initialisation: linear and embedding weights from a normal truncated at two standard deviations, biases 0,
    norms 1. The standard deviation of linear weights is multiplied by `linear_scale`."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            part_std = std * linear_scale if isinstance(part, nn.Linear) else std
            nn.init.trunc_normal_(part.weight, std=part_std, a=-2 * part_std, b=2 * part_std, generator=generator)
        if isinstance(part, nn.Linear) and part.bias is not None:
            nn.init.zeros_(part.bias)
        if isinstance(part, nn.LayerNorm):
            nn.init.ones_(part.weight)
            nn.init.zeros_(part.bias)
        if isinstance(part, nn.Conv1d | nn.LSTM):  # not in the papers: PyTorch's default
            bound = (part.hidden_size if isinstance(part, nn.LSTM) else part.weight[0].numel()) ** -0.5
            for parameter in part.parameters():
                nn.init.uniform_(parameter, -bound, bound, generator=generator)


def attention(
    q_THC: Tensor,
    k_THC: Tensor,
    v_THC: Tensor,
    layout: PackedLayout,
    direction: Direction = "bidirectional",
    dropout: float = 0.0,
    window: int | None = None,
) -> Tensor:
    """softmax(q k / sqrt(C)) v within each sequence, T x H x C.

    `direction`: `bidirectional`, or `causal`: attend only to the token itself and those before it. With
    `layout.num_causal`, the first `num_causal` tokens, which are whole sequences, have causal attention and all others
    bidirectional.
    `window`: with causal attention, attend to at most `window` tokens: the token and the `window` - 1 before it.
    """
    offsets, offsets_host, max_length, num_causal = layout
    if num_causal is not None:
        if 0 < num_causal < len(q_THC):
            return _two_directions(q_THC, k_THC, v_THC, layout, dropout)
        direction = "causal" if num_causal else "bidirectional"
    causal = direction == "causal"
    assert causal or window is None
    if window is not None and window >= max_length:
        window = None
    if offsets is None:
        if window is None and q_THC.shape[-1] <= DENSE_WIDEST:
            return _cudnn(q_THC, k_THC, v_THC, max_length, causal, dropout)
        offsets = torch.arange(0, len(q_THC) + 1, max_length, dtype=torch.int32, device=q_THC.device)
    if runs_flash(q_THC):
        return _flash(q_THC, k_THC, v_THC, offsets, max_length, causal, dropout, window)
    return _by_length(q_THC, k_THC, v_THC, offsets_host, causal, dropout, window)


def _two_directions(q: Tensor, k: Tensor, v: Tensor, layout: PackedLayout, dropout: float) -> Tensor:
    """Causal attention in the first `num_causal` tokens, bidirectional in the others."""
    offsets, offsets_host, max_length, num_causal = layout
    # `split` as in `_by_length`. In each part, the sequences of the other one have length 0.
    sizes = [num_causal, len(q) - num_causal]
    first_qkv, last_qkv = zip(*(x.split(sizes) for x in (q, k, v)), strict=True)
    first = None if offsets is None else offsets.clamp(max=num_causal)
    last = None if offsets is None else offsets.clamp(min=num_causal) - num_causal
    first_host = None if offsets_host is None else np.minimum(offsets_host, num_causal)
    last_host = None if offsets_host is None else np.maximum(offsets_host, num_causal) - num_causal
    causal = attention(*first_qkv, PackedLayout(first, first_host, max_length), "causal", dropout)
    bidirectional = attention(*last_qkv, PackedLayout(last, last_host, max_length), "bidirectional", dropout)
    return torch.cat([causal, bidirectional])


def runs_flash(x: Tensor) -> bool:
    """Whether tensors like `x` go through the FlashAttention kernel, which reads only the offsets on the device."""
    return x.is_cuda and x.dtype in (torch.bfloat16, torch.float16)


def prefers_dense(length: int) -> bool:
    """Whether a batch in which every sequence has this length should use cuDNN (by passing `offsets=None`). Only in
    training, where shapes recur, as cuDNN builds a plan for each shape."""
    return length >= DENSE_SHORTEST and torch.is_grad_enabled() and _has_fast_cudnn()


@lru_cache(maxsize=1)
def _has_fast_cudnn() -> bool:
    """cuDNN's kernels are written for Hopper; on other GPUs they are no faster than FlashAttention."""
    return torch.cuda.get_device_capability()[0] == HOPPER and torch.backends.cudnn.is_available()


def _cudnn(q: Tensor, k: Tensor, v: Tensor, length: int, causal: bool, dropout: float) -> Tensor:
    width = q.shape[-1]
    q_NHSC, k_NHSC, v_NHSC = (widened(each).unflatten(0, (-1, length)).transpose(1, 2) for each in (q, k, v))
    out_NHSC, *_ = torch.ops.aten._scaled_dot_product_cudnn_attention(
        q_NHSC, k_NHSC, v_NHSC, None, torch.is_grad_enabled(), dropout, causal, False, scale=width**-0.5
    )
    return out_NHSC.transpose(1, 2).flatten(0, 1)[..., :width]


def _flash(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    offsets: Tensor,
    max_length: int,
    causal: bool,
    dropout: float,
    window: int | None,
) -> Tensor:
    width = q.shape[-1]
    if width > FLASH_WIDEST:
        raise ValueError(
            f"on CUDA the head width (model.width / model.num_heads) must be at most {FLASH_WIDEST}, not {width}: "
            "raise model.num_heads"
        )
    q, k, v = (widened(each) for each in (q, k, v))
    # torch.nn.attention.varlen.varlen_attn has no dropout; the operator beneath it does.
    band = {} if window is None else {"window_size_left": window - 1, "window_size_right": 0}
    out, *_ = torch.ops.aten._flash_attention_forward(
        q, k, v, offsets, offsets, max_length, max_length, dropout, causal, False, scale=width**-0.5, **band
    )
    return out[..., :width]


def widened(x_THC: Tensor) -> Tensor:
    """Pads the heads with zeros to a width that the kernel supports. Zeros do not change the products of queries and
    keys; the padded columns of the values are cut off the result."""
    missing = -x_THC.shape[-1] % FLASH_MULTIPLE
    return F.pad(x_THC, (0, missing)) if missing else x_THC


def _by_length(
    q: Tensor, k: Tensor, v: Tensor, offsets_host: np.ndarray, causal: bool, dropout: float, window: int | None
) -> Tensor:
    """One call per run of consecutive sequences of the same length; sequences sorted by length make few runs."""
    lengths = np.diff(offsets_host)
    firsts = np.flatnonzero(np.diff(lengths, prepend=-1))
    shapes = [
        (int(last - first), int(lengths[first]))
        for first, last in zip(firsts, [*firsts[1:], len(lengths)], strict=True)
    ]
    # `split` instead of slicing: the backward of each slice would fill and add a tensor of the whole batch's size.
    runs = zip(*(x.split([num * length for num, length in shapes]) for x in (q, k, v)), strict=True)
    out = []
    for shape, run in zip(shapes, runs, strict=True):
        if shape[1]:
            q_NHSC, k_NHSC, v_NHSC = (x.unflatten(0, shape).transpose(1, 2) for x in run)
            out.append(_dense(q_NHSC, k_NHSC, v_NHSC, causal, dropout, window).transpose(1, 2).flatten(0, 1))
    return torch.cat(out) if out else torch.empty_like(q)


def _dense(q_NHSC: Tensor, k_NHSC: Tensor, v_NHSC: Tensor, causal: bool, dropout: float, window: int | None) -> Tensor:
    if window is not None:
        mask_SS = q_NHSC.new_ones(q_NHSC.shape[-2], q_NHSC.shape[-2], dtype=torch.bool).tril().triu(1 - window)
        return F.scaled_dot_product_attention(q_NHSC, k_NHSC, v_NHSC, mask_SS, dropout)
    if not dropout or causal or q_NHSC.is_cuda:
        return F.scaled_dot_product_attention(q_NHSC, k_NHSC, v_NHSC, dropout_p=dropout, is_causal=causal)
    # With dropout there is no fused CPU kernel, and PyTorch's fallback makes twice as many passes as this.
    scores_NHSS = (q_NHSC * q_NHSC.shape[-1] ** -0.5) @ k_NHSC.transpose(-2, -1)
    return F.dropout(scores_NHSS.softmax(-1), dropout) @ v_NHSC
