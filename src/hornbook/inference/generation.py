"""Batched generation by sampling or greedy decoding, with several samples per prompt. Beam search is in `beams.py`.

Shapes: N sequences (all samples of the first prompt, then of the second, ...), V vocabulary.
A continuation depends on the prompt, the settings, the seed and the index of the sample, not on the other prompts of
the batch.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from hornbook.config import LARGEST_SEED, ValidatedSettings, setting
from hornbook.inference.cache import DecodingState
from hornbook.inference.detokenizer import StreamingDetokenizer
from hornbook.inference.sampling import Sampling, uniform_numbers
from hornbook.models.gpt import Gpt
from hornbook.text.tokenizer import Tokenizer

FinishReason = Literal["end", "stop", "length", "context"]
OnToken = Callable[[int, int, str], None]  # index of the prompt, index of the sample, new text

MAX_NEW_TOKENS = 100
BATCH_TOKENS = 131_072  # capacity of the key-value cache of one batch, approximately


@dataclass(frozen=True)
class Generated:
    text: str  # without the prompt
    ids: list[int]  # token ids of the text, without the end-of-text token
    finish_reason: FinishReason  # by the end-of-text token, a stop string, max_new_tokens, or a full context


@dataclass(frozen=True)
class GenerationConfig(ValidatedSettings, group=""):
    """Generation settings, the same for every prompt."""

    max_new_tokens: int = setting(MAX_NEW_TOKENS, "maximum number of new tokens", low=1, high=1_000_000)
    sampling: Sampling = field(default_factory=Sampling)
    stop: tuple[str, ...] = ()
    seed: int = setting(0, "random seed", low=0, high=LARGEST_SEED)
    num: int = setting(1, "samples per prompt", low=1, high=10_000)
    slide: bool = False
    begin_suppress_tokens: frozenset[int] = frozenset()  # tokens that a continuation must not start with

    def __post_init__(self) -> None:
        super().__post_init__()
        if "" in self.stop:
            raise ValueError("a stop string must have at least one character")


class GeneratedSequence:
    """One text that is being generated. `context` is the maximum number of tokens in the cache."""

    def __init__(
        self,
        prompt: Sequence[int],
        config: GenerationConfig,
        tokenizer: Tokenizer,
        eos_id: int | None,
        context: int,
        on_text: Callable[[str], None] | None,
    ):
        self.window = list(prompt)  # the tokens in the cache
        self.new: list[int] = []
        self.config, self.eos_id, self.context, self.on_text = config, eos_id, context, on_text
        self.detokenizer = StreamingDetokenizer(tokenizer, prompt, config.stop)
        self.finish_reason: FinishReason | None = None

    @property
    def is_full(self) -> bool:
        return len(self.window) > self.context

    def add(self, token: int) -> None:
        """Appends a token, with which the sequence may end."""
        self.new.append(token)
        if token == self.eos_id:
            self._finish("end")
            return
        self.window.append(token)
        if self.on_text is not None or self.config.stop:
            self._write([token])
        if self.detokenizer.is_stopped:
            self._finish("stop")
        elif len(self.new) == self.config.max_new_tokens:
            self._finish("length")
        elif self.is_full and not self.config.slide:
            self._finish("context")

    def result(self) -> Generated:
        """The text, once the sequence is finished."""
        ids = self.new[:-1] if self.new and self.new[-1] == self.eos_id else self.new
        return Generated(self.detokenizer.text, ids, self.finish_reason)

    def _finish(self, finish_reason: FinishReason) -> None:
        self.finish_reason = finish_reason
        if self.on_text is None and not self.config.stop:
            self._write(self.new)
        if finish_reason != "stop" and (rest := self.detokenizer.finish()) and self.on_text is not None:
            self.on_text(rest)

    def _write(self, tokens: list[int]) -> None:
        text = self.detokenizer.add(tokens)
        if text and self.on_text is not None:
            self.on_text(text)


def fit_prompts(prompts: Sequence[Sequence[int]], context: int, slide: bool) -> list[list[int]]:
    """Returns the prompts with those longer than the context truncated on the left (`slide`) or refused."""
    prompts = [list(prompt[-context:]) if slide else list(prompt) for prompt in prompts]
    for i, prompt in enumerate(prompts):
        which = f"prompt {i + 1}" if len(prompts) > 1 else "the prompt"
        if not prompt:
            raise ValueError(
                f"{which} is empty, and the model has no end-of-text token to start from: give at least one word"
            )
        if len(prompt) > context:
            raise ValueError(
                f"{which} has {len(prompt):,} tokens, {len(prompt) - context:,} more than the model's context of "
                f"{context:,}: shorten it, or use slide=True, which keeps the last {context:,}"
            )
    return prompts


def group_prompts(prompts: list[list[int]], num: int, max_new_tokens: int, context: int) -> list[list[int]]:
    """Groups the indices of prompts of similar length into batches; `num` is the number of sequences per prompt."""
    groups: list[list[int]] = []
    for i in sorted(range(len(prompts)), key=lambda i: len(prompts[i])):
        num_slots = min(len(prompts[i]) + max_new_tokens, context) * num
        if not groups or (len(groups[-1]) + 1) * num_slots > BATCH_TOKENS:
            groups.append([])
        groups[-1].append(i)
    return [sorted(group) for group in groups]


def generate(
    model: Gpt,
    tokenizer: Tokenizer,
    prompts: Sequence[Sequence[int]],
    config: GenerationConfig,
    eos_id: int | None = None,
    on_token: OnToken | None = None,
) -> list[list[Generated]]:
    """Returns `config.num` continuations of each prompt. Token ids that the tokenizer does not have are never chosen.

    A sequence ends with the token `eos_id`, at a stop string, after `max_new_tokens`, or when the context is full. With
    `slide`, generation continues past a full context: the last half of the context is encoded again as the new one.
    """
    context = model.config.max_positions
    prompts = fit_prompts(prompts, context, config.slide)
    texts: list[list[Generated]] = [[] for _ in prompts]
    for group in group_prompts(prompts, config.num, config.max_new_tokens, context):
        samples = [(i, sample) for i in group for sample in range(config.num)]
        sequences = [
            GeneratedSequence(prompts[i], config, tokenizer, eos_id, context, on_token and partial(on_token, i, sample))
            for i, sample in samples
        ]
        _generate_batch(model, [prompts[i] for i in group], sequences, config, tokenizer.vocab_size)
        for (i, _), sequence in zip(samples, sequences, strict=True):
            texts[i].append(sequence.result())
    return texts


@torch.inference_mode()
def _generate_batch(
    model: Gpt,
    prompts: list[list[int]],
    sequences: list[GeneratedSequence],
    config: GenerationConfig,
    num_tokens: int,
) -> None:
    context, num, sampling = model.config.max_positions, config.num, config.sampling
    decoding = DecodingState(model, len(sequences), min(max(map(len, prompts)) + config.max_new_tokens, context))
    logits_NV = decoding.prefill(prompts)
    device = logits_NV.device
    copies_N = torch.arange(len(prompts), device=device).repeat_interleave(num)
    if num > 1:
        decoding.reorder(copies_N)
        logits_NV = logits_NV[copies_N]
    logits_NV = suppress(logits_NV, config.begin_suppress_tokens)
    seen_NV = None if sampling.repetition_penalty == 1 else token_mask(prompts, logits_NV)[copies_N]
    # Sample i of every prompt gets the same uniform numbers.
    uniform = [uniform_numbers(config.seed, sample, config.max_new_tokens) for sample in range(num)]
    uniform_NS = torch.from_numpy(np.stack(uniform)).repeat(len(prompts), 1).to(device)
    # A GPU computes the next step while the host handles the tokens of this one.
    launches_ahead = device.type == "cuda"
    for step in range(config.max_new_tokens):
        processed_NV = sampling.process(mask_unused(logits_NV, num_tokens), seen_NV)
        chosen_N = sampling.choose(processed_NV, uniform_NS[:, step])
        if seen_NV is not None:
            seen_NV.scatter_(1, chosen_N[:, None], True)
        if launches_ahead and step + 1 < config.max_new_tokens:
            logits_NV = decoding.step(chosen_N)
        for sequence, token in zip(sequences, chosen_N.tolist(), strict=True):
            if not sequence.finish_reason:
                sequence.add(token)
        if all(sequence.finish_reason for sequence in sequences):
            return
        if not launches_ahead:
            logits_NV = decoding.step(chosen_N)
        if full := [i for i, sequence in enumerate(sequences) if sequence.is_full and not sequence.finish_reason]:
            for i in full:
                sequences[i].window = sequences[i].window[-max(context // 2, 1) :]
            logits_NV[full] = decoding.prefill([sequences[i].window for i in full], full)


def suppress(logits_NV: Tensor, tokens: Collection[int]) -> Tensor:
    """Sets the logits of these tokens to -inf."""
    if not tokens:
        return logits_NV
    return logits_NV.index_fill(1, torch.tensor(sorted(tokens), device=logits_NV.device), -torch.inf)


def mask_unused(logits_NV: Tensor, num_tokens: int) -> Tensor:
    """Sets logits of embedding rows without a token (from `num_tokens` on) to -inf."""
    if num_tokens >= logits_NV.shape[-1]:
        return logits_NV
    return logits_NV.masked_fill(torch.arange(logits_NV.shape[-1], device=logits_NV.device) >= num_tokens, -torch.inf)


def token_mask(prompts: Sequence[Sequence[int]], logits_NV: Tensor) -> Tensor:
    """A bool mask, N x V, of the tokens that occur in each prompt."""
    mask_NV = np.zeros((len(prompts), logits_NV.shape[-1]), bool)
    for row, prompt in enumerate(prompts):
        mask_NV[row, list(prompt)] = True
    return torch.from_numpy(mask_NV).to(logits_NV.device)
