"""Going on with prompts: several at once, several samples of each, drawn or greedy. Beams are in `beams.py`.

Shapes: N sequences (those of all prompts, sample after sample), V vocabulary.
What a prompt is continued with depends on the prompt, the settings, the seed and the number of the sample, and not on
the prompts beside it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from hornbook.config import LARGEST_SEED, Typed, setting
from hornbook.infer.cache import DecodingState
from hornbook.infer.sampling import Sampling, draws
from hornbook.infer.writing import Writer
from hornbook.models.gpt import Gpt

Ended = Literal["end", "stop", "length", "context"]
OnToken = Callable[[int, int, str], None]  # number of the prompt, number of the sample, a piece of text

MAX_TOKENS = 100
BATCH_TOKENS = 131_072  # sequences that go on together have room for about so many tokens


@dataclass(frozen=True)
class Generated:
    text: str  # what follows the prompt
    ids: list[int]  # its tokens, without the one that ends a text
    ended: Ended  # at the end of the text, at a stop string, after so many tokens, or where the context was full


@dataclass(frozen=True)
class Request(Typed, group=""):
    """What is asked for, the same for every prompt."""

    max_tokens: int = setting(MAX_TOKENS, "at most so many tokens", low=1, high=1_000_000)
    sampling: Sampling = field(default_factory=Sampling)
    stop: tuple[str, ...] = ()
    seed: int = setting(0, "random seed", low=0, high=LARGEST_SEED)
    num: int = setting(1, "texts for each prompt", low=1, high=10_000)
    slide: bool = False
    not_first: frozenset[int] = frozenset()  # tokens that no text begins with

    def __post_init__(self) -> None:
        super().__post_init__()
        if "" in self.stop:
            raise ValueError("a stop string must have at least one character")


class _Sequence:
    """One text that is being written."""

    def __init__(self, prompt: list[int], writer: Writer, on_text: Callable[[str], None] | None):
        self.window = list(prompt)  # what the cache holds of it
        self.new: list[int] = []
        self.writer = writer
        self.on_text = on_text
        self.ended: Ended | None = None

    def add(self, token: int) -> None:
        self.window.append(token)
        self.new.append(token)
        if self.on_text is not None or self.writer.stop:
            self._write([token])

    def finish(self, ended: Ended) -> None:
        self.ended = ended
        if self.on_text is None and not self.writer.stop:
            self._write(self.new)
        if ended != "stop" and (rest := self.writer.finish()) and self.on_text is not None:
            self.on_text(rest)

    def _write(self, tokens: list[int]) -> None:
        text = self.writer.add(tokens)
        if text and self.on_text is not None:
            self.on_text(text)


def check_room(prompts: Sequence[Sequence[int]], context: int) -> None:
    for number, prompt in enumerate(prompts):
        which = f"prompt {number + 1}" if len(prompts) > 1 else "the prompt"
        if not len(prompt):
            raise ValueError(f"{which} is empty, and the model has no token that a text begins after: write a word")
        if len(prompt) > context:
            raise ValueError(
                f"{which} has {len(prompt):,} tokens, {len(prompt) - context:,} more than the model's context of "
                f"{context:,}: shorten it, or let it slide (--slide), which keeps the last {context:,}"
            )


def fitting(prompts: Sequence[Sequence[int]], context: int, slide: bool) -> list[list[int]]:
    """The prompts as the model takes them: too long ones are cut from the front, or refused."""
    prompts = [list(prompt[-context:]) if slide else list(prompt) for prompt in prompts]
    check_room(prompts, context)
    return prompts


def groups_of(prompts: list[list[int]], num: int, max_tokens: int, context: int) -> list[list[int]]:
    """Numbers of the prompts that go on together: those of about the same length."""
    groups: list[list[int]] = []
    for number in sorted(range(len(prompts)), key=lambda i: len(prompts[i])):
        room = min(len(prompts[number]) + max_tokens, context) * num
        if not groups or (len(groups[-1]) + 1) * room > BATCH_TOKENS:
            groups.append([])
        groups[-1].append(number)
    return [sorted(group) for group in groups]


def generate(
    model: Gpt,
    prompts: Sequence[Sequence[int]],
    request: Request,
    writer_of: Callable[[Sequence[int]], Writer],
    end_id: int | None = None,
    num_tokens: int | None = None,
    on_token: OnToken | None = None,
) -> list[list[Generated]]:
    """`request.num` continuations of each prompt. Tokens from `num_tokens` on, which have no text, are never drawn.

    A sequence ends with the token `end_id`, at a stop string, after `max_tokens`, or where the context is full. With
    `slide`, a full context is left behind instead: its last half is read anew, and the text goes on from there.
    """
    context = model.config.max_positions
    prompts = fitting(prompts, context, request.slide)
    found: dict[int, list[Generated]] = {}
    for group in groups_of(prompts, request.num, request.max_tokens, context):
        sequences = [
            _Sequence(prompts[number], writer_of(prompts[number]), _bound(on_token, number, sample))
            for number in group
            for sample in range(request.num)
        ]
        _write_all(model, [prompts[number] for number in group], sequences, request, end_id, num_tokens)
        for place, number in enumerate(group):
            its = sequences[place * request.num : (place + 1) * request.num]
            found[number] = [Generated(each.writer.text, _without(each.new, end_id), each.ended) for each in its]
    return [found[number] for number in range(len(prompts))]


def _bound(on_token: OnToken | None, prompt: int, sample: int) -> Callable[[str], None] | None:
    return None if on_token is None else lambda text: on_token(prompt, sample, text)


def _without(ids: list[int], end_id: int | None) -> list[int]:
    return ids[:-1] if ids and ids[-1] == end_id else ids


@torch.inference_mode()
def _write_all(
    model: Gpt,
    prompts: list[list[int]],
    sequences: list[_Sequence],
    request: Request,
    end_id: int | None,
    num_tokens: int | None,
) -> None:
    context, num, sampling = model.config.max_positions, request.num, request.sampling
    decoding = DecodingState(model, len(sequences), min(max(map(len, prompts)) + request.max_tokens, context))
    logits_NV = decoding.read(prompts)
    device = logits_NV.device
    copies_N = torch.arange(len(prompts), device=device).repeat_interleave(num)
    if num > 1:
        decoding.choose(copies_N)
        logits_NV = logits_NV[copies_N]
    if request.not_first:
        logits_NV = logits_NV.index_fill(1, torch.tensor(sorted(request.not_first), device=device), -torch.inf)
    written_NV = None if sampling.repetition_penalty == 1 else written(prompts, logits_NV)[copies_N]
    draws_NS = draws_for(request, len(prompts)).to(device)
    launches_ahead = device.type == "cuda"  # the device goes on while the host looks at what came out
    for number in range(request.max_tokens):
        scores_NV = sampling.scores(without_spare(logits_NV, num_tokens), written_NV)
        chosen_N = sampling.choose(scores_NV, draws_NS[:, number])
        if written_NV is not None:
            written_NV.scatter_(1, chosen_N[:, None], True)
        is_last = number + 1 == request.max_tokens
        if launches_ahead and not is_last:
            logits_NV = decoding.step(chosen_N)
        full = _take(sequences, chosen_N.tolist(), end_id, context, request.slide, is_last)
        if all(sequence.ended for sequence in sequences):
            return
        if not launches_ahead:
            logits_NV = decoding.step(chosen_N)
        if full:
            for place in full:
                sequences[place].window = sequences[place].window[-max(context // 2, 1) :]
            logits_NV[full] = decoding.read([sequences[place].window for place in full], full)


def _take(
    sequences: list[_Sequence], tokens: list[int], end_id: int | None, context: int, slide: bool, is_last: bool
) -> list[int]:
    """Gives each sequence that has not ended its token; which ones have filled the context and slide."""
    full = []
    for place, (sequence, token) in enumerate(zip(sequences, tokens, strict=True)):
        if sequence.ended:
            continue
        if token == end_id:
            sequence.new.append(token)
            sequence.finish("end")
            continue
        sequence.add(token)
        if sequence.writer.is_stopped:
            sequence.finish("stop")
        elif is_last:
            sequence.finish("length")
        elif len(sequence.window) > context and slide:
            full.append(place)
        elif len(sequence.window) > context:
            sequence.finish("context")
    return full


def without_spare(logits_NV: Tensor, num_tokens: int | None) -> Tensor:
    """Rows that no token of the vocabulary has are no choice."""
    if num_tokens is None or num_tokens >= logits_NV.shape[-1]:
        return logits_NV
    return logits_NV.masked_fill(torch.arange(logits_NV.shape[-1], device=logits_NV.device) >= num_tokens, -torch.inf)


def written(prompts: Sequence[Sequence[int]], logits_NV: Tensor) -> Tensor:
    """Which tokens stand in each prompt."""
    found_NV = np.zeros((len(prompts), logits_NV.shape[-1]), bool)
    for number, prompt in enumerate(prompts):
        found_NV[number, list(prompt)] = True
    return torch.from_numpy(found_NV).to(logits_NV.device)


def draws_for(request: Request, num_prompts: int) -> Tensor:
    """A number for each token of each sequence; those of a sample are the same for all prompts."""
    each = [draws(request.seed, sample, request.max_tokens) for sample in range(request.num)]
    return torch.from_numpy(np.stack(each)).repeat(num_prompts, 1)
