"""Log-probabilities of texts, token by token, in windows where a text is longer than the context.

Shapes: T tokens, K scored positions, D width.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hornbook.batch import Batch, length_batches, pack
from hornbook.config import checked
from hornbook.devices import device_of
from hornbook.inference.loaded_model import BATCH_TOKENS
from hornbook.metrics.generation import perplexity
from hornbook.models.encoder import Encoder
from hornbook.models.gpt import Gpt

HEAD_TOKENS = 1024  # positions whose vocabulary logits are computed at once


@dataclass(frozen=True)
class Score:
    text: str
    tokens: list[str]  # the scored tokens
    log_probabilities: list[float]  # natural logarithms, one per token

    @property
    def total(self) -> float:
        return math.fsum(self.log_probabilities)

    @property
    def per_token(self) -> float:
        return self.total / len(self.tokens) if self.tokens else math.nan


@dataclass(frozen=True)
class ContinuationScore:
    """The scores of the tokens that follow a context."""

    log_probabilities: np.ndarray
    is_greedy: np.ndarray | None = None  # whether greedy decoding would have chosen the token

    @property
    def total(self) -> float:
        return math.fsum(self.log_probabilities)


@dataclass(frozen=True)
class Perplexity:
    log_probability: float
    num_tokens: int  # scored tokens
    num_words: int  # separated by whitespace
    num_bytes: int  # of the text in UTF-8
    num_documents: int
    definition: str

    @property
    def per_token(self) -> float:
        return perplexity(self.log_probability, self.num_tokens)

    @property
    def per_word(self) -> float:
        return perplexity(self.log_probability, self.num_words)

    @property
    def bits_per_byte(self) -> float:
        return -self.log_probability / math.log(2) / self.num_bytes

    def to_dict(self) -> dict:
        values = {"per_token": self.per_token, "per_word": self.per_word, "bits_per_byte": self.bits_per_byte}
        return values | vars(self)


def perplexity_of(texts: Sequence[str], scores: Sequence[np.ndarray], definition: str) -> Perplexity:
    """Computes the perplexity from the log-probabilities of the scored tokens of each text."""
    return Perplexity(
        log_probability=float(sum(each.sum() for each in scores)),
        num_tokens=sum(map(len, scores)),
        num_words=sum(len(text.split()) for text in texts),
        num_bytes=sum(len(text.encode()) for text in texts),
        num_documents=len(texts),
        definition=definition,
    )


def window_bounds(num_targets: int, context: int, stride: int) -> Iterator[tuple[int, int, int]]:
    """Yields (first input token, first target to score, end of both) of windows that start `stride` apart; every target
    is scored once. Target i is the token after token i.

    >>> list(window_bounds(10, 4, 3))
    [(0, 0, 4), (3, 4, 7), (6, 7, 10)]
    """
    first = scored = 0
    while scored < num_targets:
        end = min(first + context, num_targets)
        yield first, scored, end
        first, scored = first + stride, end


def check_stride(stride: int | None, context: int) -> int:
    stride = max(context // 2, 1) if stride is None else checked(stride, int, "stride")
    if not 1 <= stride <= context:
        raise ValueError(f"stride= must be between 1 and the model's context of {context:,}, not {stride:,}")
    return stride


class ScoredWindow(NamedTuple):
    """Tokens `first` to `end` of a text are the input; the tokens after those from `scored` on are scored."""

    text: int  # index of the text
    first: int
    scored: int
    end: int


def next_token_scores(
    model: Gpt, texts: Sequence[Sequence[int]], stride: int, on_progress: Callable[[int], None] | None = None
) -> list[np.ndarray]:
    """Returns the log-probability of every token but the first of each text, given those before it in its window.
    `on_progress` is called with the number of tokens done."""
    scores = [np.zeros(max(len(ids) - 1, 0)) for ids in texts]
    windows = [
        ScoredWindow(i, *bounds)
        for i, ids in enumerate(texts)
        for bounds in window_bounds(len(ids) - 1, model.config.max_positions, stride)
    ]
    for window, scored in zip(windows, window_scores(model, texts, windows, on_progress), strict=True):
        scores[window.text][window.scored : window.end] = scored.log_probabilities
    return scores


def continuation_scores(model: Gpt, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[ContinuationScore]:
    """Scores the tokens of the continuation of each (context, continuation) pair; a context that is too long is
    truncated on the left."""
    max_length = model.config.max_positions
    texts, windows = [], []
    for i, (context, continuation) in enumerate(pairs):
        if not len(context) or not 0 < len(continuation) <= max_length:
            raise ValueError(
                f"text {i + 1} has a context of {len(context):,} tokens and a continuation of "
                f"{len(continuation):,}: both need at least 1 token, and the continuation at most {max_length:,}"
            )
        texts.append([*context, *continuation][-max_length - 1 :])
        windows.append(ScoredWindow(i, 0, len(texts[-1]) - 1 - len(continuation), len(texts[-1]) - 1))
    return window_scores(model, texts, windows)


@torch.no_grad()
def window_scores(
    model: Gpt,
    texts: Sequence[Sequence[int]],
    windows: Sequence[ScoredWindow],
    on_progress: Callable[[int], None] | None = None,
) -> list[ContinuationScore]:
    """Scores the tokens of each window. Identical inputs, such as a question before answers of one token, are
    computed once. `on_progress` is called with the number of tokens done."""
    inputs: dict[bytes, list[int]] = {}  # indices of the windows with this input
    for i, window in enumerate(windows):
        ids = np.asarray(texts[window.text][window.first : window.end], np.int64)
        inputs.setdefault(ids.tobytes(), []).append(i)
    sequences, windows_of = [np.frombuffer(ids, np.int64) for ids in inputs], list(inputs.values())
    lengths = {i: len(each) for i, each in enumerate(sequences)}
    results: dict[int, ContinuationScore] = {}
    num_tokens = 0
    for indices in length_batches(lengths, BATCH_TOKENS):
        batch = pack([sequences[sequence] for sequence in indices])
        starts = {
            i: start for sequence, start in zip(indices, batch.offsets_host, strict=False) for i in windows_of[sequence]
        }
        positions, targets = [], []
        for i, start in starts.items():
            window = windows[i]
            positions.append(np.arange(window.scored - window.first, window.end - window.first) + start)
            targets.append(texts[window.text][window.scored + 1 : window.end + 1])
        results |= zip(starts, _token_scores(model, model.next_token_logits, batch, positions, targets), strict=True)
        num_tokens += sum(map(len, targets))
        if on_progress is not None:
            on_progress(num_tokens)
    return [results[i] for i in range(len(windows))]


class MaskedText(NamedTuple):
    """A text whose tokens at `positions` are masked and scored one at a time."""

    ids: np.ndarray
    positions: np.ndarray
    words: np.ndarray | None = None  # word of each position, if the later tokens of the same word are masked too


@torch.no_grad()
def masked_scores(
    model: Encoder | Gpt, texts: Sequence[MaskedText], mask_id: int, on_progress: Callable[[int], None] | None = None
) -> list[np.ndarray]:
    """Returns the log-probability of the token at each position of each text when that token is masked
    (pseudo-log-likelihood, Salazar et al. 2020, arXiv 1910.14659), in batches across texts. `on_progress` is called
    with the number of texts done."""
    log_probabilities = [np.zeros(len(text.positions)) for text in texts]
    # Runs of positions that fit into a batch: (index of the text, first position, end).
    spans = []
    for i, text in enumerate(texts):
        step = max(1, BATCH_TOKENS // max(1, len(text.ids)))
        bounds = range(0, len(text.positions), step)
        spans += [(i, first, min(first + step, len(text.positions))) for first in bounds]
    sizes = [(end - first) * len(texts[i].ids) for i, first, end in spans]
    num_remaining = np.bincount([i for i, _, _ in spans], minlength=len(texts))
    lengths = {index: len(texts[i].ids) for index, (i, _, _) in enumerate(spans)}
    for indices in length_batches(lengths, BATCH_TOKENS, sizes):
        chosen = [spans[span] for span in indices]
        copies = [_masked_copies(texts[i], first, end, mask_id) for i, first, end in chosen]
        batch = pack([ids for each in copies for ids in each])
        positions, targets, start = [], [], 0
        for (i, first, end), each in zip(chosen, copies, strict=True):
            scored = texts[i].positions[first:end]
            positions.append(start + np.arange(len(each)) * each.shape[1] + scored - model.mask_offset)
            targets.append(texts[i].ids[scored])
            start += each.size
        scores = _token_scores(model, model.vocabulary_logits, batch, positions, targets)
        for (i, first, end), of_span in zip(chosen, scores, strict=True):
            log_probabilities[i][first:end] = of_span.log_probabilities
            num_remaining[i] -= 1
        if on_progress is not None:
            on_progress(int((num_remaining == 0).sum()))
    return log_probabilities


def _masked_copies(text: MaskedText, first: int, end: int, mask_id: int) -> np.ndarray:
    """One copy of the text per position from `first` to `end`, with the token at that position masked."""
    rows, order = np.tile(text.ids, (end - first, 1)), np.arange(first, end)
    if text.words is None:
        rows[order - first, text.positions[order]] = mask_id
        return rows
    is_masked = (text.words[order, None] == text.words) & (order[:, None] <= np.arange(len(text.positions)))
    row, column = np.nonzero(is_masked)
    rows[row, text.positions[column]] = mask_id
    return rows


def _logits(logits_of: Callable[[Tensor], Tensor], x_KD: Tensor) -> Tensor:
    """The logits in at least float32. Under autocast the vocabulary head runs in float32 too: in bfloat16, logits of 10
    would have steps of 0.06."""
    if torch.is_autocast_enabled(x_KD.device.type):
        with torch.autocast(x_KD.device.type, enabled=False):
            return logits_of(x_KD.float())
    logits = logits_of(x_KD)
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _token_scores(
    model: Encoder | Gpt,
    logits_of: Callable[[Tensor], Tensor],
    batch: Batch,
    positions: Sequence[np.ndarray],
    targets: Sequence[Sequence[int]],
) -> Iterator[ContinuationScore]:
    """Runs the model on the batch, and yields the scores of the target tokens of each item at its positions, which
    count over all tokens of the batch."""
    device, vocab_size = device_of(model), model.config.vocab_size
    x_TD = model(batch.to(device))
    indices_K = torch.from_numpy(np.concatenate(positions)).to(device)
    targets_K = torch.from_numpy(np.concatenate(targets).astype(np.int64)).to(device)
    scores, are_greedy = [], []
    for where, target in zip(indices_K.split(HEAD_TOKENS), targets_K.split(HEAD_TOKENS), strict=True):
        logits = _logits(logits_of, x_TD[where])[:, :vocab_size]
        scores.append(logits.log_softmax(-1).gather(1, target[:, None])[:, 0].double().cpu())
        are_greedy.append((logits.argmax(-1) == target).cpu())
    cuts = np.cumsum([len(each) for each in positions])[:-1]
    by_item = (np.split(torch.cat(each).numpy(), cuts) for each in (scores, are_greedy))
    return itertools.starmap(ContinuationScore, zip(*by_item, strict=True))
