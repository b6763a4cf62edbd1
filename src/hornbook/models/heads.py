"""The task heads that compute the outputs of `models/head_config.py`, for any family: one class per kind of output.

A head maps the hidden states of a packed batch to its outputs; families supply the pooled vectors. Its class also has
the loss on labels and on a teacher's outputs, and the form of the outputs of a padded model and in cached rows.

Shapes: T tokens, N sequences, S longest sequence, D width, L labels, C choices, K targets.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hornbook.batch import Batch
from hornbook.models.head_config import MASKED_LOGIT, HeadConfig

TokenPooling = Literal["cls", "lasttoken"]  # the first or the last token, as in `sentence-transformers`
RowLosses = Callable[..., Tensor]  # (our logits, a teacher's, dim) to the loss of each row
CNN_WINDOWS, CNN_CHANNELS = (2, 3, 4), 100


class PoolingLayer(nn.Module):
    """Dropout, dense layer and activation over the token that represents a sequence, new for every task."""

    def __init__(self, width: int, activation: Callable[[Tensor], Tensor], dropout: float):
        super().__init__()
        self.dropout, self.activation = nn.Dropout(dropout), activation
        self.dense = nn.Linear(width, width)

    def forward(self, token_ND: Tensor) -> Tensor:
        return self.activation(self.dense(self.dropout(token_ND)))


class TaskHead(nn.Module):
    """The head of one kind of output; defaults are those of logits of classes, one row per target.

    Heads are built from a model config, the output, the `pooling` layer of families without a pre-trained pooler,
    and whether the family has a bias in the last layer over whole sequences.
    """

    def __init__(self, dropout: float = 0.0, pooling: PoolingLayer | None = None):
        super().__init__()
        self.dropout, self.cls = nn.Dropout(dropout), pooling  # saved under this name

    @staticmethod
    def losses(head_config: HeadConfig, outputs: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """(loss, whether the prediction is correct) of each target, K each."""
        return F.cross_entropy(outputs, values, reduction="none"), outputs.argmax(-1) == values

    @staticmethod
    def match_losses(head_config: HeadConfig, student: Tensor, teacher: Tensor, row_losses: RowLosses) -> Tensor:
        """The loss of each target, K, on the outputs of a teacher."""
        return row_losses(student, teacher)

    @staticmethod
    def padded_names(head_config: HeadConfig) -> tuple[str, ...]:
        """Names of the outputs of a padded model (`models/padded.py`)."""
        return ("logits",)

    @staticmethod
    def to_padded_outputs(head_config: HeadConfig, logits: Tensor, shape_NS: tuple[int, int]) -> tuple[Tensor, ...]:
        """The outputs of N sequences padded to S tokens, in the order of `padded_names`."""
        return (logits,)

    @staticmethod
    def from_padded_outputs(outputs: Sequence[np.ndarray], mask_NS: np.ndarray) -> np.ndarray:
        """The outputs of the head from those of a padded model: the inverse of `to_padded_outputs`."""
        return outputs[0]

    @staticmethod
    def cache_widths(head_config: HeadConfig, group_size: int) -> tuple[int, int]:
        """Numbers per group and per token in the cached rows of a teacher."""
        return head_config.num_labels, 0

    @staticmethod
    def to_cache_rows(outputs: Tensor, batch: Batch) -> Tensor:
        """Outputs as they are cached: one row per token or, if they are not of tokens, per group."""
        return outputs

    @staticmethod
    def from_cache_rows(rows: Tensor, batch: Batch) -> Tensor:
        """The inverse of `to_cache_rows`."""
        return rows


class SequenceHead(TaskHead):
    """Logits from the pooled `[CLS]` (linear, mlp), from pairs of them, or from all tokens (cnn, bilstm, attention)."""

    def __init__(self, config, head_config: HeadConfig, pooling: PoolingLayer | None, with_bias: bool):
        super().__init__(config.head_dropout, pooling)
        self.head_config = head_config
        features = width = config.width
        if head_config.pair_encoding == "separate":
            features = 3 * width
        elif head_config.layers == "mlp":
            self.inner = nn.Linear(width, width)
        elif head_config.layers == "cnn":
            self.convolutions = nn.ModuleList(nn.Conv1d(width, CNN_CHANNELS, window) for window in CNN_WINDOWS)
            features = CNN_CHANNELS * len(CNN_WINDOWS)
        elif head_config.layers == "bilstm":
            self.lstm = nn.LSTM(width, width // 2, batch_first=True, bidirectional=True)
            features = 2 * (width // 2)
        elif head_config.layers == "attention":
            self.inner, self.query = nn.Linear(width, width), nn.Linear(width, 1, bias=False)
        self.out = nn.Linear(features, head_config.num_labels, bias=with_bias)

    def forward(self, x_TD: Tensor, batch: Batch, pooled_ND: Tensor | None) -> Tensor:
        features = self.dropout(self._features(x_TD, batch, pooled_ND))
        if self.head_config.problem_type != "regression":
            return self.out(features)
        return self._number(features) * self.head_config.scale

    def _number(self, features: Tensor) -> Tensor:
        """Numbers are in at least float32: in bfloat16, those around 2,000 would have steps of 8."""
        if torch.is_autocast_enabled(features.device.type):
            with torch.autocast(features.device.type, enabled=False):
                return self.out(upcast(features))
        return self.out(features)

    def _features(self, x_TD: Tensor, batch: Batch, pooled_ND: Tensor | None) -> Tensor:
        if self.head_config.pair_encoding == "separate":  # u, v, |u - v|, as in Sentence-BERT
            u, v = pooled_ND.unflatten(0, (-1, 2)).unbind(1)
            return torch.cat([u, v, (u - v).abs()], -1)
        if self.head_config.pair_encoding == "both":
            return pooled_ND.unflatten(0, (-1, 2)).sum(1)
        if self.head_config.layers == "linear":
            return pooled_ND
        if self.head_config.layers == "mlp":
            return torch.tanh(self.inner(self.dropout(pooled_ND)))
        x_NSD, mask_NS = to_padded(x_TD, batch)
        return getattr(self, f"_{self.head_config.layers}")(x_NSD, mask_NS)

    def _cnn(self, x_NSD: Tensor, mask_NS: Tensor) -> Tensor:
        """Kim 2014: convolutions over 2, 3 and 4 tokens, with max pooling over the tokens where they start."""
        x_NDS = (x_NSD * mask_NS[..., None]).transpose(1, 2)
        x_NDS = nn.functional.pad(x_NDS, (0, max(CNN_WINDOWS) - 1))
        channels = [convolve(x_NDS)[..., : mask_NS.shape[1]].relu() for convolve in self.convolutions]
        return torch.cat([(x * mask_NS[:, None]).amax(-1) for x in channels], -1)

    def _bilstm(self, x_NSD: Tensor, mask_NS: Tensor) -> Tensor:
        """The last state of each direction."""
        lengths = mask_NS.sum(1).clamp(min=1).cpu()
        packed = nn.utils.rnn.pack_padded_sequence(upcast(x_NSD), lengths, batch_first=True, enforce_sorted=False)
        _, (last, _) = self.lstm(packed)
        return torch.cat([last[0], last[1]], -1)

    def _attention(self, x_NSD: Tensor, mask_NS: Tensor) -> Tensor:
        """A weighted mean of the tokens, by attention with a learned query."""
        scores_NS = upcast(self.query(torch.tanh(self.inner(x_NSD)))[..., 0]).masked_fill(~mask_NS, MASKED_LOGIT)
        return (scores_NS.softmax(-1).to(x_NSD.dtype)[..., None] * x_NSD).sum(1)

    @staticmethod
    def losses(head_config: HeadConfig, outputs: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        if head_config.problem_type == "regression":
            errors = outputs[:, 0] - values
            return (errors / head_config.scale) ** 2, errors.abs() < 0.5
        if head_config.problem_type == "multi_label_classification":
            losses = F.binary_cross_entropy_with_logits(outputs, values.to(outputs.dtype), reduction="none").mean(-1)
            return losses, ((outputs > 0) == (values > 0.5)).all(-1)
        return TaskHead.losses(head_config, outputs, values)

    @staticmethod
    def match_losses(head_config: HeadConfig, student: Tensor, teacher: Tensor, row_losses: RowLosses) -> Tensor:
        if head_config.problem_type == "regression":
            return ((upcast(student) - upcast(teacher))[:, 0] / head_config.scale) ** 2
        return row_losses(student, teacher, is_binary=head_config.problem_type == "multi_label_classification")


class ChoiceHead(TaskHead):
    """One logit from the pooled `[CLS]` of every choice; the softmax runs over the choices of a question."""

    def __init__(self, config, head_config: HeadConfig, pooling: PoolingLayer | None, with_bias: bool):
        super().__init__(config.head_dropout, pooling)
        self.out = nn.Linear(config.width, 1)

    def forward(self, x_TD: Tensor, batch: Batch, pooled_ND: Tensor | None) -> Tensor:
        return self.out(self.dropout(pooled_ND)).view(-1, batch.group_size)

    @staticmethod
    def cache_widths(head_config: HeadConfig, group_size: int) -> tuple[int, int]:
        return group_size, 0


class TokenHead(TaskHead):
    """A linear layer on every token."""

    def __init__(self, config, head_config: HeadConfig, pooling: PoolingLayer | None, with_bias: bool):
        super().__init__(config.token_head_dropout)
        self.out = nn.Linear(config.width, head_config.num_labels)

    def forward(self, x_TD: Tensor, batch: Batch, pooled_ND: Tensor | None) -> Tensor:
        return self.out(self.dropout(x_TD))

    @staticmethod
    def to_padded_outputs(head_config: HeadConfig, logits: Tensor, shape_NS: tuple[int, int]) -> tuple[Tensor, ...]:
        return (logits.unflatten(0, shape_NS),)

    @staticmethod
    def from_padded_outputs(outputs: Sequence[np.ndarray], mask_NS: np.ndarray) -> np.ndarray:
        return outputs[0][mask_NS]

    @staticmethod
    def cache_widths(head_config: HeadConfig, group_size: int) -> tuple[int, int]:
        return 0, head_config.num_labels


class SpanHead(TaskHead):
    """Start and end logits for every token and, if `has_answer_classifier`, a classifier of answerability on the token
    that represents the sequence."""

    def __init__(self, config, head_config: HeadConfig, pooling: PoolingLayer | None, with_bias: bool):
        super().__init__(config.span_head_dropout)
        self.out = nn.Linear(config.width, 2)
        self.answerable = nn.Linear(config.width, 2) if head_config.has_answer_classifier else None

    def forward(self, x_TD: Tensor, batch: Batch, pooled_ND: Tensor | None) -> Tensor:
        logits_NS2, mask_NS = to_padded(self.out(self.dropout(x_TD)), batch)
        logits_NS2 = upcast(logits_NS2).masked_fill(~mask_NS[..., None], MASKED_LOGIT)
        if self.answerable is None:
            return logits_NS2
        has_answer_N2 = self.answerable(pooled_ND)
        return torch.cat([logits_NS2, upcast(has_answer_N2)[:, None]], 1)

    @staticmethod
    def losses(head_config: HeadConfig, outputs: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        spans_KS2 = outputs[:, :-1] if head_config.has_answer_classifier else outputs
        losses = F.cross_entropy(spans_KS2, values, reduction="none").mean(-1)
        is_correct = (spans_KS2.argmax(1) == values).all(-1)
        if head_config.has_answer_classifier:
            has_none = (values[:, 1] == 0).long()
            losses = losses * (1 - has_none) + F.cross_entropy(outputs[:, -1], has_none, reduction="none")
        return losses, is_correct

    @staticmethod
    def match_losses(head_config: HeadConfig, student: Tensor, teacher: Tensor, row_losses: RowLosses) -> Tensor:
        """The mean of the start and end losses, plus that of answerability if it is predicted."""
        ends = slice(None, -1) if head_config.has_answer_classifier else slice(None)
        losses_K = row_losses(student[:, ends], teacher[:, ends], dim=1).mean(-1)
        return losses_K + row_losses(student[:, -1], teacher[:, -1]) if head_config.has_answer_classifier else losses_K

    @staticmethod
    def padded_names(head_config: HeadConfig) -> tuple[str, ...]:
        return ("start_logits", "end_logits", *(("answerable_logits",) if head_config.has_answer_classifier else ()))

    @staticmethod
    def to_padded_outputs(head_config: HeadConfig, logits: Tensor, shape_NS: tuple[int, int]) -> tuple[Tensor, ...]:
        length = shape_NS[1]
        start_NS, end_NS = logits[:, :length].unbind(-1)
        return (start_NS, end_NS, logits[:, length]) if head_config.has_answer_classifier else (start_NS, end_NS)

    @staticmethod
    def from_padded_outputs(outputs: Sequence[np.ndarray], mask_NS: np.ndarray) -> np.ndarray:
        return np.concatenate([np.stack(outputs[:2], -1), *(answerable[:, None] for answerable in outputs[2:])], 1)

    @staticmethod
    def cache_widths(head_config: HeadConfig, group_size: int) -> tuple[int, int]:
        return 0, 2

    @staticmethod
    def to_cache_rows(outputs: Tensor, batch: Batch) -> Tensor:
        return outputs.flatten(0, 1).index_select(0, batch.sequence_T * outputs.shape[1] + batch.positions_T)

    @staticmethod
    def from_cache_rows(rows: Tensor, batch: Batch) -> Tensor:
        logits_NS2, mask_NS = to_padded(rows, batch)
        return logits_NS2.masked_fill(~mask_NS[..., None], MASKED_LOGIT)


class VectorHead(TaskHead):
    """The pooled vector of every text, without weights of its own; texts that are compared are adjacent."""

    def __init__(self, config, head_config: HeadConfig, pooling: PoolingLayer | None, with_bias: bool):
        super().__init__()
        self.pooling = head_config.pooling or "mean"

    def forward(self, x_TD: Tensor, batch: Batch, pooled_ND: Tensor | None) -> Tensor:
        return pool_tokens(x_TD, batch, self.pooling).unflatten(0, (-1, batch.group_size))

    @staticmethod
    def losses(head_config: HeadConfig, outputs: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """The squared error of the cosine of the first two texts; without a score, its distance from 1."""
        cosines_K = F.cosine_similarity(outputs[:, 0], outputs[:, 1], dim=-1)
        errors_K = cosines_K - values if values.is_floating_point() else cosines_K - 1
        return errors_K.square(), errors_K.abs() < 0.1


HEADS: dict[str, type[TaskHead]] = {
    "sequence": SequenceHead,
    "choice": ChoiceHead,
    "tokens": TokenHead,
    "spans": SpanHead,
    "vectors": VectorHead,
}


def to_padded(x_TD: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """The sequences padded to the longest, N x S x D, and the mask of real tokens, N x S. Padding repeats other
    tokens."""
    offsets = batch.offsets.long()
    positions_S = torch.arange(batch.max_length, device=x_TD.device)
    mask_NS = positions_S < batch.lengths_N[:, None]
    indices_NS = (offsets[:-1, None] + positions_S).clamp(max=x_TD.shape[0] - 1)
    # `index_select` has a deterministic backward on a CPU, unlike indexing by a matrix.
    return x_TD.index_select(0, indices_NS.flatten()).unflatten(0, indices_NS.shape), mask_NS


def upcast(x: Tensor) -> Tensor:
    """Half precision to float32; float32 and float64 are unchanged."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def token_indices(x_TD: Tensor, batch: Batch, pooling: TokenPooling) -> Tensor:
    """Index of the first or last token of each sequence, N; for an empty padding sequence at the end, the last token
    before it."""
    if pooling == "cls":
        return batch.offsets[:-1].long().clamp(max=x_TD.shape[0] - 1)
    return batch.offsets[:-1].long() + batch.lengths_N - 1


def pool_tokens(x_TD: Tensor, batch: Batch, pooling: str) -> Tensor:
    """One vector per sequence, N x D, float32: `mean`, `max`, `cls` (first token), `lasttoken`, or
    `mean_sqrt_len_tokens` (sum divided by the root of the number of tokens). Special tokens count; padding sequences
    get arbitrary values."""
    if pooling in ("cls", "lasttoken"):
        return upcast(x_TD[token_indices(x_TD, batch, pooling)])
    if pooling == "max":
        return torch.segment_reduce(upcast(x_TD), "max", lengths=batch.lengths_N, initial=None, unsafe=True)
    sums_ND = torch.segment_reduce(upcast(x_TD), "sum", lengths=batch.lengths_N, unsafe=True)
    lengths_N = batch.lengths_N.clamp(min=1)
    return sums_ND / (lengths_N if pooling == "mean" else lengths_N.sqrt())[:, None]
