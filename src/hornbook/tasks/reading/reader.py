"""A reader: how files are to be read (columns, format), and what it found: problems, messages, the files it opened."""

import codecs
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict, Unpack

from hornbook.data.problems import DESCRIPTIONS, Problem, Problems

if TYPE_CHECKING:
    from hornbook.tasks.reading.rows import RowTable

# Problems of labels, not of inputs.
OF_LABELS = ("no_label", "bad_number", "bad_flag", "bad_choice_label", "bad_tags", "no_span")
Defect = tuple[str, str]  # of a row: the kind of problem and its detail


class ReadingOptions(TypedDict, total=False):
    """What a user says about data; what is not given is inferred."""

    text: str | None  # columns, by role
    pair: str | None
    label: str | None
    delimiter: str | None  # the format of files
    encoding: str | None
    strict: bool  # raise at the first problem


@dataclass(frozen=True)
class RequestedColumns:
    """The columns that the user named; None: inferred. `trained_columns`: the columns, by role, that the run was
    trained on; they are used where the user names none, and a table without them is refused."""

    text: str | None = None
    pair: str | None = None
    label: str | None = None
    trained_columns: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        roles = {role: column for role in ("text", "pair", "label") if (column := getattr(self, role))}
        for (role, column), (other, same) in itertools.combinations(roles.items(), 2):
            if column == same:
                raise ValueError(f"{role}= and {other}= both name the column '{column}': give each its own")

    def __bool__(self) -> bool:
        return any((self.text, self.pair, self.label))

    def column(self, role: str) -> str | None:
        return getattr(self, role) or self.trained_columns.get(role)


@dataclass
class Reader:
    """How files are to be read, and what was found in them: problems, messages, tables and the roles of columns. With
    `strict`, the first problem raises `ValueError`; otherwise problems are counted. `delimiter` and `encoding` are
    detected where they are None."""

    strict: bool = False
    needs_labels: bool = True  # False for inputs to predict, where a missing label is not a problem
    delimiter: str | None = None
    encoding: str | None = None
    requested: RequestedColumns = RequestedColumns()
    problems: Problems = field(default_factory=Problems)
    messages: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    tables: list["RowTable"] = field(default_factory=list)  # the tables that were read, unchanged
    file_of: dict[str, str] = field(default_factory=dict)  # the first file of each split
    places: dict[tuple[str, str], str] = field(default_factory=dict)  # (split, key) to place in the file
    roles: dict[str, str] = field(default_factory=dict)  # column of the text, pair, label and key

    def __post_init__(self) -> None:
        if self.delimiter in ("tab", "\\t"):
            self.delimiter = "\t"
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '"\r\n'):
            raise ValueError(f"delimiter= must be a single character or 'tab', not {self.delimiter!r}")
        try:
            codecs.lookup("utf-8" if self.encoding is None else self.encoding)
        except LookupError:
            raise ValueError(
                f"encoding={self.encoding!r} is unknown: use a codec such as utf-8, utf-16, cp949 or cp1252"
            ) from None

    @classmethod
    def of(
        cls,
        *,
        needs_labels: bool = True,
        trained_columns: Mapping[str, str] | None = None,
        **reading: Unpack[ReadingOptions],
    ) -> "Reader":
        """For what a user says about data."""
        columns = {role: reading.pop(role, None) for role in ("text", "pair", "label")}
        requested = RequestedColumns(**columns, trained_columns=trained_columns or {})
        return cls(**reading, needs_labels=needs_labels, requested=requested)

    def add_problem(self, kind: str, file: str, place: str = "", detail: str = "", count: int = 1) -> None:
        if self.strict:
            where = " ".join(filter(None, (file, place)))
            description = detail or DESCRIPTIONS[kind]
            raise ValueError(
                f"{where}: {description} (without strict=True, problems are counted and reading continues)"
            )
        self.problems.add(Problem(kind, file, place, detail, count))

    def keep_example(self, problem: Defect | None, split: str, file: str, place: str) -> bool:
        """Whether to keep an example: its problem is recorded, and keeps it out of the training split."""
        if problem is None or (problem[0] in OF_LABELS and not self.needs_labels):
            return True
        (kind, detail), is_training = problem, split == "train"
        self.add_problem(kind if is_training else f"kept_{kind}", file, place, detail)
        return not is_training

    def add_example_problem(self, kind: str, split: str, key: str, detail: str, count: int = 1) -> None:
        """Records a problem that is detected only after all splits have been read."""
        place = self.places.get((split, key), f"example {key}")
        self.add_problem(kind, self.file_of.get(split, split), place, detail, count)

    def set_roles(self, **columns: str | None) -> None:
        """Records which column is the text, pair, label and key."""
        self.roles = {role: column for role, column in columns.items() if column}

    def log_columns(self, more: str = "", **columns: str | None) -> None:
        self.log("columns: " + ", ".join(f"{what} = '{name}'" for what, name in columns.items() if name) + more)

    def log(self, message: str) -> None:
        if message not in self.messages:
            self.messages.append(message)
