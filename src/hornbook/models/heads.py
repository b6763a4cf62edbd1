"""The task heads that compute the outputs of `models/outputs.py`, for any family: one class per kind of output.

A head maps the hidden states of a packed batch to its outputs; families supply the pooled vectors. Shapes: T tokens, N
sequences, S longest sequence, D width, L labels, C choices.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from hornbook.batch import Batch
from hornbook.models.outputs import MASKED_LOGIT, Output

CNN_WINDOWS, CNN_CHANNELS = (2, 3, 4), 100


class ClsLayer(nn.Module):
    """Dropout, dense layer and activation over `[CLS]`, newly initialised for every task."""

    def __init__(self, width: int, activation: Callable[[Tensor], Tensor], dropout: float):
        super().__init__()
        self.dropout, self.activation = nn.Dropout(dropout), activation
        self.dense = nn.Linear(width, width)

    def forward(self, cls_ND: Tensor) -> Tensor:
        return self.activation(self.dense(self.dropout(cls_ND)))


def task_head(config, output: Output, cls: ClsLayer | None, scores_with_bias: bool = True) -> nn.Module:
    """The task head for an output; `cls` is the pooling layer of families without a pre-trained pooler."""
    if output.kind == "spans":
        return SpanHead(config.width, output.answerable, config.span_dropout)
    if output.kind == "tokens":
        return TokenHead(config.width, output.num_labels, config.token_dropout)
    if output.kind == "choice":
        return ChoiceHead(config.width, config.head_dropout, cls)
    return SequenceHead(config.width, output, config.head_dropout, cls, scores_with_bias)


class SequenceHead(nn.Module):
    """Logits from the pooled `[CLS]` (linear, mlp), from pairs of them, or from all tokens (cnn, bilstm, attention)."""

    def __init__(self, width: int, output: Output, dropout: float, cls: ClsLayer | None = None, bias: bool = True):
        super().__init__()
        self.output, self.dropout, self.cls = output, nn.Dropout(dropout), cls
        features = width
        if output.pairs == "separate":
            features = 3 * width
        elif output.head == "mlp":
            self.inner = nn.Linear(width, width)
        elif output.head == "cnn":
            self.convolutions = nn.ModuleList(nn.Conv1d(width, CNN_CHANNELS, window) for window in CNN_WINDOWS)
            features = CNN_CHANNELS * len(CNN_WINDOWS)
        elif output.head == "bilstm":
            self.lstm = nn.LSTM(width, width // 2, batch_first=True, bidirectional=True)
            features = 2 * (width // 2)
        elif output.head == "attention":
            self.inner, self.query = nn.Linear(width, width), nn.Linear(width, 1, bias=False)
        self.out = nn.Linear(features, output.num_labels, bias=bias)

    def forward(self, x_TD: Tensor, batch: Batch, pooled_ND: Tensor | None) -> Tensor:
        return self.out(self.dropout(self._features(x_TD, batch, pooled_ND)))

    def _features(self, x_TD: Tensor, batch: Batch, pooled_ND: Tensor | None) -> Tensor:
        if self.output.pairs == "separate":  # u, v, |u - v|, as in Sentence-BERT
            u, v = pooled_ND.unflatten(0, (-1, 2)).unbind(1)
            return torch.cat([u, v, (u - v).abs()], -1)
        if self.output.pairs == "both":
            return pooled_ND.unflatten(0, (-1, 2)).sum(1)
        if self.output.head == "linear":
            return pooled_ND
        if self.output.head == "mlp":
            return torch.tanh(self.inner(self.dropout(pooled_ND)))
        x_NSD, mask_NS = to_padded(x_TD, batch)
        return getattr(self, f"_{self.output.head}")(x_NSD, mask_NS)

    def _cnn(self, x_NSD: Tensor, mask_NS: Tensor) -> Tensor:
        """Kim 2014: convolutions over 2, 3 and 4 tokens, with max pooling over the tokens where they start."""
        x_NDS = (x_NSD * mask_NS[..., None]).transpose(1, 2)
        x_NDS = nn.functional.pad(x_NDS, (0, max(CNN_WINDOWS) - 1))
        channels = [convolve(x_NDS)[..., : mask_NS.shape[1]].relu() for convolve in self.convolutions]
        return torch.cat([(each * mask_NS[:, None]).amax(-1) for each in channels], -1)

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


class ChoiceHead(nn.Module):
    """One logit from the pooled `[CLS]` of every ending; the softmax runs over the endings of a question."""

    def __init__(self, width: int, dropout: float, cls: ClsLayer | None = None):
        super().__init__()
        self.dropout, self.cls = nn.Dropout(dropout), cls
        self.out = nn.Linear(width, 1)

    def forward(self, x_TD: Tensor, batch: Batch, pooled_ND: Tensor | None) -> Tensor:
        return self.out(self.dropout(pooled_ND)).view(-1, batch.group_size)


class TokenHead(nn.Module):
    """A linear layer on every token."""

    def __init__(self, width: int, num_labels: int, dropout: float):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(width, num_labels)

    def forward(self, x_TD: Tensor, batch: Batch, pooled_ND: Tensor | None) -> Tensor:
        return self.out(self.dropout(x_TD))


class SpanHead(nn.Module):
    """Start and end logits for every token and, if `answerable`, a classifier of answerability on the token that
    represents the sequence."""

    def __init__(self, width: int, answerable: bool, dropout: float):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(width, 2)
        self.answerable = nn.Linear(width, 2) if answerable else None

    def forward(self, x_TD: Tensor, batch: Batch, pooled_ND: Tensor | None) -> Tensor:
        logits_NS2, mask_NS = to_padded(self.out(self.dropout(x_TD)), batch)
        logits_NS2 = upcast(logits_NS2).masked_fill(~mask_NS[..., None], MASKED_LOGIT)
        if self.answerable is None:
            return logits_NS2
        has_answer_N2 = self.answerable(pooled_ND)
        return torch.cat([logits_NS2, upcast(has_answer_N2)[:, None]], 1)


def to_padded(x_TD: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """The sequences padded to the longest, N x S x D, and the mask of real tokens, N x S. Padding repeats other
    tokens."""
    starts = batch.starts.long()
    positions_S = torch.arange(batch.longest, device=x_TD.device)
    mask_NS = positions_S < batch.lengths_N[:, None]
    indices_NS = (starts[:-1, None] + positions_S).clamp(max=x_TD.shape[0] - 1)
    # `index_select` has a deterministic backward on a CPU, unlike indexing by a matrix.
    return x_TD.index_select(0, indices_NS.flatten()).unflatten(0, indices_NS.shape), mask_NS


def upcast(x: Tensor) -> Tensor:
    """Half precision to float32; float32 and float64 are unchanged."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def first_tokens(x_TD: Tensor, batch: Batch) -> Tensor:
    """Index of the first token of each sequence, N; for an empty padding sequence at the end, the last token."""
    return batch.starts[:-1].long().clamp(max=x_TD.shape[0] - 1)


def last_tokens(batch: Batch) -> Tensor:
    """Index of the last token of each sequence, N; for an empty padding sequence at the end, the token before it."""
    return batch.starts[:-1].long() + batch.lengths_N - 1
