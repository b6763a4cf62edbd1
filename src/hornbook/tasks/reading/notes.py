"""What a reader writes down while it reads: problems, what it inferred, the files it opened."""

import codecs
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hornbook.data.problems import KINDS, Problem, Problems

if TYPE_CHECKING:
    from hornbook.tasks.reading.rows import Table

OF_LABELS = ("no_label", "bad_number", "bad_choice", "bad_tags", "no_span")  # and not of what is read
HARMLESS = ("byte_order_mark", "carriage_return")  # nothing is lost by them, and published files have them


@dataclass(frozen=True)
class Format:
    """How the characters of a file are written and its fields separated; None: detected."""

    delimiter: str | None = None
    encoding: str | None = None

    def __post_init__(self) -> None:
        if self.delimiter in ("tab", "\\t"):
            object.__setattr__(self, "delimiter", "\t")
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '"\r\n'):
            raise ValueError(f"--delimiter must be a single character or 'tab', not {self.delimiter!r}")
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except LookupError:
                raise ValueError(
                    f"--encoding '{self.encoding}' is unknown: use utf-8, utf-16, cp949, cp1252 ..."
                ) from None


@dataclass
class Notes:
    """With `strict`, the first problem is raised and not counted."""

    strict: bool = False
    needs_labels: bool = True  # not so of what is to be predicted: a label that is not there is no problem
    format: Format = Format()
    problems: Problems = field(default_factory=Problems)
    said: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    tables: list["Table"] = field(default_factory=list)  # that were read, as their files have them
    file_of: dict[str, str] = field(default_factory=dict)  # the first file of a part
    places: dict[tuple[str, str], str] = field(default_factory=dict)  # of a part and a key, where it was taken down
    roles: dict[str, str] = field(default_factory=dict)  # of a table: the column of the text, pair, label and key

    def problem(self, kind: str, file: str, place: str = "", detail: str = "", count: int = 1) -> None:
        if self.strict and kind not in HARMLESS:
            where = " ".join(filter(None, (file, place)))
            raise ValueError(f"{where}: {detail or KINDS[kind]} (without strict, this is counted and reading goes on)")
        self.problems.add(Problem(kind, file, place, detail, count))

    def leaves_out(self, kind: str, part: str, file: str, place: str, detail: str = "") -> bool:
        """Counts an example that is not whole. True where it is left out: in training only."""
        if kind in OF_LABELS and not self.needs_labels:
            return False
        is_training = part == "train"
        self.problem(kind if is_training else f"kept_{kind}", file, place, detail)
        return is_training

    def example_problem(self, kind: str, part: str, key: str, detail: str, count: int = 1) -> None:
        """A problem that is seen only when all parts have been read."""
        place = self.places.get((part, key), f"example {key}")
        self.problem(kind, self.file_of.get(part, part), place, detail, count)

    def log(self, sentence: str) -> None:
        if sentence not in self.said:
            self.said.append(sentence)


@dataclass(frozen=True)
class Asked:
    """The columns that the user named; None where they are to be inferred. `trained` are the columns by role of the
    run that is to read: they are taken where nothing is named, and a table without them is refused."""

    text: str | None = None
    pair: str | None = None
    label: str | None = None
    trained: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any((self.text, self.pair, self.label))

    def column(self, role: str) -> str | None:
        return getattr(self, role) or self.trained.get(role)
