"""All randomness of a run is keyed by (seed, batch number, example, purpose). No random state carries over between
steps or examples, so any share of a batch can be prepared alone, on any device, with the same result."""

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from hornbook.batch import Batch, to_device

GOLDEN = 0x9E3779B97F4A7C15 - 2**64  # 2^64 over the golden ratio, as int64
NUM_BITS = 32
T = TypeVar("T")

is_hashing_compiled = False  # set by `compile_hashing`


def seed_of(*parts: int | str) -> int:
    """A 63-bit seed hashed from all arguments.

    >>> seed_of(0, 1, "draw") != seed_of(0, 2, "draw")
    True
    """
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def sample_of(items: Sequence[T], num: int, *key: int | str) -> list[T]:
    """`num` of the items, or all if there are fewer, in their order. They depend on `key` only, and a larger sample
    contains the smaller ones.

    >>> sample_of("abcdef", 3, "letters"), sample_of("abcdef", 2, "letters")
    (['a', 'b', 'd'], ['a', 'd'])
    """
    chosen = np.random.default_rng(seed_of(*key)).permutation(len(items))[:num]
    return [items[i] for i in sorted(chosen.tolist())]


def seed_generators(seed: int) -> None:
    """Seeds the default generators, from which dropout draws. `torch.manual_seed` would also queue a call for every
    kind of device that is not in use, with a formatted call stack: 1 to 5 ms per step."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)


def token_keys(batch: Batch, seed: int) -> Tensor:
    """A key for the random numbers of each token, from (seed, example, position in the sequence): int64, T."""
    keys_N = _mixed(torch.from_numpy(batch.step_index_host) * GOLDEN + seed)
    keys_N = to_device(keys_N.numpy(), batch.ids_T.device)
    return _fused(_hashed_positions, keys_N)(keys_N, batch.sequence_T, batch.positions_T)


def keys_at(step_index_K: Tensor, positions_K: Tensor, seed: int) -> Tensor:
    """The `token_keys` of the tokens at some positions of some examples, int64, K."""
    return _mixed(_mixed(step_index_K * GOLDEN + seed) + positions_K * GOLDEN)


def random_bits(keys: Tensor, *purposes: str) -> Tensor:
    """A uniformly random integer below 2^32 for each purpose and each key, int64: a row for each purpose."""
    return _fused(_hashed_purposes, keys)(keys, _purpose_seeds(purposes, keys.device))


def compile_hashing() -> None:
    """From now on, the operations of a hash run as one kernel on a GPU instead of a dozen. The numbers are the same."""
    global is_hashing_compiled
    is_hashing_compiled = True


def _fused(function: Callable[..., Tensor], keys: Tensor) -> Callable[..., Tensor]:
    return _compiled(function) if is_hashing_compiled and keys.is_cuda else function


@cache
def _compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return torch.compile(function, dynamic=True)


@cache
def _purpose_seeds(purposes: tuple[str, ...], device: torch.device) -> Tensor:
    """A column with the seed of each purpose."""
    return torch.tensor([[seed_of(purpose)] for purpose in purposes], device=device)


def _hashed_positions(keys_N: Tensor, sequence_T: Tensor, positions_T: Tensor) -> Tensor:
    return _mixed(keys_N[sequence_T] + positions_T * GOLDEN)


def _hashed_purposes(keys_K: Tensor, seeds_P1: Tensor) -> Tensor:
    return _shifted(_mixed(keys_K ^ seeds_P1), NUM_BITS)


def _mixed(x: Tensor) -> Tensor:
    """SplitMix64's finaliser: a permutation of int64 in which every bit depends on every bit (Steele et al. 2014)."""
    x = (x ^ _shifted(x, 30)) * (0xBF58476D1CE4E5B9 - 2**64)
    x = (x ^ _shifted(x, 27)) * (0x94D049BB133111EB - 2**64)
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, num_bits: int) -> Tensor:
    """A right shift that fills with zeros, also for negative numbers."""
    return (x >> num_bits) & ((1 << (64 - num_bits)) - 1)
