"""The definition of a task as text: a description, a template, choices or a free answer, metrics, and the source of
its examples. `docs/prompting.md` explains one; those in `shipped/` come with the package.

task = read_task("sst-2-question")      # the name of a shipped task, or a path to a .toml file
task.metrics
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from hornbook.config import ValidatedSettings, check_name, did_you_mean, from_dict, setting
from hornbook.files import read_toml, shipped_or_file
from hornbook.tasks.text.metrics import METRICS
from hornbook.tasks.text.sampling import SamplingSettings

SHIPPED = Path(__file__).parent / "shipped"
FIELD = re.compile(r"\{\{|\}\}|\{([^{}\n]+)\}")  # doubled braces are literal braces
AS_WRITTEN = "as written"  # the variant with the task's own template

SourceLayout = Literal["columns", "lambada", "coqa", "parallel"]
Keep = Literal["all", "line", "sentence", "three sentences", "word"]
BaselineKind = Literal["lead-3", "random-3", "dictionary"]
Normalize = Literal["token", "byte", "sum", "answer"]


@dataclass(frozen=True)
class ExampleSource(ValidatedSettings, group="source"):
    """The source of the examples. `train` and `test` are splits of a known data set, or file name patterns, of which
    the first that matches is used."""

    known: str = setting("", "a data set or kind of task of hornbook finetune, such as sst-2; none: use the layout")
    layout: SourceLayout = setting("columns", "columns of a table, or a published file layout")
    train: tuple[str, ...] = setting((), "split that in-context examples are drawn from; none: train")
    test: tuple[str, ...] = setting((), "split with the questions; none: dev of a known data set, else test or dev")
    languages: tuple[str, ...] = setting((), "parallel: the file suffixes of two languages, aligned line by line")
    key: str = setting("", "columns: the column with the key of an example; none: its row number")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.known and self.layout != "columns":
            raise ValueError(f"source.known = '{self.known}' already sets the layout: leave source.layout out")
        if (self.layout == "parallel") != bool(self.languages) or len(self.languages) not in (0, 2):
            raise ValueError(
                "source.layout = 'parallel' needs two source.languages, such as ['en', 'fr']; other layouts take none"
            )


@dataclass(frozen=True)
class Choices(ValidatedSettings, group="choices"):
    """The choices: a text for each label of the data, or those of each example."""

    labels: dict = field(default_factory=dict, metadata={"doc": "the text of each label of the data"})
    from_example: bool = setting(False, "each example has its own choices: known data sets of the kind choice")
    normalize: Normalize = setting(
        "token", "log-probability per token, per byte, as a sum, or minus that of the choice after `unconditional`"
    )
    unconditional: str = setting("Answer:", "normalize = answer: context for the unconditional likelihood of a choice")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.labels and self.from_example:
            raise ValueError("choices.labels and choices.from_example exclude each other: leave one out")
        if len(set(self.labels.values())) < len(self.labels) or not all(
            isinstance(text, str) and text for text in self.labels.values()
        ):
            raise ValueError("choices.labels must give each label a different text, such as {0 = 'bad', 1 = 'good'}")

    @property
    def is_given(self) -> bool:
        return bool(self.labels) or self.from_example


@dataclass(frozen=True)
class GenerationSettings(SamplingSettings, group="generation"):
    """How a free answer is generated."""

    temperature: float = setting(0.0, "sampling temperature; 0 is greedy decoding")
    max_new_tokens: int = setting(50, "maximum number of tokens", low=1, high=1_000_000)
    stop: tuple[str, ...] = setting((), "strings before which the answer ends")
    keep: Keep = setting("all", "part of the generated text that is the answer")
    stop_words: bool = setting(True, "false: the answer must start with a letter and not with a stop word")


@dataclass(frozen=True)
class Baseline(ValidatedSettings, group="baseline"):
    """Baselines without a model to compare with."""

    kinds: tuple[BaselineKind, ...] = setting(
        (), "lead-3, random-3 (sentences of a field), or dictionary (word by word)"
    )
    field: str = setting("", "the input field of the baselines")
    dictionary: str = setting("", "a file with a word and its translation per line; none: learned from train")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kinds and not self.field:
            raise ValueError("baseline.kinds needs baseline.field: name the field that the baselines read")


@dataclass(frozen=True)
class Variant(ValidatedSettings):
    """Another template of the same task, to compare with."""

    name: str = setting("", "name of the variant in results")
    example: str = setting("", "template that replaces the task's")


@dataclass(frozen=True)
class TextTask(ValidatedSettings):
    name: str = setting("", "name of the task in file names; none: that of its file")
    about: str = setting("", "one sentence on the task and the source of its definition")
    description: str = setting("", "description of the task at the start of a prompt")
    example: str = setting("", "template of a question; {field} is a field of the example, such as a column")
    answer: str = setting(" {answer}", "template of the answer after it; {answer} is the right answer or a choice")
    separator: str = setting("\n\n", "text between the description, the examples and the question")
    gold: str = setting("", "field with the right answer or label; none: the label of the data set")
    shorten: str = setting("", "field to truncate if a prompt is too long; none: drop the start of the prompt")
    draw: Literal["each", "once"] = setting("each", "draw examples for each question, or once for all")
    metrics: tuple[str, ...] = setting((), "scores; the first one selects the best model")
    source: ExampleSource = field(default_factory=ExampleSource)
    choices: Choices = field(default_factory=Choices)
    generation: GenerationSettings = field(default_factory=GenerationSettings)
    baseline: Baseline = field(default_factory=Baseline)
    variants: tuple[Variant, ...] = setting((), "other templates to score as well")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in (self.name, *(variant.name for variant in self.variants)):
            check_name(name)
        if not self.example:
            raise ValueError("example is missing: give the template of a question, such as 'Q: {question}\\nA:'")
        if self.answer.count("{answer}") != 1:
            raise ValueError(f"answer must contain {{answer}} once, such as ' {{answer}}', not {self.answer!r}")
        self._check_metrics()

    def _check_metrics(self) -> None:
        if not self.metrics:
            raise ValueError(f"metrics is missing: name some of {', '.join(METRICS)}")
        for name in self.metrics:
            if name not in METRICS:
                hint = did_you_mean(name, METRICS, f"use {', '.join(METRICS)}")
                raise ValueError(f"there is no metric '{name}'; {hint}")
            if (METRICS[name].needs == "choice") != self.choices.is_given:
                kind = "has [choices]" if self.choices.is_given else "generates a free answer"
                raise ValueError(f"{name} is not a metric for a task that {kind}: use another, or change [choices]")

    @property
    def needs(self) -> frozenset[str]:
        """What the metrics need: a choice, a generated text, or the likelihood of the right answer."""
        return frozenset(METRICS[name].needs for name in self.metrics)

    @property
    def draws_answers(self) -> bool:
        return "text" in self.needs and not self.generation.is_greedy

    @property
    def templates(self) -> dict[str, str]:
        """The templates by the name of their variant."""
        return {AS_WRITTEN: self.example, **{variant.name: variant.example for variant in self.variants}}


def read_task(name: str | Path) -> TextTask:
    """A shipped task by its name, or a task from a file."""
    path = shipped_or_file(name, SHIPPED, "task")
    values = read_toml(path)
    try:
        return from_dict(TextTask, {"name": path.stem, **values})
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: {error}") from None


def filled(template: str, fields: Mapping[str, str], where: str = "the template") -> str:
    """The template with its fields substituted; `{{` and `}}` are literal braces.

    >>> filled("Q: {Ticket text}", {"Ticket text": "why {so}?"})
    'Q: why {so}?'
    """

    def value(match: re.Match) -> str:
        if match[1] is None:
            return match[0][0]
        if match[1] not in fields:
            raise ValueError(f"{where} names the field {{{match[1]}}}, and the data has {', '.join(fields)}")
        return fields[match[1]]

    return FIELD.sub(value, template)
