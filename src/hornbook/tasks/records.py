"""Labelled examples as they come out of a file, before any tokenizer has seen them. Nothing here imports torch.

`key` is the example's name in its file, or its number from 0. A label of None means that it is not known.
"""

import hashlib
from dataclasses import dataclass, field
from typing import Literal

from hornbook.data.problems import Problems

Kind = Literal["classification", "regression", "spans", "tagging", "choice"]
PARTS = ("train", "dev", "test")


@dataclass(frozen=True, slots=True)
class TextExample:
    """One text, or a pair, with a class, several classes (a tuple, perhaps empty) or a number."""

    key: str
    text: str
    pair: str | None = None
    label: str | float | tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class SpanExample:
    """A question about a passage. `answers` are all accepted ones, empty where there is none; `starts` are where they
    stand in the passage, in characters, or -1 where the file does not say. `answers` None: not known."""

    key: str
    question: str
    passage: str
    answers: tuple[str, ...] | None = None
    starts: tuple[int, ...] = ()
    title: str = ""  # of the article, to split by


@dataclass(frozen=True, slots=True)
class TaggedExample:
    """The words of a sentence, each with its tag; `text` is what they were split from, where that is known."""

    key: str
    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    text: str | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class ChoiceExample:
    """A context, the beginning that each ending completes (perhaps empty), and the endings; `label` is the right one's
    number."""

    key: str
    context: str
    endings: tuple[str, ...]
    beginning: str = ""
    label: int | None = None


Example = TextExample | SpanExample | TaggedExample | ChoiceExample


@dataclass(frozen=True)
class DataSet:
    """What was read: the parts by name (`train`, `dev`, `test`, and others such as `dev-mismatched`), each in the
    file's order; what was met on the way; and what was guessed, in words for the person."""

    kind: Kind
    parts: dict[str, list[Example]]
    labels: tuple[str, ...] = ()  # of classes or tags, in the order of their ids
    is_multi: bool = False  # several classes at once
    problems: Problems = field(default_factory=Problems)
    said: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    scheme: str = ""  # of tags, as the files had them (the examples are in BIO): IOB1, BIO, BIOES or plain
    roles: dict[str, str] = field(default_factory=dict)  # of a user's own table: the column of text, pair, label, key
    columns: tuple[str, ...] = ()  # all columns of the first table


def fingerprint(data: DataSet) -> str:
    """Of every example of every part: a run goes on only with the data that it began with."""
    digest = hashlib.sha256()
    for name, part in data.parts.items():
        digest.update(f"{name} {len(part)}\n".encode())
        for example in part:
            digest.update(repr(example).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
