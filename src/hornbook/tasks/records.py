"""Labelled examples as read from files, before tokenization, and what augmentation may change in them.
Nothing here imports torch.

`key` is the example's identifier in its file, or its index from 0. A label of None means that it is unknown.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, ClassVar, Self

from hornbook.data.problems import Problems

SPLITS = ("train", "dev", "test")
Replacement = tuple[int, int, str]  # start and stop offsets in the text, and the new word


# ---- augmentation: the texts that it may change, and the changed fields of a copy


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

    >>> spliced("the old lamp", [(4, 7, "new"), (8, 12, "one")])
    'the new one'
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


# ---- examples


PromptParts = tuple[dict[str, Any], tuple, tuple[str, ...]]  # fields, answers, choices


class Example:
    """One labelled example, whatever its kind. Every class of examples has these members; the methods have defaults."""

    __slots__ = ()
    kept_together: ClassVar[tuple[tuple[str, str], ...]] = ()  # (field, words): examples that are held out together
    has_pair: ClassVar[bool | None] = None  # whether it is a pair of texts; None for other kinds
    is_stratified: ClassVar[bool] = False  # whether classes are held out in proportion
    label_field: ClassVar[str] = "label"
    text_fields: ClassVar[tuple[str, ...]] = ("text",)  # may be None
    key: str

    @property
    def named_texts(self) -> dict[str, str]:
        """The texts by the name of their field."""
        return {name: text for name in self.text_fields if (text := getattr(self, name)) is not None}

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts that the model reads."""
        return tuple(self.named_texts.values())

    @property
    def inputs(self) -> dict[str, Any]:
        """The input fields as a row, without a prediction."""
        return self.named_texts

    @property
    def gold(self) -> Any:
        """The label, None if it is unknown."""
        return getattr(self, self.label_field)

    @property
    def label_names(self) -> tuple[str, ...]:
        """The label as names that can be counted."""
        label = self.gold
        return (label,) if isinstance(label, str) else label if isinstance(label, tuple) else ()

    @property
    def sequence(self) -> tuple[str, str | None]:
        """The texts as one sequence of the model: a text, or two."""
        return self.text, None

    @property
    def reason_unusable(self) -> str:
        """Why it cannot be predicted (an empty input); "" if it can."""
        return _first_empty(self.named_texts)

    def without_label(self) -> Self:
        return replace(self, **{self.label_field: None})

    def prompt(self) -> PromptParts | None:
        """What a prompted task shows of it; None if it cannot be prompted."""
        return None

    def changeable(self) -> list[Changeable]:
        """The texts that augmentation may change."""
        return []

    def changes(self, field: str, replacements: Sequence[Replacement]) -> dict[str, Any]:
        """The fields in which a copy with these replacements differs, as JSON values."""
        return {field: spliced(getattr(self, field), replacements)}

    def copy(self, changes: Mapping[str, Any]) -> Self:
        """The example with the fields of `changes`."""
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in changes.items()}
        return replace(self, **values)


def _first_empty(contents: Mapping[str, str]) -> str:
    return next((f"the {name} is empty" for name, content in contents.items() if not content.strip()), "")


@dataclass(frozen=True, slots=True)
class TextExample(Example):
    """One text or a pair of texts, labelled with a class, several classes (a tuple, possibly empty) or a number."""

    text_fields = ("text", "pair")

    key: str
    text: str
    pair: str | None = None
    label: str | float | tuple[str, ...] | None = None

    @property
    def has_pair(self) -> bool:
        return self.pair is not None

    @property
    def sequence(self) -> tuple[str, str | None]:
        return self.text, self.pair

    @property
    def is_stratified(self) -> bool:
        return not isinstance(self.label, float)

    def prompt(self) -> PromptParts:
        fields = {"text": self.text, "pair": self.pair or "", "label": self.label}
        return fields, () if self.label is None else (self.label,), ()

    def changeable(self) -> list[Changeable]:
        return [Changeable(name, text) for name, text in self.named_texts.items() if text]


@dataclass(frozen=True, slots=True)
class SpanExample(Example):
    """A question about a passage. `answers`: all accepted answers, empty if the question is unanswerable, None if they
    are unknown; `starts`: character offset of each answer in the passage, -1 if the file does not give it."""

    kept_together = (("title", "by article"), ("passage", "by passage"))
    label_field = "answers"
    text_fields = ("question", "passage")

    key: str
    question: str
    passage: str
    answers: tuple[str, ...] | None = None
    starts: tuple[int, ...] = ()
    title: str = ""  # of the article; used to hold out whole articles

    @property
    def label_names(self) -> tuple[str, ...]:
        return () if self.answers is None else ("answer" if self.answers else "no answer",)

    @property
    def sequence(self) -> tuple[str, str | None]:
        return self.question, self.passage

    @property
    def inputs(self) -> dict[str, Any]:
        return {"question": self.question}

    def without_label(self) -> "SpanExample":
        return replace(self, answers=None, starts=())

    def prompt(self) -> PromptParts:
        fields = {"question": self.question, "passage": self.passage, "title": self.title}
        return fields, self.answers or (), ()

    def changeable(self) -> list[Changeable]:
        """The passage keeps its answers."""
        fixed = answer_spans(self.passage, self.answers or (), self.starts)
        return [Changeable("question", self.question), Changeable("passage", self.passage, fixed)]

    def changes(self, field: str, replacements: Sequence[Replacement]) -> dict[str, Any]:
        changed = Example.changes(self, field, replacements)
        if field == "passage" and self.starts:
            changed["starts"] = [shifted(start, replacements) for start in self.starts]
        return changed


@dataclass(frozen=True, slots=True)
class TaggedExample(Example):
    """The words of a sentence and one tag per word; `text` is the original sentence, if known."""

    label_field = "tags"

    key: str
    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    text: str | None = field(default=None, repr=False, compare=False)

    @property
    def texts(self) -> tuple[str, ...]:
        return self.words

    @property
    def sequence(self) -> tuple[str, str | None]:
        return " ".join(self.words), None

    @property
    def inputs(self) -> dict[str, Any]:
        return {"words": list(self.words)}

    @property
    def reason_unusable(self) -> str:
        return "" if self.words else "there are no words"

    def changeable(self) -> list[Changeable]:
        """Word by word, so that each word keeps its tag."""
        return [Changeable("words", " ".join(self.words), only=frozenset(word_spans(self.words)))]

    def changes(self, field: str, replacements: Sequence[Replacement]) -> dict[str, Any]:
        new = {(start, stop): word for start, stop, word in replacements}
        return {"words": [new.get(span, word) for span, word in zip(word_spans(self.words), self.words, strict=True)]}


@dataclass(frozen=True, slots=True)
class ChoiceExample(Example):
    """A context, the beginning that each choice completes (possibly empty), and the choices; `label` is the index of
    the correct choice."""

    key: str
    context: str
    choices: tuple[str, ...]
    beginning: str = ""
    label: int | None = None

    @property
    def label_names(self) -> tuple[str, ...]:
        return () if self.label is None else (f"choice {self.label + 1}",)

    @property
    def texts(self) -> tuple[str, ...]:
        return self.context, self.beginning, *self.choices

    @property
    def sequence(self) -> tuple[str, str | None]:
        return self.context, f"{self.beginning} {self.choices[self.label]}".strip()

    @property
    def inputs(self) -> dict[str, Any]:
        return {"context": self.context, "choices": list(self.choices)}

    @property
    def reason_unusable(self) -> str:
        return _first_empty({"context": self.context + self.beginning, "choices": "".join(self.choices)})

    def prompt(self) -> PromptParts:
        answers = () if self.label is None else (self.choices[self.label],)
        return {"context": self.context, "beginning": self.beginning}, answers, self.choices

    def changeable(self) -> list[Changeable]:
        return [Changeable("context", self.context)]


@dataclass(frozen=True, slots=True)
class MarkedExample(Example):
    """A text with one or more marked mentions (`spans`: start and end, exclusive), labelled with a class or
    several classes. `given` are the entities that the file links the text to (start, end, identifier), None if it links
    none; `entities` are those that the model reads, by their numbers in its graph."""

    has_pair = False
    is_stratified = True

    key: str
    text: str
    spans: tuple[tuple[int, int], ...]
    label: str | tuple[str, ...] | None = None
    given: tuple[tuple[int, int, str], ...] | None = None
    entities: tuple[tuple[int, int, int], ...] = field(default=(), repr=False, compare=False)

    @property
    def mentions(self) -> tuple[str, ...]:
        return tuple(self.text[start:end] for start, end in self.spans)

    @property
    def texts(self) -> tuple[str, ...]:
        return self.text, *self.mentions

    @property
    def inputs(self) -> dict[str, Any]:
        return {"text": self.text, "mentions": list(self.mentions)}

    @property
    def reason_unusable(self) -> str:
        return _first_empty({"text": self.text}) or ("" if self.spans else "no mention is marked in the text")

    def marked(self, marks: Sequence[str]) -> tuple[str, list[tuple[int, int, int]]]:
        """The text with a mark before and after each mention, and the entities with their places in it."""
        inserted = []  # (offset, whether a mention starts there, the mark)
        for (start, end), mark in zip(self.spans, marks, strict=False):
            inserted += [(start, True, f"{mark} "), (end, False, f" {mark}")]
        inserted.sort(key=lambda each: each[:2])

        def moved(offset: int, is_start: bool) -> int:
            return offset + sum(len(mark) for at, _, mark in inserted if at < offset or (is_start and at == offset))

        entities = [(moved(start, True), moved(end, False), entity) for start, end, entity in self.entities]
        return spliced(self.text, [(offset, offset, mark) for offset, _, mark in inserted]), entities


@dataclass(frozen=True, slots=True)
class SimilarityExample(Example):
    """A text and one that is similar to it (`pair`), possibly with a `score` of their similarity, or with a text that
    is less similar (`negative`); a text alone for training without pairs."""

    label_field = "score"
    text_fields = ("text", "pair", "negative")

    key: str
    text: str
    pair: str | None = None
    negative: str | None = None
    score: float | None = None

    @property
    def gold(self) -> str | float | None:
        """The score, or the text to be found."""
        return self.pair if self.score is None else self.score

    @property
    def has_pair(self) -> bool:
        return self.pair is not None

    @property
    def label_names(self) -> tuple[str, ...]:
        return ()


Splits = dict[str, list[Example]]


@dataclass(frozen=True)
class DataSet:
    """Labelled data as read from files. `splits`: the examples of each split (`train`, `dev`, `test`, or others such as
    `dev-mismatched`) in file order; `problems`: defects found in the files; `messages`: what was inferred (columns, tag
    scheme, held-out split), as log lines; `notes`: where the data is probably not what the user means, likewise."""

    kind: str  # the name of a kind of task
    splits: Splits
    labels: tuple[str, ...] = ()  # classes or tags, in the order of their ids
    problems: Problems = field(default_factory=Problems)
    messages: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    scheme: str = ""  # tag scheme of the files: IOB1, BIO, BIOES, BILOU or plain (the examples are always in BIO)
    roles: dict[str, str] = field(default_factory=dict)  # column by role (text, pair, label, key) of a user's own table
    columns: tuple[str, ...] = ()  # all columns of the first table


def fingerprint(data: DataSet) -> str:
    """SHA-256 of all examples of all splits: a run resumes only with the same data."""
    digest = hashlib.sha256()
    for name, split in data.splits.items():
        digest.update(f"{name} {len(split)}\n".encode())
        for example in split:
            digest.update(repr(example).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
