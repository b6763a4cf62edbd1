"""Splits off a held-out set where a data set has none."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from operator import attrgetter
from typing import TypeVar

from hornbook.tasks.records import Example, SpanExample, TextExample

E = TypeVar("E")
HELD_OUT = 0.1  # fraction of train that becomes the dev split if there is none
FEWEST, FEWEST_HELD_OUT = 4, 2  # minimum number of examples; a correlation needs two


def split_off(
    examples: Sequence[E],
    fraction: float,
    seed: int,
    strata: Callable[[E], Hashable] | None = None,
    at_least: int = 1,
) -> tuple[list[E], list[E]]:
    """(remaining examples, examples split off), both in their original order.

    Each stratum contributes `fraction` of its examples. Every stratum keeps at least one example, unless this splits
    off fewer than `at_least` in total. The selection depends only on the seed and the indices of the examples.
    """
    if not 0 < fraction < 1:
        raise ValueError(f"the fraction to hold out must be between 0 and 1, not {fraction}")
    by_stratum: dict[Hashable, list[int]] = defaultdict(list)
    for index, example in enumerate(examples):
        by_stratum[strata(example) if strata else None].append(index)
    selected: set[int] = set()
    owed = 0.0  # carried over between strata, so that small ones contribute their fraction together
    for indices in by_stratum.values():
        owed += len(indices) * fraction
        num = min(int(owed + 0.5), len(indices) - 1)
        owed = min(owed - num, 1.0)  # limits what a large stratum contributes for many single-example ones
        selected.update(_shuffled(indices, seed)[: max(num, 0)])
    while len(selected) < min(at_least, len(examples) - 1):
        largest = max(
            ([index for index in indices if index not in selected] for indices in by_stratum.values()), key=len
        )
        selected.add(_shuffled(largest, seed)[0])
    return _divided(examples, selected)


def split_groups(
    examples: Sequence[E], fraction: float, seed: int, group: Callable[[E], Hashable], at_least: int = 1
) -> tuple[list[E], list[E]]:
    """As `split_off`, but by whole groups in random order, until they have `fraction` of the examples and at least
    `at_least`. At least one group always remains."""
    by_group: dict[Hashable, list[int]] = defaultdict(list)
    for index, example in enumerate(examples):
        by_group[group(example)].append(index)
    selected: set[int] = set()
    firsts = {indices[0]: indices for indices in by_group.values()}
    for first in _shuffled(list(firsts), seed)[: len(firsts) - 1]:
        if len(selected) >= max(fraction * len(examples), at_least):
            break
        selected.update(firsts[first])
    return _divided(examples, selected)


def _divided(examples: Sequence[E], selected: set[int]) -> tuple[list[E], list[E]]:
    rest = [example for index, example in enumerate(examples) if index not in selected]
    return rest, [examples[index] for index in sorted(selected)]


def by_article(examples: Sequence[SpanExample]) -> tuple[list[SpanExample], list[SpanExample]]:
    """(train, dev) by whole articles, about half each, for data of which only one published split is available. The
    split of an article depends only on its title, not on the rest of the file."""
    halves: tuple[list[SpanExample], list[SpanExample]] = ([], [])
    for example in examples:
        digest = hashlib.sha256(example.title.encode("utf-8", "surrogatepass")).digest()
        halves[digest[-1] % 2].append(example)
    return halves


def hold_out(examples: list[Example], fraction: float, seed: int) -> tuple[list[Example], list[Example], str]:
    """(train, dev, description of the split: by article, by passage, by label or at random)."""
    if len(examples) < FEWEST:
        raise ValueError(
            f"{len(examples)} examples are too few to hold some out: give at least {FEWEST}, or a separate dev split"
        )
    for group, how in examples[0].kept_together:
        train, dev = split_groups(examples, fraction, seed, attrgetter(group), FEWEST_HELD_OUT)
        if len(dev) >= FEWEST_HELD_OUT:
            return train, dev, how
    if examples[0].is_stratified:
        return *split_off(examples, fraction, seed, _stratum, FEWEST_HELD_OUT), "by label"
    return *split_off(examples, fraction, seed, at_least=FEWEST_HELD_OUT), "at random"


def _stratum(example: TextExample) -> Hashable:
    return example.label[:1] if isinstance(example.label, tuple) else example.label


def _shuffled(indices: list[int], seed: int) -> list[int]:
    """Shuffled by hash rather than by a random generator: the order is the same on every machine and version."""
    return sorted(indices, key=lambda index: hashlib.sha256(f"{seed}:{index}".encode()).digest())
