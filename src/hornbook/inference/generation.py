"""Batched generation by sampling or greedy decoding, with several samples per prompt. Beam search is in `beams.py`.

Shapes: N sequences (all samples of the first prompt, then of the second, ...), V vocabulary.
A continuation depends on the prompt, the settings, the seed and the index of the sample, not on the other prompts of
the batch: each token is drawn with one uniform number, so a sample is the same on every device and in every batch.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from hornbook.config import LARGEST_SEED, setting
from hornbook.inference.decoding_state import DecodingState
from hornbook.models.gpt import Gpt
from hornbook.tasks.text.sampling import SamplingSettings
from hornbook.text.tokenizer import Tokenizer

FinishReason = Literal["end", "stop", "length", "context"]
OnText = Callable[[int, int, str], None]  # index of the prompt, index of the sample, new text

MAX_NEW_TOKENS = 100
CACHE_TOKENS = 131_072  # capacity of the key-value cache of one batch, approximately
NUM_BEFORE = 8  # tokens of context decoded again with each new token, so that leading spaces come out right
REPLACEMENT = "\ufffd"  # decoded from bytes that do not form a character, or not yet


@dataclass(frozen=True)
class Generated:
    text: str  # without the prompt
    ids: list[int]  # token ids of the text, without the end-of-text token
    finish_reason: FinishReason  # by the end-of-text token, a stop string, max_new_tokens, or a full context


@dataclass(frozen=True, kw_only=True)
class GenerationConfig(SamplingSettings, group=""):
    """Generation settings, the same for every prompt. The logits processors compute what those of the same name in
    `transformers` do, in the same order."""

    max_new_tokens: int = setting(MAX_NEW_TOKENS, "maximum number of new tokens", low=1, high=1_000_000)
    repetition_penalty: float = setting(
        1.0, "above 1, tokens already in the text become less likely", above=0, high=1e6
    )
    stop_strings: tuple[str, ...] = ()
    seed: int = setting(0, "random seed", low=0, high=LARGEST_SEED)
    num_return_sequences: int = setting(1, "samples per prompt", low=1, high=10_000)
    slide: bool = False
    begin_suppress_tokens: frozenset[int] = frozenset()  # tokens that a continuation must not start with

    def __post_init__(self) -> None:
        super().__post_init__()
        if "" in self.stop_strings:
            raise ValueError("a stop string must have at least one character")
        if self.num_return_sequences > 1 and self.is_greedy:
            raise ValueError(
                "temperature 0 generates the same text every time: set num_return_sequences=1, or a temperature above 0"
            )

    def process(self, logits_NV: Tensor, seen_NV: Tensor | None = None) -> Tensor:
        """Returns the processed logits to sample from; `seen_NV` (bool) marks the tokens already in each text."""
        if seen_NV is not None and self.repetition_penalty != 1:
            logits_NV = penalize_repetition(logits_NV, seen_NV, self.repetition_penalty)
        if self.is_greedy:
            return logits_NV
        logits_NV = logits_NV / self.temperature
        if self.top_k is not None:
            logits_NV = keep_top_k(logits_NV, self.top_k)
        if self.top_p is not None and self.top_p < 1:
            logits_NV = keep_top_p(logits_NV, self.top_p)
        return logits_NV

    def choose(self, logits_NV: Tensor, seen_NV: Tensor | None, uniform_N: Tensor) -> Tensor:
        """Returns the next token of each sequence, N, drawn with uniform numbers in [0, 1)."""
        logits_NV = self.process(logits_NV, seen_NV)
        return argmax(logits_NV) if self.is_greedy else sample_by_inverse_cdf(logits_NV, uniform_N)


class StreamingDetokenizer:
    """Decodes the continuation of a prompt token by token.

    `add` returns the text that can be shown now. Bytes that the next token may complete to a character, and text that
    may be the beginning of a stop string, are held back. An incomplete character at the very end is dropped.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], stop: Sequence[str] = ()):
        self.tokenizer = tokenizer
        self.stop = tuple(stop)
        self.ids = list(prompt[-NUM_BEFORE:])  # tokens that the next text depends on
        self.num_shown = len(tokenizer.decode(self.ids))  # characters of their text that were returned already
        self.text = ""  # all text returned so far
        self.held = ""  # held back: may be the beginning of a stop string
        self.is_stopped = False

    def add(self, tokens: Sequence[int]) -> str:
        """Appends tokens and returns the new text; after a stop string, always an empty one."""
        if self.is_stopped:
            return ""
        self.ids += tokens
        text = self.tokenizer.decode(self.ids)
        if text.endswith(REPLACEMENT):  # complete characters before it can be returned
            text = text.rstrip(REPLACEMENT)
            new = text[self.num_shown :]
            self.num_shown = max(self.num_shown, len(text))
        else:
            new = text[self.num_shown :]
            self.ids = self.ids[-NUM_BEFORE:]
            self.num_shown = len(self.tokenizer.decode(self.ids))
        return self._show(self.held + new)

    def finish(self) -> str:
        """Returns the text that was held back for a stop string that never came."""
        rest, self.held = self.held, ""
        self.text += rest
        return rest

    def _show(self, text: str) -> str:
        starts = [start for stop in self.stop if (start := text.find(stop)) >= 0]
        if starts:
            self.is_stopped = True
            text, self.held = text[: min(starts)], ""
        else:
            num_held = max((_overlap(text, stop) for stop in self.stop), default=0)
            text, self.held = text[: len(text) - num_held], text[len(text) - num_held :]
        self.text += text
        return text


def _overlap(text: str, stop: str) -> int:
    """Returns how many characters at the end of the text may be the beginning of the stop string.

    >>> _overlap("one two", "two three"), _overlap("one", "two")
    (3, 0)
    """
    return next((num for num in range(min(len(text), len(stop) - 1), 0, -1) if stop.startswith(text[-num:])), 0)


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
        self.detokenizer = StreamingDetokenizer(tokenizer, prompt, config.stop_strings)
        self.finish_reason: FinishReason | None = None

    @property
    def is_full(self) -> bool:
        return len(self.window) > self.context

    @property
    def ids(self) -> list[int]:
        """The new tokens, without the end-of-text token."""
        return self.new[:-1] if self.finish_reason == "end" else self.new

    def add(self, token: int) -> None:
        """Appends a token, with which the sequence may end."""
        self.new.append(token)
        if token == self.eos_id:
            self._finish("end")
            return
        self.window.append(token)
        if self.on_text is not None or self.config.stop_strings:
            self._write([token])
        if self.detokenizer.is_stopped:
            self._finish("stop")
        elif len(self.new) == self.config.max_new_tokens:
            self._finish("length")
        elif self.is_full and not self.config.slide:
            self._finish("context")

    def result(self) -> Generated:
        """The text, once the sequence is finished."""
        return Generated(self.detokenizer.text, self.ids, self.finish_reason)

    def _finish(self, finish_reason: FinishReason) -> None:
        self.finish_reason = finish_reason
        if self.on_text is None and not self.config.stop_strings:
            self._write(self.ids)
        if finish_reason != "stop" and (rest := self.detokenizer.finish()) and self.on_text is not None:
            self.on_text(rest)

    def _write(self, tokens: list[int]) -> None:
        text = self.detokenizer.add(tokens)
        if text and self.on_text is not None:
            self.on_text(text)


def fit_prompts(prompts: Sequence[Sequence[int]], context: int, slide: bool | None) -> list[list[int]]:
    """Returns the prompts with those longer than the context truncated on the left (`slide`) or refused; None where
    there is no such option."""
    prompts = [list(prompt[-context:]) if slide else list(prompt) for prompt in prompts]
    for i, prompt in enumerate(prompts):
        which = f"prompt {i + 1}" if len(prompts) > 1 else "the prompt"
        if not prompt:
            raise ValueError(
                f"{which} is empty, and the model has no end-of-text token to start from: give at least one word"
            )
        if len(prompt) > context:
            option = "" if slide is None else f", or use slide=True, which keeps the last {context:,}"
            raise ValueError(
                f"{which} has {len(prompt):,} tokens, {len(prompt) - context:,} more than the model's context of "
                f"{context:,}: shorten it{option}"
            )
    return prompts


def group_prompts(prompts: list[list[int]], num: int, max_new_tokens: int, context: int) -> list[list[int]]:
    """Groups the indices of prompts of similar length into batches; `num` is the number of sequences per prompt."""
    groups: list[list[int]] = []
    for i in sorted(range(len(prompts)), key=lambda i: len(prompts[i])):
        num_slots = min(len(prompts[i]) + max_new_tokens, context) * num
        if not groups or (len(groups[-1]) + 1) * num_slots > CACHE_TOKENS:
            groups.append([])
        groups[-1].append(i)
    return [sorted(group) for group in groups]


def generate(
    model: Gpt,
    tokenizer: Tokenizer,
    prompts: Sequence[Sequence[int]],
    config: GenerationConfig,
    eos_id: int | None = None,
    on_text: OnText | None = None,
) -> list[list[Generated]]:
    """Returns `config.num_return_sequences` continuations of each prompt. Token ids that the tokenizer
    does not have are never chosen.

    A sequence ends with the token `eos_id`, at a stop string, after `max_new_tokens`, or when the context is full. With
    `slide`, generation continues past a full context: the last half of the context is encoded again as the new one.
    """
    context = model.config.max_positions
    prompts = fit_prompts(prompts, context, config.slide)
    texts: list[list[Generated]] = [[] for _ in prompts]
    for group in group_prompts(prompts, config.num_return_sequences, config.max_new_tokens, context):
        samples = [(i, sample) for i in group for sample in range(config.num_return_sequences)]
        sequences = [
            GeneratedSequence(prompts[i], config, tokenizer, eos_id, context, on_text and partial(on_text, i, sample))
            for i, sample in samples
        ]
        _generate_batch(model, [prompts[i] for i in group], sequences, config, tokenizer.vocab_size)
        for (i, _), sequence in zip(samples, sequences, strict=True):
            texts[i].append(sequence.result())
    return texts


@torch.inference_mode()
def _generate_batch(
    model: Gpt, prompts: list[list[int]], sequences: list[GeneratedSequence], config: GenerationConfig, num_tokens: int
) -> None:
    decoding, logits_NV, seen_NV = read_prompts(model, prompts, config.num_return_sequences, config)
    context, device = model.config.max_positions, logits_NV.device
    # Sample i of every prompt gets the same uniform numbers.
    uniform = [
        uniform_numbers(config.seed, sample, config.max_new_tokens) for sample in range(config.num_return_sequences)
    ]
    uniform_NS = torch.from_numpy(np.stack(uniform)).repeat(len(prompts), 1).to(device)
    # A GPU computes the next step while the host handles the tokens of this one.
    launches_ahead = device.type == "cuda"
    for step in range(config.max_new_tokens):
        chosen_N = config.choose(mask_unused(logits_NV, num_tokens), seen_NV, uniform_NS[:, step])
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


def read_prompts(
    model: Gpt, prompts: list[list[int]], num: int, config: GenerationConfig
) -> tuple[DecodingState, Tensor, Tensor | None]:
    """Reads each prompt into `num` sequences of a new cache. Returns it with the logits of the next tokens, N x V, and
    a bool mask of the tokens already in each text, N x V; None without a penalty for them."""
    capacity = min(max(map(len, prompts)) + config.max_new_tokens, model.config.max_positions)
    decoding = DecodingState(model, len(prompts) * num, capacity)
    logits_NV = decoding.prefill(prompts)
    copies_N = torch.arange(len(prompts), device=logits_NV.device).repeat_interleave(num)
    if num > 1:
        decoding.reorder(copies_N)
        logits_NV = logits_NV[copies_N]
    seen_NV = None if config.repetition_penalty == 1 else token_mask(prompts, logits_NV)[copies_N]
    return decoding, suppress(logits_NV, config.begin_suppress_tokens), seen_NV


def argmax(logits_NV: Tensor) -> Tensor:
    """The first maximum of each row; on a CPU by numpy, which takes a tenth of the time of torch."""
    if logits_NV.device.type == "cpu":
        return torch.from_numpy(logits_NV.numpy().argmax(-1))
    return logits_NV.argmax(-1)


def penalize_repetition(logits_NV: Tensor, seen_NV: Tensor, penalty: float) -> Tensor:
    """Keskar et al. 2019 (arXiv 1909.05858): logits of seen tokens are divided by the penalty, or multiplied if < 0."""
    less_NV = torch.where(logits_NV < 0, logits_NV * penalty, logits_NV / penalty)
    return torch.where(seen_NV, less_NV, logits_NV)


def keep_top_k(logits_NV: Tensor, k: int) -> Tensor:
    """Keeps the `k` highest logits and those equal to the last of them; the others become -inf."""
    last_N1 = logits_NV.topk(min(k, logits_NV.shape[-1])).values[:, -1:]
    return logits_NV.masked_fill(logits_NV < last_N1, -torch.inf)


def keep_top_p(logits_NV: Tensor, p: float) -> Tensor:
    """Holtzman et al. 2020 (arXiv 1904.09751): keeps the fewest tokens whose total probability reaches `p`."""
    ascending = logits_NV.sort(-1)
    is_out_NV = ascending.values.softmax(-1).cumsum(-1) <= 1 - p
    is_out_NV[:, -1] = False
    return logits_NV.masked_fill(is_out_NV.scatter(-1, ascending.indices, is_out_NV), -torch.inf)


def sample_by_inverse_cdf(logits_NV: Tensor, uniform_N: Tensor) -> Tensor:
    """Inverse transform sampling: the token at which the cumulative probability, in vocabulary order, passes each
    uniform number."""
    # In float64: in float32 the error of the sum over 50,000 tokens exceeds the probability of a rare token.
    cumulative_NV = logits_NV.double().softmax(-1).cumsum(-1)
    targets_N1 = (uniform_N * cumulative_NV[:, -1]).unsqueeze(-1)
    return torch.searchsorted(cumulative_NV, targets_N1, right=True).squeeze(-1).clamp(max=logits_NV.shape[-1] - 1)


def uniform_numbers(seed: int, sample: int, num: int) -> np.ndarray:
    """`num` uniform numbers in [0, 1) for sample `sample` of a prompt. They depend on the seed and the sample only; a
    larger `num` extends the same sequence.

    >>> bool((uniform_numbers(0, 1, 5)[:3] == uniform_numbers(0, 1, 3)).all())
    True
    """
    return np.random.default_rng([seed, sample]).random(num)


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
