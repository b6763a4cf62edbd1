"""A task as a person writes it down: a description, a template, choices or a free answer, measures, and where the
examples come from. `docs/prompting.md` goes through one; those in `tasks/` are shipped.

task = read_task("sst-2-question")      # by its name, or a path to a file of one's own
task.measures
"""

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from hornbook.config import Typed, from_dict, setting
from hornbook.prompting.measures import MEASURES

SHIPPED = Path(__file__).parent / "tasks"
FIELD = re.compile(r"\{\{|\}\}|\{([^{}\n]+)\}")  # doubled braces stand for themselves
NAME = re.compile(r"[a-z0-9]+(?:[.-][a-z0-9]+)*")  # of a task or a variant: it becomes a part of file names
AS_WRITTEN = "as written"  # the variant that every task has

Layout = Literal["columns", "lambada", "coqa", "parallel"]
Keep = Literal["all", "line", "sentence", "three sentences", "word"]
Normalise = Literal["token", "byte", "sum", "answer"]


@dataclass(frozen=True)
class Source(Typed):
    """Where examples come from. `train` and `test` are parts of a known data set, or patterns of file names, of which
    the first that is there is taken."""

    known: str = setting("", "a data set or kind of task of hornbook finetune, such as sst-2; none: by the layout")
    layout: Layout = setting("columns", "columns of a table, or a published layout of its own")
    train: tuple[str, ...] = setting((), "what examples are drawn from; none: train")
    test: tuple[str, ...] = setting((), "what is asked; none: dev of a known data set, else test or dev")
    languages: tuple[str, ...] = setting((), "parallel: the endings of two files, line by line translations")
    key: str = setting("", "columns: the one that names an example; none: its number")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.known and self.layout != "columns":
            raise ValueError(f"source.known = '{self.known}' has a layout of its own: leave source.layout out")
        if (self.layout == "parallel") != bool(self.languages) or len(self.languages) not in (0, 2):
            raise ValueError("source.layout = 'parallel' takes source.languages, such as ['en', 'fr']; others do not")


@dataclass(frozen=True)
class Choices(Typed):
    """What is chosen from: words for the labels of the data, or the endings that each example brings."""

    labels: dict = field(default_factory=dict, metadata={"doc": "for each label of the data, the words that say it"})
    from_example: bool = setting(False, "each example brings its own: known data sets of the kind choice")
    normalise: Normalise = setting(
        "token", "log-probability per token, per byte, in sum, or less that of the choice after `unconditional` alone"
    )
    unconditional: str = setting("Answer:", "normalise = answer: what a choice's own likelihood is measured after")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.labels and self.from_example:
            raise ValueError("choices.labels and choices.from_example exclude each other: leave one out")
        if len(set(self.labels.values())) < len(self.labels) or not all(
            isinstance(words, str) and words for words in self.labels.values()
        ):
            raise ValueError("choices.labels must give each label words of its own, such as {0 = 'bad', 1 = 'good'}")

    @property
    def is_there(self) -> bool:
        return bool(self.labels) or self.from_example


@dataclass(frozen=True)
class Writing(Typed):
    """How a free answer is written."""

    max_tokens: int = setting(50, "at most so many tokens", low=1, high=1_000_000)
    temperature: float = setting(0.0, "0 takes the likeliest token each time; above, tokens are drawn", low=0, high=1e4)
    top_k: int | None = setting(None, "only so many of the likeliest tokens are drawn from", low=1, high=1_000_000_000)
    top_p: float | None = setting(None, "only the likeliest tokens that make up this much probability", above=0, high=1)
    stop: tuple[str, ...] = setting((), "the answer ends before one of these")
    keep: Keep = setting("all", "what of the text is the answer")
    stop_words: bool = setting(True, "false: the answer does not begin with a stop word, and does with a letter")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_tokens < 1:
            raise ValueError(f"writing.max_tokens must be at least 1, not {self.max_tokens}")

    @property
    def draws(self) -> bool:
        return self.temperature > 0


@dataclass(frozen=True)
class Baseline(Typed):
    """What is scored beside the model, and needs none."""

    kinds: tuple[str, ...] = setting((), "lead-3, random-3 (sentences of a field), or dictionary (word by word)")
    field: str = setting("", "the field that it reads")
    dictionary: str = setting("", "a file with a word and its translation a line; none: learned from train")

    KINDS = ("lead-3", "random-3", "dictionary")

    def __post_init__(self) -> None:
        super().__post_init__()
        if unknown := [kind for kind in self.kinds if kind not in self.KINDS]:
            raise ValueError(f"there is no baseline '{unknown[0]}': there are {', '.join(self.KINDS)}")
        if self.kinds and not self.field:
            raise ValueError("baseline.kinds needs baseline.field, the field that it reads")


@dataclass(frozen=True)
class Variant(Typed):
    """The same task under another template, to be compared."""

    name: str = setting("", "by which the results speak of it")
    example: str = setting("", "in place of the task's")


@dataclass(frozen=True)
class TextTask(Typed):
    name: str = setting("", "of the files that it leaves")
    about: str = setting("", "what is asked, and by whose definition, in a sentence")
    description: str = setting("", "the task in words: what a prompt begins with")
    example: str = setting("", "template of what is asked; {field} stands for a field of the example, such as a column")
    answer: str = setting(" {answer}", "template of what follows it, where {answer} is the right answer or a choice")
    separator: str = setting("\n\n", "between the description, the examples and the question")
    gold: str = setting("", "the field with the right answer or label; none: what the data set says")
    shorten: str = setting("", "the field that loses its end where a prompt is too long; none: the prompt its start")
    draw: Literal["each", "once"] = setting("each", "examples are drawn for each question, or once for all")
    measures: tuple[str, ...] = setting((), "scores, the first of which decides")
    source: Source = field(default_factory=Source)
    choices: Choices = field(default_factory=Choices)
    writing: Writing = field(default_factory=Writing)
    baseline: Baseline = field(default_factory=Baseline)
    variants: tuple[Variant, ...] = setting((), "other templates, which are scored beside the first")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in (self.name, *(variant.name for variant in self.variants)):
            if not NAME.fullmatch(name):
                raise ValueError(f"'{name}' is no name: use small letters, digits and hyphens")
        if not self.example:
            raise ValueError("example is missing: the template of what is asked, such as 'Q: {question}\\nA:'")
        if self.answer.count("{answer}") != 1:
            raise ValueError(f"answer must hold {{answer}} once, as ' {{answer}}' does, not {self.answer!r}")
        self._check_measures()

    def _check_measures(self) -> None:
        if not self.measures:
            raise ValueError(f"measures is missing: name some of {', '.join(MEASURES)}")
        for name in self.measures:
            if name not in MEASURES:
                near = difflib.get_close_matches(name, MEASURES, n=1)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(MEASURES)}"
                raise ValueError(f"there is no measure '{name}'; {hint}")
            if (MEASURES[name].needs == "choice") != self.choices.is_there:
                kind = "chooses from [choices]" if self.choices.is_there else "writes a free answer"
                raise ValueError(f"{name} is no measure of a task that {kind}: choose another, or change [choices]")

    @property
    def needs(self) -> frozenset[str]:
        """What its measures are made of: a choice, a text that was written, the likelihood of the right answer."""
        return frozenset(MEASURES[name].needs for name in self.measures)

    @property
    def draws_answers(self) -> bool:
        return "text" in self.needs and self.writing.draws

    @property
    def templates(self) -> dict[str, str]:
        """By the name of the variant."""
        return {AS_WRITTEN: self.example, **{variant.name: variant.example for variant in self.variants}}


def shipped() -> list[str]:
    return sorted(file.stem for file in SHIPPED.glob("*.toml"))


def read_task(name: str | Path) -> TextTask:
    """The task that is shipped under a name, or the one in a file."""
    path = Path(name)
    if path.suffix != ".toml" and str(name) in shipped():
        path = SHIPPED / f"{name}.toml"
    elif not path.is_file():
        if path.suffix == ".toml":
            raise ValueError(f"there is no file {name}: check the spelling, or take a shipped task (--list)")
        near = difflib.get_close_matches(str(name), shipped(), n=2, cutoff=0.4) or shipped()
        raise ValueError(f"there is no task '{name}'; give a .toml file, or a shipped one: {' or '.join(near)}")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from None
    try:
        return from_dict(TextTask, {"name": path.stem, **values})
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: {error}") from None


def filled(template: str, fields: Mapping[str, str], where: str = "the template") -> str:
    """The template with its fields substituted; `{{` and `}}` are plain braces.

    >>> filled("Q: {Ticket text}", {"Ticket text": "why {so}?"})
    'Q: why {so}?'
    """

    def value(found: re.Match) -> str:
        if found[1] is None:
            return found[0][0]
        if found[1] not in fields:
            raise ValueError(f"{where} names the field {{{found[1]}}}, and the data has {', '.join(fields)}")
        return fields[found[1]]

    return FIELD.sub(value, template)
