"""Splits off a held-out set where a data set has none."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from operator import attrgetter
from typing import TypeVar

from hornbook.tasks.overlap import text_hash
from hornbook.tasks.records import Example, SpanExample, TextExample

E = TypeVar("E")
HELD_OUT = 0.1  # fraction of train that becomes the dev split if there is none
LARGEST_SHARE = 3  # whole articles are held out if they take at most this many times the fraction
MIN_EXAMPLES, MIN_HELD_OUT = 4, 2  # minimum number of examples; a correlation needs two


def split_off(
    examples: Sequence[E],
    fraction: float,
    seed: int,
    strata: Callable[[E], Hashable] | None = None,
    at_least: int = 1,
) -> tuple[list[E], list[E]]:
    """(remaining examples, examples split off), both in their original order.

    Each stratum contributes its `fraction`, and one example if it has two and another stratum can contribute one less.
    Every stratum keeps at least one example, unless this splits off fewer than `at_least` in total. The selection
    depends only on the seed and the indices of the examples.
    """
    if not 0 < fraction < 1:
        raise ValueError(f"the fraction to hold out must be between 0 and 1, not {fraction}")
    by_stratum: dict[Hashable, list[int]] = defaultdict(list)
    for index, example in enumerate(examples):
        by_stratum[strata(example) if strata else None].append(index)
    strata_indices, nums = list(by_stratum.values()), []  # nums: how many each stratum contributes
    owed = 0.0  # carried over between strata, so that small ones contribute their fraction together
    for indices in strata_indices:
        owed += len(indices) * fraction
        nums.append(min(int(owed + 0.5), len(indices) - 1))
        owed = min(owed - nums[-1], 1.0)  # limits what a large stratum contributes for many single-example ones
    while sum(nums) < min(at_least, len(examples) - 1):
        remaining = [len(indices) - num for indices, num in zip(strata_indices, nums, strict=True)]
        nums[remaining.index(max(remaining))] += 1
    for i, indices in enumerate(strata_indices):
        if nums[i] == 0 and len(indices) > 1 and max(nums) > 1:
            nums[nums.index(max(nums))] -= 1
            nums[i] = 1
    selected = {
        index for indices, num in zip(strata_indices, nums, strict=True) for index in _shuffled(indices, seed)[:num]
    }
    return _divided(examples, selected)


def split_groups(
    examples: Sequence[E], fraction: float, seed: int, group: Callable[[E], Hashable], at_least: int = 1
) -> tuple[list[E], list[E]]:
    """As `split_off`, but by whole groups in random order, until they have this `fraction` and at least `at_least`
    examples. At least one group always remains."""
    groups = {indices[0]: indices for indices in _groups(examples, group)}
    selected: set[int] = set()
    for first in _shuffled(list(groups), seed)[: len(groups) - 1]:
        if len(selected) >= max(fraction * len(examples), at_least):
            break
        selected.update(groups[first])
    return _divided(examples, selected)


def by_article(examples: Sequence[SpanExample]) -> tuple[list[SpanExample], list[SpanExample]]:
    """(train, dev) by whole articles, about half each, for data of which only one published split is available. The
    split of an article depends only on its title, not on the rest of the file."""
    halves: tuple[list[SpanExample], list[SpanExample]] = ([], [])
    for example in examples:
        digest = hashlib.sha256(example.title.encode("utf-8", "surrogatepass")).digest()
        halves[digest[-1] % 2].append(example)
    return halves


def hold_out(examples: list[Example], fraction: float, seed: int) -> tuple[list[Example], list[Example], str]:
    """(train, dev, description of the split: by article, by passage, by label or at random). Examples with the same
    texts, apart from case and white space, are on the same side; one that occurs more often than `fraction` of the data
    stays in train."""
    if len(examples) < MIN_EXAMPLES:
        raise ValueError(
            f"{len(examples)} examples are too few to hold some out: give at least {MIN_EXAMPLES}, or a separate dev "
            "split"
        )
    by_group = []
    for group, how in examples[0].kept_together:
        train, dev = split_groups(examples, fraction, seed, attrgetter(group), MIN_HELD_OUT)
        if len(dev) >= MIN_HELD_OUT:
            by_group.append((train, dev, how))
    if by_group:
        largest = max(MIN_HELD_OUT, LARGEST_SHARE * fraction * len(examples))
        return next((each for each in by_group if len(each[1]) <= largest), by_group[-1])
    groups = _groups(examples, text_hash)
    small = [indices for indices in groups if len(indices) <= max(1, fraction * len(examples))]
    single = [[index] for index in range(len(examples))]
    chosen = next(each for each in (small, groups, single) if len(each) >= MIN_EXAMPLES)
    strata, how = None, "at random"
    if examples[0].is_stratified:
        strata, how = (lambda indices: _stratum(examples[indices[0]])), "by label"
    _, held_out = split_off(chosen, fraction, seed, strata, MIN_HELD_OUT)
    if chosen is not single and len(groups) < len(examples):
        how += ", equal texts together"
    return *_divided(examples, {index for indices in held_out for index in indices}), how


def _stratum(example: TextExample) -> Hashable:
    return example.label[:1] if isinstance(example.label, tuple) else example.label


def _groups(examples: Sequence[E], group: Callable[[E], Hashable]) -> list[list[int]]:
    """The indices of the examples of each group, in order of their first example."""
    by_group: dict[Hashable, list[int]] = defaultdict(list)
    for index, example in enumerate(examples):
        by_group[group(example)].append(index)
    return list(by_group.values())


def _divided(examples: Sequence[E], selected: set[int]) -> tuple[list[E], list[E]]:
    rest = [example for index, example in enumerate(examples) if index not in selected]
    return rest, [examples[index] for index in sorted(selected)]


def _shuffled(indices: list[int], seed: int) -> list[int]:
    """Shuffled by hash rather than by a random generator: the order is the same on every machine and version."""
    return sorted(indices, key=lambda index: hashlib.sha256(f"{seed}:{index}".encode()).digest())
