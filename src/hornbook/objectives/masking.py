"""Which tokens to hide, and what to put there: drawn on the device, in a fixed number known to the host.

In a sequence of n tokens, max(1, round(rate x n)) ordinary ones are chosen, as BERT published it. All sequences are
drawn at once: tokens are sorted by (sequence, random key), and the first of each sequence are taken. With whole words
or n-grams all tokens of a group share one key, and a group that would go past the number is passed over for the next
that fits, as published too; so a sequence may end up a token or two short, where no group is small enough.

Shapes: T tokens, N sequences, K chosen tokens.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from hornbook.batch import Batch
from hornbook.config import Typed, setting
from hornbook.train.objective import Targets

NUM_ROUNDS = 4  # in which groups are chosen; a fifth would add less than 0.1% of the tokens, even with n-grams


@dataclass(frozen=True)
class MaskingSettings(Typed, group="masking"):
    probability: float = setting(0.15, "share of the tokens that are predicted", above=0, below=1)
    mask_fraction: float = setting(0.8, "of those, how many become the mask token", low=0, high=1)
    random_fraction: float = setting(
        0.1, "of those, how many become a random token; the rest stay as they are", low=0, high=1
    )
    unit: Literal["token", "word", "ngram"] = setting("token", "what is chosen as a whole: a token, a word, an n-gram")
    max_ngram: int = setting(
        3, "longest n-gram, in words; n is drawn with probability proportional to 1/n", low=1, high=100
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mask_fraction + self.random_fraction > 1 + 1e-9:
            raise ValueError(
                "masking.mask_fraction and masking.random_fraction must be together at most 1, "
                f"not {self.mask_fraction} and {self.random_fraction}"
            )


class Masking:
    """Draws masks for a vocabulary. `special_ids` are never chosen and never put in as a random token."""

    def __init__(self, settings: MaskingSettings, vocab_size: int, mask_id: int, special_ids: list[int]):
        self.settings = settings
        self.mask_id = mask_id
        is_special = torch.zeros(vocab_size, dtype=torch.bool)
        is_special[special_ids] = True
        self.is_special_V = is_special
        self.ordinary_ids = torch.nonzero(~is_special).flatten()

    def prepare(self, batch: Batch, generator: torch.Generator) -> tuple[Tensor, Targets]:
        """The corrupted token ids, T, and what stood at the chosen positions."""
        device = batch.ids_T.device
        if self.is_special_V.device != device:
            self.is_special_V, self.ordinary_ids = self.is_special_V.to(device), self.ordinary_ids.to(device)
        positions_K, weights_K, starts_host = self._choose(batch, generator)
        values_K = batch.ids_T[positions_K]
        shape = {"device": device, "generator": generator}
        coin_K = torch.rand(len(positions_K), **shape)
        random_K = self.ordinary_ids[torch.randint(len(self.ordinary_ids), (len(positions_K),), **shape)]
        mask_fraction, random_fraction = self.settings.mask_fraction, self.settings.random_fraction
        put_K = torch.where(coin_K < mask_fraction, self.mask_id, values_K)
        put_K = torch.where((coin_K >= mask_fraction) & (coin_K < mask_fraction + random_fraction), random_K, put_K)
        put_K = torch.where(weights_K > 0, put_K, values_K)
        ids_T = batch.ids_T.scatter(0, positions_K, put_K)
        return ids_T, Targets(positions_K, values_K, weights_K, starts_host)

    def _choose(self, batch: Batch, generator: torch.Generator) -> tuple[Tensor, Tensor, np.ndarray]:
        device = batch.ids_T.device
        num_tokens = batch.num_tokens
        lengths = np.diff(batch.starts_host)
        num_chosen = np.maximum(np.round(self.settings.probability * lengths).astype(np.int64), 1)
        num_chosen = np.minimum(num_chosen, lengths)
        num_chosen[batch.num_real_sequences :] = 0
        starts_host = np.concatenate([[0], np.cumsum(num_chosen)])

        sequence_T = torch.repeat_interleave(
            torch.arange(batch.num_sequences, device=device),
            (batch.starts[1:] - batch.starts[:-1]).long(),
            output_size=num_tokens,
        )
        is_ordinary_T = ~self.is_special_V[batch.ids_T]
        group_T = self._groups(batch, sequence_T, is_ordinary_T, generator)
        # A random order of the groups; the group's number breaks ties so that its tokens stay together.
        key_T = torch.rand(num_tokens, device=device, generator=generator, dtype=torch.float64)
        key_T = key_T[group_T].where(is_ordinary_T, 2.0)
        order_T = torch.argsort(key_T + 4.0 * sequence_T, stable=True)

        is_wanted_T = is_ordinary_T
        if self.settings.unit != "token":
            num_chosen_N = _sent(num_chosen, device)
            is_wanted_T = _fitting(order_T, group_T, sequence_T, is_ordinary_T, num_chosen_N)
            # The wanted ones first in each sequence, in their order.
            unwanted_T = (~is_wanted_T[order_T]).long()
            order_T = order_T[torch.argsort(unwanted_T + 2 * sequence_T, stable=True)]
        rank_host = np.arange(starts_host[-1]) - np.repeat(starts_host[:-1], num_chosen)
        from_host = np.repeat(batch.starts_host[:-1], num_chosen) + rank_host
        positions_K = order_T[_sent(from_host, device)]
        return positions_K, is_wanted_T[positions_K].float(), starts_host

    def _groups(self, batch: Batch, sequence_T: Tensor, is_ordinary_T: Tensor, generator: torch.Generator) -> Tensor:
        """For each token the first token of the group that it is chosen with."""
        device, num_tokens = batch.ids_T.device, batch.num_tokens
        index_T = torch.arange(num_tokens, device=device)
        if self.settings.unit == "token":
            return index_T
        previous_is_ordinary = torch.cat([is_ordinary_T.new_zeros(1), is_ordinary_T[:-1]])
        new_sequence = torch.cat([is_ordinary_T.new_ones(1), sequence_T[1:] != sequence_T[:-1]])
        starts_T = batch.word_starts_T | ~is_ordinary_T | ~previous_is_ordinary | new_sequence
        if self.settings.unit == "ngram":
            word_T = torch.cumsum(starts_T, 0) - 1
            starts_T = self._ngram_starts(num_tokens, generator, device)[word_T] & starts_T
            starts_T = starts_T | ~is_ordinary_T | ~previous_is_ordinary | new_sequence
        return torch.cummax(torch.where(starts_T, index_T, 0), 0).values

    def _ngram_starts(self, num_words: int, generator: torch.Generator, device: torch.device) -> Tensor:
        """Cuts a row of words into n-grams of random lengths: True where one starts."""
        share = 1.0 / torch.arange(1, self.settings.max_ngram + 1, device=device, dtype=torch.float32)
        lengths = torch.multinomial(share, num_words, replacement=True, generator=generator) + 1
        ends = torch.cumsum(lengths, 0).clamp(max=num_words)
        starts = torch.zeros(num_words + 1, dtype=torch.bool, device=device)
        starts[0] = True
        return starts.scatter(0, ends, True)[:num_words]


def _sent(array: np.ndarray, device: torch.device) -> Tensor:
    """On its way to the device; from pinned memory, so that the host does not wait for what the device is at."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


def _fitting(order_T: Tensor, group_T: Tensor, sequence_T: Tensor, is_ordinary_T: Tensor, most_N: Tensor) -> Tensor:
    """Goes through each sequence's groups in the given order and takes each that still fits: True for their tokens.

    One by one would be slow. In a round, the groups up to the first that does not fit are taken, and all that are
    larger than the room left are struck out, as they will never fit; the next round goes on with what remains.
    """
    group_T, sequence_T, is_open_T = group_T[order_T], sequence_T[order_T], is_ordinary_T[order_T]
    size_T = torch.zeros_like(group_T).scatter_add(0, group_T, torch.ones_like(group_T))[group_T]
    to_come_T = size_T - (order_T - group_T) - 1  # a group's tokens follow each other in the text, and in the order too
    for _ in range(NUM_ROUNDS):
        count_T = torch.cumsum(is_open_T, 0)
        before_N = torch.zeros_like(most_N).scatter_add(0, sequence_T, is_open_T.long()).cumsum(0)
        before_N = torch.cat([before_N.new_zeros(1), before_N[:-1]])
        fits_T = is_open_T & (count_T - before_N[sequence_T] + to_come_T <= most_N[sequence_T])
        left_N = most_N.scatter_add(0, sequence_T, -fits_T.long())
        is_open_T = fits_T | (is_open_T & (size_T <= left_N[sequence_T]))
    return torch.zeros_like(is_ordinary_T).scatter(0, order_T, fits_T)
