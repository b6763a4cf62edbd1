"""The texts of an example that augmentation may change, and the changed fields of a copy."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

Replacement = tuple[int, int, str]  # start and stop offsets in the text, and the new word


@dataclass(frozen=True)
class Changeable:
    """A text of an example with the name of its field. `fixed` are the character spans that must not change."""

    field: str
    text: str
    fixed: tuple[tuple[int, int], ...] = ()
    only: frozenset[tuple[int, int]] | None = None  # the only spans that may be replaced; None: any

    def allows(self, start: int, stop: int) -> bool:
        """Whether the characters from `start` to `stop` may be replaced."""
        if self.only is not None:
            return (start, stop) in self.only
        return all(stop <= first or last <= start for first, last in self.fixed)


def word_spans(words: Sequence[str]) -> list[tuple[int, int]]:
    starts = accumulate((len(word) + 1 for word in words), initial=0)
    return [(start, start + len(word)) for start, word in zip(starts, words, strict=False)]


def answer_spans(passage: str, answers: Sequence[str], starts: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Character spans of the accepted answers: from the recorded starts, or every occurrence in the passage."""
    spans = []
    for index, answer in enumerate(answers):
        start = starts[index] if index < len(starts) else -1
        if start >= 0:
            spans.append((start, start + len(answer)))
            continue
        start = passage.find(answer)
        if start < 0:  # the answer is spelled differently from the passage, so no part of it is safe to change
            return ((0, len(passage)),)
        while start >= 0 and answer:
            spans.append((start, start + len(answer)))
            start = passage.find(answer, start + 1)
    return tuple(spans)


def spliced(text: str, replacements: Sequence[Replacement]) -> str:
    """The text with the replacements applied; they must be sorted by offset.

    >>> spliced("an old lamp", [(3, 6, "new"), (7, 11, "one")])
    'an new one'
    """
    parts, end = [], 0
    for start, stop, word in replacements:
        parts += [text[end:start], word]
        end = stop
    return "".join([*parts, text[end:]])


def shifted(offset: int, replacements: Sequence[Replacement]) -> int:
    """A character offset after the replacements before it; -1 (unknown) is kept."""
    if offset < 0:
        return offset
    return offset + sum(len(word) - (stop - start) for start, stop, word in replacements if stop <= offset)
