"""Token masking: selects tokens on the device, in a number known to the host, and replaces them.

In a sequence of n tokens, max(1, round(probability x n)) non-special tokens are selected, as in BERT. All sequences are
processed at once: tokens are sorted by (sequence, random key), and the first of each sequence are taken. For whole
words and n-grams, all tokens of a unit share one key, and a unit that would exceed the number is skipped for the next
that fits, also as in BERT; a sequence may therefore end up a token or two short if no unit is small enough.

Shapes: T tokens, N sequences, K selected tokens, V vocabulary.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from hornbook.batch import Batch, to_device, to_offsets
from hornbook.config import ValidatedSettings, setting
from hornbook.train.objective import Targets
from hornbook.train.randomness import NUM_BITS, random_bits

SELECTION_ROUNDS = 4  # of selecting units; a fifth would add less than 0.1% of the tokens, even with n-grams


@dataclass(frozen=True)
class MaskingSettings(ValidatedSettings, group="masking"):
    probability: float = setting(0.15, "fraction of the tokens that are predicted", above=0, below=1)
    final_probability: float | None = setting(
        None,
        "fraction of the tokens that are predicted at the end of the run; it changes linearly from masking.probability "
        "(GPT-BERT: from 0.3 to 0.15); none: constant",
        above=0,
        below=1,
    )
    mask_fraction: float = setting(0.8, "fraction of the predicted tokens replaced by the mask token", low=0, high=1)
    random_fraction: float = setting(
        0.1, "fraction of the predicted tokens replaced by a random token; the rest are unchanged", low=0, high=1
    )
    unit: Literal["token", "word", "ngram"] = setting("token", "unit that is masked as a whole: token, word or ngram")
    max_ngram: int = setting(
        3, "longest n-gram, in words; n is sampled with probability proportional to 1/n", low=1, high=100
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mask_fraction + self.random_fraction > 1 + 1e-9:
            raise ValueError(
                "masking.mask_fraction and masking.random_fraction together must be at most 1, "
                f"not {self.mask_fraction} and {self.random_fraction}"
            )

    def probability_at(self, run_fraction: float) -> float:
        """The fraction of the tokens that are predicted after this fraction of the run."""
        final = self.probability if self.final_probability is None else self.final_probability
        return self.probability + (final - self.probability) * run_fraction

    @property
    def mean_probability(self) -> float:
        return self.probability_at(0.5)


class Masking:
    """Masks the tokens of a batch. `special_ids` are never selected and never used as random tokens."""

    def __init__(self, settings: MaskingSettings, vocab_size: int, mask_id: int, special_ids: list[int]):
        self.settings = settings
        self.mask_id = mask_id
        is_special = torch.zeros(vocab_size, dtype=torch.bool)
        is_special[special_ids] = True
        self.is_special_V = is_special
        self.ordinary_ids = torch.nonzero(~is_special).flatten()

    def prepare(self, batch: Batch, keys_T: Tensor) -> tuple[Tensor, Targets]:
        """The corrupted token ids, T, and the original tokens at the selected positions as targets. `keys_T` are the
        `token_keys` of the batch."""
        device = batch.ids_T.device
        if self.is_special_V.device != device:
            self.is_special_V, self.ordinary_ids = self.is_special_V.to(device), self.ordinary_ids.to(device)
        order_T, ngram_T, *others = random_bits(keys_T, "order", "n-gram", "random token", "replacement")
        indices_K, weights_K, offsets_host = self._select(batch, order_T, ngram_T)
        values_K = batch.ids_T[indices_K]
        token_bits_K, bits_K = (bits_T[indices_K] for bits_T in others)
        random_K = self.ordinary_ids[token_bits_K * len(self.ordinary_ids) >> NUM_BITS]
        fractions = np.cumsum([self.settings.mask_fraction, self.settings.random_fraction])
        mask_below, random_below = (round(fraction * 2**NUM_BITS) for fraction in fractions.tolist())
        new_K = torch.where(bits_K < random_below, random_K, values_K)
        new_K = torch.where(bits_K < mask_below, self.mask_id, new_K)
        new_K = torch.where(weights_K > 0, new_K, values_K)
        ids_T = batch.ids_T.scatter(0, indices_K, new_K)
        return ids_T, Targets(indices_K, values_K, weights_K, offsets_host=offsets_host)

    def _select(self, batch: Batch, bits_T: Tensor, ngram_bits_T: Tensor) -> tuple[Tensor, Tensor, np.ndarray]:
        """Indices, weights and offsets of the selected tokens, as in `Targets`, from the random bits for their order
        and for the lengths of n-grams."""
        device = batch.ids_T.device
        lengths = np.diff(batch.offsets_host)
        rounded = np.round(self.settings.probability_at(batch.run_fraction) * lengths).astype(np.int64)
        num_selected = np.minimum(np.maximum(rounded, 1), lengths)
        num_selected[batch.num_real_sequences :] = 0
        offsets_host = to_offsets(num_selected)

        sequence_T = batch.sequence_T
        is_ordinary_T = ~self.is_special_V[batch.ids_T]
        unit_T = self._units(batch, sequence_T, is_ordinary_T, ngram_bits_T)
        # A random order of the units; the tokens of a unit share their bits and stay together, in their order.
        bits_T = bits_T[unit_T].where(is_ordinary_T, 1 << NUM_BITS)
        order_T = torch.argsort(bits_T + (sequence_T << NUM_BITS + 1), stable=True)

        is_selected_T = is_ordinary_T
        if self.settings.unit != "token":
            num_selected_N = to_device(num_selected, device)
            is_selected_T = _select_units(order_T, unit_T, sequence_T, is_ordinary_T, num_selected_N)
            # Move the selected tokens of each sequence to its front, in their order.
            is_other_T = (~is_selected_T[order_T]).long()
            order_T = order_T[torch.argsort(is_other_T + 2 * sequence_T, stable=True)]
        index_in_sequence_host = np.arange(offsets_host[-1]) - np.repeat(offsets_host[:-1], num_selected)
        index_host = np.repeat(batch.offsets_host[:-1], num_selected) + index_in_sequence_host
        indices_K = order_T[to_device(index_host, device)]
        return indices_K, is_selected_T[indices_K].float(), offsets_host

    def _units(self, batch: Batch, sequence_T: Tensor, is_ordinary_T: Tensor, ngram_bits_T: Tensor) -> Tensor:
        """For each token, the index of the first token of its unit, which is masked as a whole, T."""
        index_T = torch.arange(batch.num_tokens, device=batch.ids_T.device)
        if self.settings.unit == "token":
            return index_T
        previous_is_ordinary = torch.cat([is_ordinary_T.new_zeros(1), is_ordinary_T[:-1]])
        new_sequence = torch.cat([is_ordinary_T.new_ones(1), sequence_T[1:] != sequence_T[:-1]])
        starts_T = batch.word_starts_T | ~is_ordinary_T | ~previous_is_ordinary | new_sequence
        if self.settings.unit == "ngram":
            starts_T = starts_T & self._starts_ngram(batch, sequence_T, starts_T, ngram_bits_T)
            starts_T = starts_T | ~is_ordinary_T | ~previous_is_ordinary | new_sequence
        return torch.cummax(torch.where(starts_T, index_T, 0), 0).values

    def _starts_ngram(self, batch: Batch, sequence_T: Tensor, starts_T: Tensor, bits_T: Tensor) -> Tensor:
        """Splits the words of each sequence into n-grams of random lengths: whether the word of each token is the first
        of an n-gram, T. `starts_T` is True at the first token of a word."""
        weights = 1.0 / np.arange(1, self.settings.max_ngram + 1)
        below = np.round(np.cumsum(weights / weights.sum()) * 2**NUM_BITS).astype(np.int64)
        # The i-th n-gram of a sequence gets its length from the bits of the sequence's i-th token.
        lengths_T = 1 + torch.bucketize(bits_T, to_device(below, bits_T.device), right=True)
        first_T = batch.offsets.long()[sequence_T]
        ends_T = torch.cumsum(lengths_T, 0)
        ends_T = ends_T - (ends_T - lengths_T)[first_T]  # the word of the sequence at which the next n-gram starts
        next_T = torch.where(ends_T < batch.lengths_N[sequence_T], first_T + ends_T, batch.num_tokens)
        is_first = starts_T.new_zeros(batch.num_tokens + 1).scatter(0, next_T, True)
        word_T = torch.cumsum(starts_T, 0)
        return is_first[first_T + word_T - word_T[first_T]]


def _select_units(order_T: Tensor, unit_T: Tensor, sequence_T: Tensor, is_ordinary_T: Tensor, most_N: Tensor) -> Tensor:
    """Selects units of each sequence greedily in the given order, each that still fits into the sequence's `most_N`
    tokens. Returns True for their tokens, T.

    One unit at a time would be slow. Each round takes the units up to the first that does not fit, and discards all
    units larger than the remaining number, as they can never fit; the next round continues with the rest.
    """
    unit_T, sequence_T, is_open_T = unit_T[order_T], sequence_T[order_T], is_ordinary_T[order_T]
    size_T = torch.zeros_like(unit_T).scatter_add(0, unit_T, torch.ones_like(unit_T))[unit_T]
    rest_T = size_T - (order_T - unit_T) - 1  # tokens of the unit after this one; a unit is contiguous in the order
    for _ in range(SELECTION_ROUNDS):
        count_T = torch.cumsum(is_open_T, 0)
        before_N = torch.zeros_like(most_N).scatter_add(0, sequence_T, is_open_T.long()).cumsum(0)
        before_N = torch.cat([before_N.new_zeros(1), before_N[:-1]])
        fits_T = is_open_T & (count_T - before_N[sequence_T] + rest_T <= most_N[sequence_T])
        left_N = most_N.scatter_add(0, sequence_T, -fits_T.long())
        is_open_T = fits_T | (is_open_T & (size_T <= left_N[sequence_T]))
    return torch.zeros_like(is_ordinary_T).scatter(0, order_T, fits_T)
