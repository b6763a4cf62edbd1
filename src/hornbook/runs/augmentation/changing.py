"""Which texts of an example are augmented, and how an augmented copy is built. A copy changes one text of the example
and keeps the others.

| example | texts that are changed |
|---|---|
| a text, or a pair | each text; the label is kept |
| a choice | the context; the endings are kept |
| a question on a passage | the question; the passage except for its answers, whose start offsets are shifted |
| tagged words | word by word, so that each word keeps its tag |
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from hornbook.runs.augmentation.words import Word
from hornbook.tasks.records import ChoiceExample, Example, SpanExample, TaggedExample, TextExample

Replacement = tuple[int, int, str]  # start and stop offsets in the text, and the new word


@dataclass(frozen=True)
class Changeable:
    """A text of an example with the name of its field. `kept` are the character spans that must not change."""

    field: str
    text: str
    kept: tuple[tuple[int, int], ...] = ()
    only: frozenset[tuple[int, int]] | None = None  # the only spans that may be replaced; None: any

    def allows(self, word: Word) -> bool:
        if self.only is not None:
            return (word.start, word.stop) in self.only
        return all(word.stop <= start or stop <= word.start for start, stop in self.kept)


def changeable(example: Example) -> list[Changeable]:
    """The texts of an example that may be changed."""
    if isinstance(example, TextExample):
        return [Changeable(name, getattr(example, name)) for name in ("text", "pair") if getattr(example, name)]
    if isinstance(example, ChoiceExample):
        return [Changeable("context", example.context)]
    if isinstance(example, TaggedExample):
        return [Changeable("words", " ".join(example.words), only=frozenset(_word_spans(example.words)))]
    return [Changeable("question", example.question), Changeable("passage", example.passage, _answer_spans(example))]


def _word_spans(words: Sequence[str]) -> list[tuple[int, int]]:
    starts = accumulate((len(word) + 1 for word in words), initial=0)
    return [(start, start + len(word)) for start, word in zip(starts, words, strict=False)]


def _answer_spans(example: SpanExample) -> tuple[tuple[int, int], ...]:
    """Character spans of the accepted answers: from the recorded starts, or every occurrence in the passage."""
    found = []
    for number, answer in enumerate(example.answers or ()):
        start = example.starts[number] if number < len(example.starts) else -1
        if start >= 0:
            found.append((start, start + len(answer)))
            continue
        at = example.passage.find(answer)
        if at < 0:  # the answer is spelled differently from the passage, so no part of the passage is safe to change
            return ((0, len(example.passage)),)
        while at >= 0 and answer:
            found.append((at, at + len(answer)))
            at = example.passage.find(answer, at + 1)
    return tuple(found)


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


def changes(example: Example, field: str, replacements: Sequence[Replacement]) -> dict[str, Any]:
    """The fields in which a copy differs from the example, as JSON values."""
    if isinstance(example, TaggedExample):
        new = {(start, stop): word for start, stop, word in replacements}
        spans = _word_spans(example.words)
        return {"words": [new.get(span, word) for span, word in zip(spans, example.words, strict=True)]}
    changed = {field: spliced(getattr(example, field), replacements)}
    if field == "passage" and example.starts:
        changed["starts"] = [_shifted(start, replacements) for start in example.starts]
    return changed


def _shifted(offset: int, replacements: Sequence[Replacement]) -> int:
    """A character offset after the replacements before it; -1 (unknown) is kept."""
    if offset < 0:
        return offset
    return offset + sum(len(word) - (stop - start) for start, stop, word in replacements if stop <= offset)


def copied(example: Example, changed: dict[str, Any]) -> Example:
    """The example with the changed fields of a copy."""
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in changed.items()}
    return replace(example, **values)
