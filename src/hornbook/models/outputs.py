"""What a task wants of a model, and the layers that answer it, for any family.

A task names an `Output`; a family builds its published head for it and gives the pooled vector. Every head takes the
hidden states of a packed batch and answers in the order of its sequences, dead ones last:

    sequence   N x L      scores of classes, or a number (L = 1); of pairs in two sequences, N / 2 x L
    choice     N / C x C  a score for each of the C endings that stand together
    tokens     T x L      scores of tags at each token
    spans      N x S x 2  scores of start and end at each token of each sequence, NEVER beyond its end; with
                          `answerable`, N x (S + 1) x 2, the last column holding (has an answer, has none)

Shapes: T tokens, N sequences, S longest sequence, D width, L labels, C choices.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from hornbook.batch import Batch

MASKED_LOGIT = -1e4  # exp underflows to 0
OutputKind = Literal["sequence", "choice", "tokens", "spans"]
HeadKind = Literal["linear", "mlp", "cnn", "bilstm", "attention"]
PairEncoding = Literal["joint", "separate", "both"]  # two texts in one sequence, in one each, or in both orders
CNN_WINDOWS, CNN_CHANNELS = (2, 3, 4), 100


@dataclass(frozen=True)
class Output:
    """Which numbers a task wants, and through which layers."""

    kind: OutputKind
    num_labels: int = 1
    labels: tuple[str, ...] = ()  # names of classes or tags, for `id2label`
    problem: Literal["single", "multi", "number"] = "single"  # one class, several, or a number
    head: HeadKind = "linear"  # linear is the published one
    pairs: PairEncoding = "joint"
    answerable: bool = False  # spans: a classifier of its own says whether there is an answer

    def __post_init__(self) -> None:
        if self.kind != "sequence" and (self.head != "linear" or self.pairs != "joint"):
            raise ValueError(f"other heads and pair encodings are for classification and regression, not {self.kind}")
        if self.pairs != "joint" and self.head != "linear":
            raise ValueError(f"{self.pairs} pairs go with the linear head: drop --head or --pair-encoding {self.pairs}")

    @property
    def group_size(self) -> int:
        """How many sequences one text or pair is written as, where it is no matter of endings."""
        return 1 if self.pairs == "joint" else 2

    @property
    def is_published(self) -> bool:
        """Whether `transformers` has a class with these layers."""
        return self.head == "linear" and self.pairs == "joint"

    def fits(self, other: "Output") -> bool:
        """Whether a head for the other answers this too: the same layers, and the same labels in the same order."""
        names = ("kind", "problem", "head", "pairs") + (("num_labels", "labels") if self.has_labels else ())
        return all(getattr(self, name) == getattr(other, name) for name in names)

    @property
    def has_labels(self) -> bool:
        """Whether the rows of the head stand for labels, which each task has its own of."""
        return self.kind in ("sequence", "tokens")

    @property
    def in_words(self) -> str:
        """What the head is for."""
        if self.kind == "sequence":
            return {"single": "classification", "multi": "multi-label", "number": "regression"}[self.problem]
        return {"choice": "multiple-choice", "tokens": "tagging", "spans": "span"}[self.kind]


def reads_cls(output: Output) -> bool:
    """Whether a task looks at `[CLS]` alone, through a layer over it."""
    return output.kind == "choice" or (output.kind == "sequence" and output.head in ("linear", "mlp"))


class ClsLayer(nn.Module):
    """Dropout, a layer and its activation over `[CLS]`, which starts anew with every task."""

    def __init__(self, width: int, activation: Callable[[Tensor], Tensor], dropout: float):
        super().__init__()
        self.dropout, self.activation = nn.Dropout(dropout), activation
        self.dense = nn.Linear(width, width)

    def forward(self, cls_ND: Tensor) -> Tensor:
        return self.activation(self.dense(self.dropout(cls_ND)))


def task_head(config, output: Output, cls: ClsLayer | None, scores_with_bias: bool = True) -> nn.Module:
    """The published head for what a task wants; `cls` for a family that has no pooler."""
    if output.kind == "spans":
        return SpanHead(config.width, output.answerable, config.span_dropout)
    if output.kind == "tokens":
        return TokenHead(config.width, output.num_labels, config.token_dropout)
    if output.kind == "choice":
        return ChoiceHead(config.width, config.head_dropout, cls)
    return SequenceHead(config.width, output, config.head_dropout, cls, scores_with_bias)


class SequenceHead(nn.Module):
    """Scores from the pooled `[CLS]` (linear, mlp), from pairs of them, or from all tokens (cnn, bilstm, attention)."""

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
        if self.output.pairs == "separate":  # u, v, |u - v|, as sentence encoders are compared
            u, v = pooled_ND.unflatten(0, (-1, 2)).unbind(1)
            return torch.cat([u, v, (u - v).abs()], -1)
        if self.output.pairs == "both":
            return pooled_ND.unflatten(0, (-1, 2)).sum(1)
        if self.output.head == "linear":
            return pooled_ND
        if self.output.head == "mlp":
            return torch.tanh(self.inner(self.dropout(pooled_ND)))
        x_NSD, is_there_NS = to_padded(x_TD, batch)
        return getattr(self, f"_{self.output.head}")(x_NSD, is_there_NS)

    def _cnn(self, x_NSD: Tensor, is_there_NS: Tensor) -> Tensor:
        """Kim 2014: windows of 2, 3 and 4 tokens, each channel's greatest value over the tokens where they start."""
        x_NDS = (x_NSD * is_there_NS[..., None]).transpose(1, 2)
        x_NDS = nn.functional.pad(x_NDS, (0, max(CNN_WINDOWS) - 1))
        found = [convolve(x_NDS)[..., : is_there_NS.shape[1]].relu() for convolve in self.convolutions]
        return torch.cat([(each * is_there_NS[:, None]).amax(-1) for each in found], -1)

    def _bilstm(self, x_NSD: Tensor, is_there_NS: Tensor) -> Tensor:
        """The last state of each direction."""
        lengths = is_there_NS.sum(1).clamp(min=1).cpu()
        packed = nn.utils.rnn.pack_padded_sequence(upcast(x_NSD), lengths, batch_first=True, enforce_sorted=False)
        _, (last, _) = self.lstm(packed)
        return torch.cat([last[0], last[1]], -1)

    def _attention(self, x_NSD: Tensor, is_there_NS: Tensor) -> Tensor:
        """A mean of the tokens, weighted by a learned query."""
        scores_NS = upcast(self.query(torch.tanh(self.inner(x_NSD)))[..., 0]).masked_fill(~is_there_NS, MASKED_LOGIT)
        return (scores_NS.softmax(-1).to(x_NSD.dtype)[..., None] * x_NSD).sum(1)


class ChoiceHead(nn.Module):
    """One vector scores the pooled `[CLS]` of every ending; the softmax runs over those that stand together."""

    def __init__(self, width: int, dropout: float, cls: ClsLayer | None = None):
        super().__init__()
        self.dropout, self.cls = nn.Dropout(dropout), cls
        self.out = nn.Linear(width, 1)

    def forward(self, x_TD: Tensor, batch: Batch, pooled_ND: Tensor | None) -> Tensor:
        return self.out(self.dropout(pooled_ND)).view(-1, batch.group_size)


class TokenHead(nn.Module):
    """One layer on every token."""

    def __init__(self, width: int, num_labels: int, dropout: float):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(width, num_labels)

    def forward(self, x_TD: Tensor, batch: Batch, pooled_ND: Tensor | None) -> Tensor:
        return self.out(self.dropout(x_TD))


class SpanHead(nn.Module):
    """A start vector and an end vector over all tokens and, when asked, a classifier of answerability at the token
    that stands for its sequence."""

    def __init__(self, width: int, answerable: bool, dropout: float):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(width, 2)
        self.answerable = nn.Linear(width, 2) if answerable else None

    def forward(self, x_TD: Tensor, batch: Batch, pooled_ND: Tensor | None) -> Tensor:
        scores_NS2, is_there_NS = to_padded(self.out(self.dropout(x_TD)), batch)
        scores_NS2 = upcast(scores_NS2).masked_fill(~is_there_NS[..., None], MASKED_LOGIT)
        if self.answerable is None:
            return scores_NS2
        has_answer_N2 = self.answerable(pooled_ND)
        return torch.cat([scores_NS2, upcast(has_answer_N2)[:, None]], 1)


def to_padded(x_TD: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """The sequences as rows, N x S x D, and where there is a token, N x S; the rest repeats other tokens."""
    starts = batch.starts.long()
    steps_S = torch.arange(batch.longest, device=x_TD.device)
    is_there_NS = steps_S < batch.lengths_N[:, None]
    places_NS = (starts[:-1, None] + steps_S).clamp(max=x_TD.shape[0] - 1)
    # `index_select` has a deterministic backward on a CPU, which indexing by a matrix has not.
    return x_TD.index_select(0, places_NS.flatten()).unflatten(0, places_NS.shape), is_there_NS


def upcast(x: Tensor) -> Tensor:
    """Half precision as single; what is finer stays as it is."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def first_tokens(x_TD: Tensor, batch: Batch) -> Tensor:
    """Where each sequence starts; an empty dead one at the very end reads the last token."""
    return batch.starts[:-1].long().clamp(max=x_TD.shape[0] - 1)


def last_tokens(batch: Batch) -> Tensor:
    """Where each sequence ends; an empty dead one at the very end reads the token before it."""
    return batch.starts[:-1].long() + batch.lengths_N - 1


# --- The names that the outside world gives to all this -------------------------------------------------------------

_PROBLEMS = {
    "single": "single_label_classification",
    "multi": "multi_label_classification",
    "number": "regression",
}
_OWN_FIELDS = ("kind", "num_labels", "problem", "head", "pairs", "answerable")


def hf_output(output: Output) -> dict:
    """What `config.json` says of a task's head: labels and problem as `transformers` reads them, the rest as ours."""
    outside: dict = {"hornbook_output": {name: getattr(output, name) for name in _OWN_FIELDS}}
    if output.has_labels:
        labels = output.labels or tuple(f"LABEL_{i}" for i in range(output.num_labels))
        outside["id2label"] = {str(i): label for i, label in enumerate(labels)}
        outside["label2id"] = {label: i for i, label in enumerate(labels)}
    if output.kind == "sequence":
        outside["problem_type"] = _PROBLEMS[output.problem]
    return outside


def read_output(outside: dict, kind: OutputKind | None, num_labels: int) -> Output | None:
    """The output that a `config.json` describes: in our own words or, for a folder that `transformers` wrote, by the
    kind of its class and the rows of its head."""
    own = outside.get("hornbook_output") or {}
    if not own and kind is None:
        return None
    names = outside.get("id2label") or {}
    labels = tuple(str(names.get(str(i), f"LABEL_{i}")) for i in range(num_labels)) if names else ()
    if own:
        unknown = [name for name in own if name not in _OWN_FIELDS]
        if unknown:
            raise ValueError(f"its hornbook_output names '{unknown[0]}', which this version does not know")
        return Output(**own, labels=labels)
    problem = next((ours for ours, name in _PROBLEMS.items() if name == outside.get("problem_type")), None)
    problem = problem or ("number" if kind == "sequence" and num_labels == 1 else "single")
    return Output(kind, num_labels, labels if kind in ("sequence", "tokens") else (), problem)
