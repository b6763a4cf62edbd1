"""What a reader writes down while it reads: problems, guesses in words, the files it opened."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hornbook.data.problems import KINDS, Problem, Problems

if TYPE_CHECKING:
    from hornbook.tasks.reading.rows import Table

HARMLESS = ("byte_order_mark", "carriage_return")  # nothing is lost by them, and published files have them


@dataclass
class Notes:
    """With `strict`, the first problem is raised and not counted."""

    strict: bool = False
    needs_labels: bool = True  # not so of what is to be predicted: a label that is not there is no problem
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
        if kind == "no_label" and not self.needs_labels:
            return False
        is_training = part == "train"
        self.problem(kind if is_training else f"kept_{kind}", file, place, detail)
        return is_training

    def example_problem(self, kind: str, part: str, key: str, detail: str, count: int = 1) -> None:
        """A problem that is seen only when all parts have been read."""
        place = self.places.get((part, key), f"example {key}")
        self.problem(kind, self.file_of.get(part, part), place, detail, count)

    def say(self, sentence: str) -> None:
        if sentence not in self.said:
            self.said.append(sentence)


@dataclass(frozen=True)
class Asked:
    """The columns that the person named; None where they are to be found."""

    text: str | None = None
    pair: str | None = None
    label: str | None = None

    def __bool__(self) -> bool:
        return any((self.text, self.pair, self.label))
