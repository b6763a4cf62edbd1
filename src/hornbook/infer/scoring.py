"""How likely a text is to a model: token by token, in windows where it is longer than the context.

Shapes: T tokens, K positions that are scored, D width.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hornbook.batch import pack
from hornbook.config import checked
from hornbook.infer.loaded import grouped
from hornbook.models.encoder import Encoder
from hornbook.models.gpt import Gpt

HEAD_TOKENS = 1024  # scores over the vocabulary are made for so many positions at once


@dataclass(frozen=True)
class Score:
    text: str
    tokens: list[str]  # those that were scored
    log_probabilities: list[float]  # natural logarithms, one a token

    @property
    def total(self) -> float:
        return math.fsum(self.log_probabilities)

    @property
    def per_token(self) -> float:
        return self.total / len(self.tokens) if self.tokens else math.nan


@dataclass(frozen=True)
class Continuation:
    """What a model makes of the text that follows a context, token by token."""

    log_probabilities: np.ndarray
    is_likeliest: np.ndarray  # whether the model would have written the token itself

    @property
    def total(self) -> float:
        return math.fsum(self.log_probabilities)


@dataclass(frozen=True)
class Perplexity:
    log_probability: float
    num_tokens: int  # those that were scored
    num_words: int  # what white space separates
    num_bytes: int  # of the text in UTF-8
    num_documents: int
    definition: str

    @property
    def per_token(self) -> float:
        return self._exp(self.num_tokens)

    @property
    def per_word(self) -> float:
        return self._exp(self.num_words)

    @property
    def bits_per_byte(self) -> float:
        return -self.log_probability / math.log(2) / self.num_bytes

    def _exp(self, number: int) -> float:
        exponent = -self.log_probability / number
        return math.exp(exponent) if exponent < 700 else math.inf

    def as_dict(self) -> dict:
        values = {"per_token": self.per_token, "per_word": self.per_word, "bits_per_byte": self.bits_per_byte}
        return values | vars(self)


def measured(texts: Sequence[str], scores: Sequence[np.ndarray], definition: str) -> Perplexity:
    """From the log-probability of every token of each text that is scored."""
    return Perplexity(
        log_probability=float(sum(each.sum() for each in scores)),
        num_tokens=sum(map(len, scores)),
        num_words=sum(len(text.split()) for text in texts),
        num_bytes=sum(len(text.encode()) for text in texts),
        num_documents=len(texts),
        definition=definition,
    )


def windows(num_targets: int, context: int, stride: int) -> Iterator[tuple[int, int, int]]:
    """(first token that is read, first target that is scored, end of both): every target once, and windows that
    begin `stride` apart. Target i is the token after token i.

    >>> list(windows(10, 4, 3))
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
        raise ValueError(f"stride must lie between 1 and the model's context of {context:,}, not {stride:,}")
    return stride


class Part(NamedTuple):
    """Tokens `first` to `end` of a text are read, and the tokens after those from `scored` on are scored."""

    text: int
    first: int
    scored: int
    end: int


def next_token_scores(
    model: Gpt, texts: Sequence[Sequence[int]], stride: int, progress: Callable[[int], None] | None = None
) -> list[np.ndarray]:
    """Of each text, the log-probability of every token but the first, given those before it in its window. `progress`
    gets the number of tokens that are done."""
    found = [np.zeros(max(len(ids) - 1, 0)) for ids in texts]
    parts = [
        Part(number, *window)
        for number, ids in enumerate(texts)
        for window in windows(len(ids) - 1, model.config.max_positions, stride)
    ]
    show = None if progress is None else lambda num_tokens, num_parts: progress(num_tokens)
    for part, judged in zip(parts, part_scores(model, texts, parts, show), strict=True):
        found[part.text][part.scored : part.end] = judged.log_probabilities
    return found


def continuation_scores(
    model: Gpt, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], progress: Callable[[int], None] | None = None
) -> list[Continuation]:
    """Of each (context, continuation) the tokens of the second given all before them; a context that is too long loses
    its beginning. `progress` gets the number of pairs that are done."""
    longest = model.config.max_positions
    texts, parts = [], []
    for number, (context, continuation) in enumerate(pairs):
        if not len(context) or not 0 < len(continuation) <= longest:
            raise ValueError(
                f"text {number + 1} has {len(context):,} tokens and {len(continuation):,} behind them, of which there "
                f"must be at least 1 of each and at most {longest:,} behind: write another"
            )
        texts.append([*context, *continuation][-longest - 1 :])
        parts.append(Part(number, 0, len(texts[-1]) - 1 - len(continuation), len(texts[-1]) - 1))
    show = None if progress is None else lambda num_tokens, num_parts: progress(num_parts)
    return part_scores(model, texts, parts, show)


@torch.no_grad()
def part_scores(
    model: Gpt,
    texts: Sequence[Sequence[int]],
    parts: Sequence[Part],
    progress: Callable[[int, int], None] | None = None,
) -> list[Continuation]:
    """Of each part, the tokens that are scored. What is read alike, such as a question before answers of one token, is
    read once. `progress` gets the numbers of tokens and of parts that are done."""
    reads: dict[bytes, list[int]] = {}
    for number, part in enumerate(parts):
        ids = np.asarray(texts[part.text][part.first : part.end], np.int64)
        reads.setdefault(ids.tobytes(), []).append(number)
    sequences, sharing = [np.frombuffer(ids, np.int64) for ids in reads], list(reads.values())
    lengths = [len(each) for each in sequences]
    found: dict[int, Continuation] = {}
    num_tokens = 0
    # Neighbours of the same length go through attention at once.
    for group in grouped(sorted(range(len(sequences)), key=lengths.__getitem__), lengths):
        batch = pack([sequences[i] for i in group])
        starts = {number: start for i, start in zip(group, batch.starts_host, strict=False) for number in sharing[i]}
        chosen = [parts[number] for number in starts]
        places = np.concatenate(
            [
                np.arange(part.scored - part.first, part.end - part.first) + start
                for part, start in zip(chosen, starts.values(), strict=True)
            ]
        )
        targets = np.concatenate([texts[part.text][part.scored + 1 : part.end + 1] for part in chosen])
        x_TD = model(batch.to(model.embeddings.tokens.weight.device))
        judged = _judged(model.next_token_logits, x_TD, places, targets, model.config.vocab_size)
        cuts = np.cumsum([part.end - part.scored for part in chosen])[:-1]
        for number, *its in zip(starts, *(np.split(each, cuts) for each in judged), strict=True):
            found[number] = Continuation(*its)
        num_tokens += len(targets)
        if progress is not None:
            progress(num_tokens, len(found))
    return [found[number] for number in range(len(parts))]


@torch.no_grad()
def masked_scores(model: Encoder, ids: Sequence[int], places: Sequence[int], mask_id: int) -> np.ndarray:
    """The log-probability of the tokens at these places, each where it alone is masked (Salazar et al. 2020, arXiv
    1910.14659)."""
    found = []
    for group in grouped(list(range(len(places))), [len(ids)] * len(places)):
        rows = np.tile(np.asarray(ids, np.int64), (len(group), 1))
        masked = [places[i] for i in group]
        targets = rows[0, masked]
        rows[np.arange(len(group)), masked] = mask_id
        x_TD = model(pack(list(rows)).to(model.embeddings.tokens.weight.device))
        there = np.arange(len(group)) * len(ids) + masked
        found.append(_judged(model.mlm_logits, x_TD, there, targets, model.config.vocab_size)[0])
    return np.concatenate(found) if found else np.zeros(0)


def _judged(
    logits_of: Callable[[Tensor], Tensor], x_TD: Tensor, places: np.ndarray, targets: np.ndarray, vocab_size: int
) -> tuple[np.ndarray, np.ndarray]:
    """The log-probabilities of these tokens at these places, and whether each is the likeliest."""
    places_K = torch.from_numpy(places).to(x_TD.device)
    targets_K = torch.from_numpy(np.asarray(targets, np.int64)).to(x_TD.device)
    scores, are_likeliest = [], []
    for where, wanted in zip(places_K.split(HEAD_TOKENS), targets_K.split(HEAD_TOKENS), strict=True):
        logits = logits_of(x_TD[where])[:, :vocab_size]
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        scores.append(logits.log_softmax(-1).gather(1, wanted[:, None])[:, 0].double().cpu())
        are_likeliest.append((logits.argmax(-1) == wanted).cpu())
    return torch.cat(scores).numpy(), torch.cat(are_likeliest).numpy()
