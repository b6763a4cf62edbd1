"""A held-out part, split off where a data set has none."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from operator import attrgetter
from typing import TypeVar

from hornbook.tasks.records import Example, SpanExample, TextExample

E = TypeVar("E")
HELD_OUT = 0.1  # share of train that becomes the dev part, where there is none
FEWEST, FEWEST_HELD_OUT = 4, 2  # examples; a correlation needs two


def split_off(
    examples: Sequence[E],
    share: float,
    seed: int,
    strata: Callable[[E], Hashable] | None = None,
    at_least: int = 1,
) -> tuple[list[E], list[E]]:
    """What is left and what is split off, both in their old order.

    Each stratum gives its share. One with two examples or more keeps at least one, and one with a single example keeps
    it, unless fewer than `at_least` were split off. The draw depends on the seed and on the places of the examples
    alone.
    """
    if not 0 < share < 1:
        raise ValueError(f"the share to hold out must lie between 0 and 1, not {share}")
    by_stratum: dict[Hashable, list[int]] = defaultdict(list)
    for place, example in enumerate(examples):
        by_stratum[strata(example) if strata else None].append(place)
    taken: set[int] = set()
    owed = 0.0  # carried from stratum to stratum, so that small ones together give their share
    for places in by_stratum.values():
        owed += len(places) * share
        num = min(int(owed + 0.5), len(places) - 1)
        owed = min(owed - num, 1.0)  # but not a large stratum for many of one example
        taken.update(_shuffled(places, seed)[: max(num, 0)])
    while len(taken) < min(at_least, len(examples) - 1):
        largest = max(([place for place in places if place not in taken] for places in by_stratum.values()), key=len)
        taken.add(_shuffled(largest, seed)[0])
    rest = [example for place, example in enumerate(examples) if place not in taken]
    return rest, [examples[place] for place in sorted(taken)]


def split_groups(
    examples: Sequence[E], share: float, seed: int, group: Callable[[E], Hashable], at_least: int = 1
) -> tuple[list[E], list[E]]:
    """As `split_off`, but by whole groups: those drawn first, until they hold the share and `at_least` so many. One
    group stays, even if they do not."""
    by_group: dict[Hashable, list[int]] = defaultdict(list)
    for place, example in enumerate(examples):
        by_group[group(example)].append(place)
    taken: set[int] = set()
    firsts = {places[0]: places for places in by_group.values()}
    for first in _shuffled(list(firsts), seed)[: len(firsts) - 1]:
        if len(taken) >= max(share * len(examples), at_least):
            break
        taken.update(firsts[first])
    rest = [example for place, example in enumerate(examples) if place not in taken]
    return rest, [examples[place] for place in sorted(taken)]


def by_article(examples: Sequence[SpanExample]) -> tuple[list[SpanExample], list[SpanExample]]:
    """Train and dev by whole articles, about half each, where only one published part is there. Which part an article
    is in follows from its title alone, so it is the same whatever else is in the file."""
    parts: tuple[list[SpanExample], list[SpanExample]] = ([], [])
    for example in examples:
        digest = hashlib.sha256(example.title.encode("utf-8", "surrogatepass")).digest()
        parts[digest[-1] % 2].append(example)
    return parts


def hold_out(examples: list[Example], share: float, seed: int) -> tuple[list[Example], list[Example], str]:
    """Train and dev, and how it was done in words."""
    if len(examples) < FEWEST:
        raise ValueError(
            f"{len(examples)} examples are too few to hold some out: give at least {FEWEST}, or a dev part beside them"
        )
    if isinstance(examples[0], SpanExample):
        for group, how in (("title", "by article"), ("passage", "by passage")):
            train, dev = split_groups(examples, share, seed, attrgetter(group), FEWEST_HELD_OUT)
            if len(dev) >= FEWEST_HELD_OUT:
                return train, dev, how
    if isinstance(examples[0], TextExample) and not isinstance(examples[0].label, float):
        return *split_off(examples, share, seed, _stratum, FEWEST_HELD_OUT), "by label"
    return *split_off(examples, share, seed, at_least=FEWEST_HELD_OUT), "at random"


def _stratum(example: TextExample) -> Hashable:
    return example.label[:1] if isinstance(example.label, tuple) else example.label


def _shuffled(places: list[int], seed: int) -> list[int]:
    """By a digest and not by a generator: the order is the same on every machine and version."""
    return sorted(places, key=lambda place: hashlib.sha256(f"{seed}:{place}".encode()).digest())
