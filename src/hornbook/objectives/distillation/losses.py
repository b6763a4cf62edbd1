"""The loss of each kind of match per target; they are defined in `objectives/distillation/matching.py`.

On CUDA in half precision, squared errors and their gradients are computed by kernels that do not store attention scores
(`nn/kernels/losses.py`): on an H200 they reduce a step of TinyBERT's first stage to 0.6 of the time.

Shapes: T tokens, N sequences, S longest sequence, K targets, D width, H heads, C head width, V logits per row.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from hornbook.batch import Batch
from hornbook.models.head_config import MASKED_LOGIT, HeadConfig
from hornbook.models.heads import HEADS, to_padded, upcast
from hornbook.nn import kernels
from hornbook.objectives.distillation.matching import Match

QUERIES, KEYS, VALUES = 0, 1, 2
FACTORS = {  # the two factors of each product
    "attention": (QUERIES, KEYS),
    "query-relations": (QUERIES, QUERIES),
    "key-relations": (KEYS, KEYS),
    "value-relations": (VALUES, VALUES),
}
QKV_INDEX = {"queries": QUERIES, "keys": KEYS, "values": VALUES}
WIDEST_VECTOR, WIDEST_HEAD = 8192, 128  # limits of the kernels


def vector_losses(loss: str, student_KD: Tensor, teacher_KD: Tensor) -> Tensor:
    """The loss of each pair of vectors, K."""
    student_KD, teacher_KD = upcast(student_KD), upcast(teacher_KD)
    if loss == "cosine":
        return 1 - F.cosine_similarity(student_KD, teacher_KD, dim=-1)
    return ((student_KD - teacher_KD) ** 2).mean(-1)


def vector_sum(loss: str, student_KD: Tensor, teacher_KD: Tensor, weights_K: Tensor) -> Tensor:
    """The weighted sum of `vector_losses`."""
    if loss == "mse" and kernels.use_triton(student_KD) and len(student_KD) and student_KD.shape[-1] <= WIDEST_VECTOR:
        from hornbook.nn.kernels.losses import squared_vector_error

        student_KD, teacher_KD = student_KD.contiguous(), teacher_KD.contiguous()
        return _WithGradient.apply(
            student_KD, lambda: squared_vector_error(student_KD, teacher_KD, weights_K.contiguous())
        )
    return (vector_losses(loss, student_KD, teacher_KD) * weights_K).sum()


class _WithGradient(torch.autograd.Function):
    """A loss whose gradient is computed in the forward pass: `compute()` returns both."""

    @staticmethod
    def forward(ctx, student: Tensor, compute: Callable[[], tuple[Tensor, Tensor]]) -> Tensor:
        total, gradient = compute()
        ctx.save_for_backward(gradient)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx, outer: Tensor) -> tuple[Tensor, None]:
        from hornbook.nn.kernels.losses import scaled

        (gradient,) = ctx.saved_tensors
        return scaled(gradient, outer, gradient.dtype), None


def row_losses(loss: str, student_KV: Tensor, teacher_KV: Tensor, temperature: float, dim: int = -1) -> Tensor:
    """The loss of each row of logits along `dim`, K."""
    student_KV, teacher_KV = upcast(student_KV), upcast(teacher_KV)
    if loss == "mse":  # masked logits are MASKED_LOGIT on both sides
        squared = (student_KV - teacher_KV) ** 2
        return squared.sum(dim) / (teacher_KV > MASKED_LOGIT / 2).sum(dim).clamp(min=1)
    log_student, log_teacher = ((each / temperature).log_softmax(dim) for each in (student_KV, teacher_KV))
    probabilities = log_teacher.exp()
    losses = (probabilities * (log_teacher - log_student)) if loss == "kl" else -probabilities * log_student
    return losses.sum(dim) * temperature**2


def relation_sum(
    match: Match, student_T3HC: Tensor, teacher_T3HC: Tensor, batch: Batch, weights_T: Tensor, direction: str
) -> Tensor:
    """The loss of attention scores or relations within each sequence: the mean over heads, summed over the attending
    tokens with `weights_T`."""
    if match.loss == "mse" and match.heads != "mean" and kernels.use_triton(student_T3HC):
        teacher_T3HC = teacher_T3HC.to(student_T3HC.dtype)  # cached teacher outputs are float32
        student_T3HC, teacher_T3HC = (_resplit(match, each).contiguous() for each in (student_T3HC, teacher_T3HC))
        if len(student_T3HC) and max(student_T3HC.shape[-1], teacher_T3HC.shape[-1]) <= WIDEST_HEAD:
            return _fused_relation_sum(match, student_T3HC, teacher_T3HC, batch, weights_T, direction)
    student_NHSS, mask_NS = relation_scores(match, student_T3HC, batch)
    teacher_NHSS, _ = relation_scores(match, teacher_T3HC, batch)
    mask_NSS = mask_NS[:, None, :].expand(-1, batch.max_length, -1)
    if direction == "causal":
        mask_NSS = mask_NSS.tril()
    if match.loss == "mse":
        squared_NHSS = (student_NHSS - teacher_NHSS) ** 2 * mask_NSS[:, None]
        losses_NHS = squared_NHSS.sum(-1) / mask_NSS.sum(-1).clamp(min=1)[:, None]
    else:
        student_NHSS, teacher_NHSS = (
            each.masked_fill(~mask_NSS[:, None], MASKED_LOGIT) for each in (student_NHSS, teacher_NHSS)
        )
        losses_NHS = row_losses(match.loss, student_NHSS, teacher_NHSS, match.temperature)
    weights_NS = to_padded(weights_T[:, None], batch)[0][..., 0] * mask_NS
    return (losses_NHS.mean(1) * weights_NS).sum()


def _fused_relation_sum(
    match: Match, student_T3HC: Tensor, teacher_T3HC: Tensor, batch: Batch, weights_T: Tensor, direction: str
) -> Tensor:
    from hornbook.nn.kernels.losses import squared_relation_error

    arguments = (weights_T.contiguous(), batch.offsets, batch.max_length, FACTORS[match.quantity], direction)
    return _WithGradient.apply(student_T3HC, lambda: squared_relation_error(student_T3HC, teacher_T3HC, *arguments))


def _resplit(match: Match, qkv_T3HC: Tensor) -> Tensor:
    """Resplits the queries, keys and values into `match.heads` heads, if it is a number."""
    return qkv_T3HC.flatten(2).unflatten(2, (int(match.heads), -1)) if match.heads.isdigit() else qkv_T3HC


def relation_scores(match: Match, qkv_T3HC: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Products of queries, keys or values within each sequence / sqrt(C), N x H x S x S; and the token mask, N x S."""
    qkv_T3HC = _resplit(match, qkv_T3HC)
    first, second = FACTORS[match.quantity]
    x_NSHC, mask_NS = to_padded(qkv_T3HC[:, first], batch)
    y_NSHC = x_NSHC if first == second else to_padded(qkv_T3HC[:, second], batch)[0]
    scores_NHSS = (x_NSHC.transpose(1, 2) * x_NSHC.shape[-1] ** -0.5) @ y_NSHC.permute(0, 2, 3, 1)
    scores_NHSS = upcast(scores_NHSS)
    return (scores_NHSS.mean(1, keepdim=True) if match.heads == "mean" else scores_NHSS), mask_NS


def output_losses(head_config: HeadConfig, match: Match, student: Tensor, teacher: Tensor) -> Tensor:
    """The loss of each target of a task, from the outputs of the task head (shapes in `models/head_config.py`)."""

    def losses(student: Tensor, teacher: Tensor, dim: int = -1, is_binary: bool = False) -> Tensor:
        if is_binary and match.loss != "mse":  # each class is a binary choice with logits x and 0
            student, teacher = (torch.stack([each, torch.zeros_like(each)], -1) for each in (student, teacher))
            return row_losses(match.loss, student, teacher, match.temperature).mean(-1)
        return row_losses(match.loss, student, teacher, match.temperature, dim=dim)

    return HEADS[head_config.output].match_losses(head_config, student, teacher, losses)
