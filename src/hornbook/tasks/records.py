"""Labelled examples as read from files, before tokenization. Nothing here imports torch.

`key` is the example's identifier in its file, or its index from 0. A label of None means that it is unknown.
"""

import hashlib
from dataclasses import dataclass, field
from typing import Literal

from hornbook.data.problems import Problems

Kind = Literal["classification", "regression", "spans", "tagging", "choice"]
PARTS = ("train", "dev", "test")


@dataclass(frozen=True, slots=True)
class TextExample:
    """One text or a pair of texts, labelled with a class, several classes (a tuple, possibly empty) or a number."""

    key: str
    text: str
    pair: str | None = None
    label: str | float | tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class SpanExample:
    """A question about a passage. `answers`: all accepted answers, empty if the question is unanswerable, None if they
    are unknown; `starts`: character offset of each answer in the passage, -1 if the file does not give it."""

    key: str
    question: str
    passage: str
    answers: tuple[str, ...] | None = None
    starts: tuple[int, ...] = ()
    title: str = ""  # of the article; used to hold out whole articles


@dataclass(frozen=True, slots=True)
class TaggedExample:
    """The words of a sentence and one tag per word; `text` is the original sentence, if known."""

    key: str
    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    text: str | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class ChoiceExample:
    """A context, the beginning that each ending completes (possibly empty), and the endings; `label` is the index of
    the correct ending."""

    key: str
    context: str
    endings: tuple[str, ...]
    beginning: str = ""
    label: int | None = None


Example = TextExample | SpanExample | TaggedExample | ChoiceExample


@dataclass(frozen=True)
class DataSet:
    """Labelled data as read from files. `parts`: the examples of each split (`train`, `dev`, `test`, and others such as
    `dev-mismatched`) in file order; `problems`: defects found in the files; `messages`: what was inferred (columns, tag
    scheme, held-out split), as log lines."""

    kind: Kind
    parts: dict[str, list[Example]]
    labels: tuple[str, ...] = ()  # classes or tags, in the order of their ids
    is_multi: bool = False  # multi-label classification
    problems: Problems = field(default_factory=Problems)
    messages: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    scheme: str = ""  # tag scheme of the files: IOB1, BIO, BIOES or plain (the examples are always in BIO)
    roles: dict[str, str] = field(default_factory=dict)  # column by role (text, pair, label, key) of a user's own table
    columns: tuple[str, ...] = ()  # all columns of the first table


def fingerprint(data: DataSet) -> str:
    """SHA-256 of all examples of all splits: a run resumes only with the same data."""
    digest = hashlib.sha256()
    for name, part in data.parts.items():
        digest.update(f"{name} {len(part)}\n".encode())
        for example in part:
            digest.update(repr(example).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
