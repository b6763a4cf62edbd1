"""Continuous batching: texts join and leave a running batch of generation between any two tokens.

batch = ContinuousBatch(model, tokenizer, eos_id, num_slots=4)
sequence = batch.add(prompt_ids, config)      # joins; its prompt is read into a free slot of the key-value cache
while not sequence.finish_reason:
    batch.step()                               # one token of every text

Each text has its own settings, seed and slot, so the result is identical to calling `generate` with that prompt alone.
The texts occupy the first slots of the cache: when one leaves, the last one moves into its slot, and a step computes no
others.

Shapes: N texts in the batch, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hornbook.inference.decoding_state import DecodingState
from hornbook.inference.generation import (
    GeneratedSequence,
    GenerationConfig,
    mask_unused,
    suppress,
    token_mask,
    uniform_numbers,
)
from hornbook.models.gpt import Gpt
from hornbook.text.tokenizer import Tokenizer


@dataclass
class _Slot:
    sequence: GeneratedSequence
    uniform: np.ndarray  # one number per token
    seen_1V: Tensor | None  # the tokens already in the text; None without a penalty for them


class ContinuousBatch:
    """Up to `num_slots` texts that are generated together, one token of each per step."""

    def __init__(self, model: Gpt, tokenizer: Tokenizer, eos_id: int | None, num_slots: int):
        self.model, self.tokenizer, self.eos_id, self.num_slots = model, tokenizer, eos_id, num_slots
        self.context = model.config.max_positions
        self.decoding = DecodingState(model, num_slots, self.context)
        self.slots: list[_Slot] = []  # slot i is row i of the cache
        self.logits_NV: Tensor | None = None  # of the next token of each text

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def has_free_slot(self) -> bool:
        return len(self.slots) < self.num_slots

    @torch.inference_mode()
    def add(
        self,
        prompt: Sequence[int],
        config: GenerationConfig,
        sample: int = 0,
        on_text: Callable[[str], None] | None = None,
    ) -> GeneratedSequence:
        """Reads the prompt, which must fit into the context, into a free slot; sliding is not supported. `sample` is
        the index among the `config.num_return_sequences` samples of this prompt."""
        assert self.has_free_slot and 0 < len(prompt) <= self.context and not config.slide
        logits_1V = self.decoding.prefill([prompt], [len(self.slots)])
        logits_1V = suppress(logits_1V, config.begin_suppress_tokens)
        seen_1V = None if config.repetition_penalty == 1 else token_mask([prompt], logits_1V)
        sequence = GeneratedSequence(prompt, config, self.tokenizer, self.eos_id, self.context, on_text)
        uniform = uniform_numbers(config.seed, sample, config.max_new_tokens)
        self.logits_NV = logits_1V if not self.slots else torch.cat([self.logits_NV, logits_1V])
        self.slots.append(_Slot(sequence, uniform, seen_1V))
        return sequence

    def remove(self, sequence: GeneratedSequence) -> None:
        """Frees the slot of a text that nobody waits for any more."""
        for row, slot in enumerate(self.slots):
            if slot.sequence is sequence:
                self.logits_NV = self.logits_NV[self._free(row)]
                return

    @torch.inference_mode()
    def step(self) -> None:
        """Appends a token to every text. Texts that end with it leave the batch."""
        if not self.slots:
            return
        tokens = self._choose()
        for slot, token in zip(self.slots, tokens, strict=True):
            slot.sequence.add(token)
        for row in reversed(range(len(self.slots))):
            if self.slots[row].sequence.finish_reason:
                tokens = [tokens[i] for i in self._free(row)]
        if self.slots:
            self.logits_NV = self._decoded(tokens)

    def _decoded(self, tokens: list[int]) -> Tensor:
        if self.decoding.device.type != "cuda":
            return self.decoding.step(torch.tensor(tokens))
        # The captured step has a fixed shape: free slots compute something that is not used.
        padded = tokens + [0] * (self.num_slots - len(tokens))
        return self.decoding.step(torch.tensor(padded, device=self.decoding.device))[: len(tokens)].clone()

    def _choose(self) -> list[int]:
        """The next token of each text, with its own settings."""
        logits_NV = mask_unused(self.logits_NV, self.tokenizer.vocab_size)
        tokens = [0] * len(self.slots)
        by_settings: dict[tuple, list[int]] = {}
        for row, slot in enumerate(self.slots):
            config = slot.sequence.config
            settings = (config.temperature, config.top_k, config.top_p, config.repetition_penalty)
            by_settings.setdefault(settings, []).append(row)
        for rows in by_settings.values():
            config = self.slots[rows[0]].sequence.config
            seen = [self.slots[row].seen_1V for row in rows]
            seen_NV = None if seen[0] is None else torch.cat(seen)
            uniform = [self.slots[row].uniform[len(self.slots[row].sequence.new)] for row in rows]
            uniform_N = torch.tensor(uniform, dtype=torch.float64).to(logits_NV.device)
            chosen_N = config.choose(logits_NV[rows], seen_NV, uniform_N)
            for row, token in zip(rows, chosen_N.tolist(), strict=True):
                tokens[row] = token
                if self.slots[row].seen_1V is not None:
                    self.slots[row].seen_1V[0, token] = True
        return tokens

    def _free(self, row: int) -> list[int]:
        """Frees a row, into which the last one moves; returns the former rows in their new order."""
        order, last = list(range(len(self.slots))), len(self.slots) - 1
        if row != last:
            self.decoding.move(last, row)
            self.slots[row], order[row] = self.slots[last], last
        self.slots.pop()
        return order[:-1]
