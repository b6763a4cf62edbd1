"""Which texts of an example are changed, each in its turn while the others stay, and the example with one changed.

| example | texts that are changed |
|---|---|
| a text, or a pair | each; its label stays |
| a choice | the context; the endings stay what they are |
| a question on a passage | the question; the passage but for its answers, whose places move along |
| tagged words | a word for a word, so that each keeps its tag |
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from hornbook.augmentation.words import Word
from hornbook.tasks.records import ChoiceExample, Example, SpanExample, TaggedExample, TextExample

Replacement = tuple[int, int, str]  # start and stop in the text, and what comes there


@dataclass(frozen=True)
class Changeable:
    """A text of an example by the name of its field, and where it must stay as it is."""

    field: str
    text: str
    kept: tuple[tuple[int, int], ...] = ()
    only: frozenset[tuple[int, int]] | None = None  # where words may be replaced; None: everywhere

    def allows(self, word: Word) -> bool:
        if self.only is not None:
            return (word.start, word.stop) in self.only
        return all(word.stop <= start or stop <= word.start for start, stop in self.kept)


def changeable(example: Example) -> list[Changeable]:
    if isinstance(example, TextExample):
        return [Changeable(name, getattr(example, name)) for name in ("text", "pair") if getattr(example, name)]
    if isinstance(example, ChoiceExample):
        return [Changeable("context", example.context)]
    if isinstance(example, TaggedExample):
        return [Changeable("words", " ".join(example.words), only=frozenset(_places(example.words)))]
    return [Changeable("question", example.question), Changeable("passage", example.passage, _answers(example))]


def _places(words: Sequence[str]) -> list[tuple[int, int]]:
    starts = accumulate((len(word) + 1 for word in words), initial=0)
    return [(start, start + len(word)) for start, word in zip(starts, words, strict=False)]


def _answers(example: SpanExample) -> tuple[tuple[int, int], ...]:
    """Where the accepted answers stand: as the file says, or wherever their words are found."""
    found = []
    for number, answer in enumerate(example.answers or ()):
        start = example.starts[number] if number < len(example.starts) else -1
        if start >= 0:
            found.append((start, start + len(answer)))
            continue
        at = example.passage.find(answer)
        if at < 0:  # written in another way than in the passage: nothing of it is safe to change
            return ((0, len(example.passage)),)
        while at >= 0 and answer:
            found.append((at, at + len(answer)))
            at = example.passage.find(answer, at + 1)
    return tuple(found)


def spliced(text: str, replacements: Sequence[Replacement]) -> str:
    """The text with the replacements, which come in its order.

    >>> spliced("an old lamp", [(3, 6, "new"), (7, 11, "one")])
    'an new one'
    """
    parts, end = [], 0
    for start, stop, word in replacements:
        parts += [text[end:start], word]
        end = stop
    return "".join([*parts, text[end:]])


def changes(example: Example, field: str, replacements: Sequence[Replacement]) -> dict[str, Any]:
    """What a copy has other than the example, as JSON keeps it."""
    if isinstance(example, TaggedExample):
        new = {(start, stop): word for start, stop, word in replacements}
        places = _places(example.words)
        return {"words": [new.get(place, word) for place, word in zip(places, example.words, strict=True)]}
    changed = {field: spliced(getattr(example, field), replacements)}
    if field == "passage" and example.starts:
        changed["starts"] = [_moved(start, replacements) for start in example.starts]
    return changed


def _moved(place: int, replacements: Sequence[Replacement]) -> int:
    """Where a place has come to, by the replacements before it."""
    if place < 0:
        return place
    return place + sum(len(word) - (stop - start) for start, stop, word in replacements if stop <= place)


def copied(example: Example, changed: dict[str, Any]) -> Example:
    """The example with what a copy has other."""
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in changed.items()}
    return replace(example, **values)
