"""The base class of tasks: everything that depends on the kind of a task, from reading files to the report.

A subclass is a kind of task, an instance is a task of that kind with its model output and metrics. `tasks/kinds` has
the kinds; docs/architecture.md shows how to add one. Tasks are independent of the model family: the model
supplies its published head for the task's `head_config`.

| step | members |
|---|---|
| read | `custom_layout`, `read_file`, `from_line`, `from_text`, `from_list`, `with_bio_tags` |
| head | `output`, `problem_type`, `head_config_for` |
| encode, decode | `encode`, `decode`, `describe`, `average`, `decision` |
| score | `scorer`, `compares_examples`, `with_best_threshold`, `apply_threshold` |
| baseline | `best_constant`, `majority`, `degenerate`, `label_scope` |
| augment, prompt, explain | on the class of examples: `changeable`, `changes`, `prompt`, `sequence` |
| report | `description`, `confusion`, `tallies`, `mistakes`, `submission`, `write_files` |
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from hornbook.metrics.breakdown import Confusion, Judged, Mistake, Tally
from hornbook.models.head_config import HeadConfig, HeadOptions, ProblemType
from hornbook.tasks.encoded import EncodedExamples, Outputs, Scorer, softmax
from hornbook.tasks.label_hints import heading_hint
from hornbook.tasks.reading.layout import FileLayout, TabularLayout
from hornbook.tasks.reading.reader import Reader
from hornbook.tasks.records import DataSet, Example, Splits

if TYPE_CHECKING:
    from hornbook.tasks.spec import TaskSpec
    from hornbook.text.tokenizer import Tokenizer

MIN_PROBABILITY = 1e-300
Predict = Callable[[list[Example]], list]  # one prediction per example, in their order

RunExamples = Callable[[list[Example]], tuple[EncodedExamples, Outputs]]


class Task:
    """A task, with its model output and metrics; a subclass is a kind of task."""

    # ---- the kind
    kind: ClassVar[str] = ""  # its name, such as "classification"
    description: ClassVar[str] = ""  # what it predicts
    accepted_inputs: ClassVar[str]  # the inputs that `predict` takes, for error messages
    example: ClassVar[type[Example]]
    custom_layout: ClassVar[TabularLayout]  # of a user's own files
    output: ClassVar[str] = ""  # one of models.head_config.OUTPUT_TYPES
    problem_type: ClassVar[ProblemType] = "single_label_classification"  # of each label, as in `transformers`
    default_metrics: ClassVar[tuple[str, ...]]  # of a user's own files; the first one selects models
    other_metrics: ClassVar[tuple[str, ...]] = ()  # that the scorer can compute besides the default ones
    number_metrics: ClassVar[tuple[str, ...]] = ()  # metrics that are not fractions, so not shown in percent
    saved_fields: ClassVar[tuple[str, ...]] = ("metrics",)  # of a task, in `task.json`
    has_labels: ClassVar[bool] = False  # labels are names, whose list is read from the data
    marks: ClassVar[tuple[str, ...]] = ()  # special tokens around the mentions in a text
    max_length: ClassVar[int | None] = None  # default maximum number of tokens; None: the model's
    truncated_noun: ClassVar[str] = "texts"  # what is counted as truncated
    unscored_hint: ClassVar[str] = ""  # what to do about examples that `is_scored` rejects
    tab_separated: ClassVar[str] = ""  # what a tab on each line of a text file must separate; "": it need not have any
    label_scope: ClassVar[Literal["text", "word", "choice", "passage"]] = "text"  # what a label belongs to
    min_scored: ClassVar[int] = 1  # examples that can be scored together
    has_baselines: ClassVar[bool] = True  # shallow models and probes can learn it
    allows_no_answer: bool = False  # the right answer may be none
    mistake_order: ClassVar[str] = "most confident errors"  # how `mistakes` are sorted
    hf_class: ClassVar[str]  # ending of the model classes in `transformers`

    # ---- a task of this kind
    head_config: HeadConfig
    metrics: tuple[str, ...]  # reported metrics; the first one selects models

    # ---- reading

    @classmethod
    def read_file(cls, path: Path, registered: "RegisteredTask", reader: Reader) -> list[Example] | None:
        """The inputs in a file of a format that only this kind has; None for other files."""
        return None

    @classmethod
    def from_line(cls, key: str, line: str, has_tabs: bool) -> Example:
        """The input on one line of a text file."""
        first, _, second = line.partition("\t") if has_tabs else (line, "", None)
        return cls.example(key, first, second)

    @classmethod
    def from_text(cls, key: str, text: str) -> Example | None:
        """The input in a string; None if a string cannot be one."""
        return None

    @classmethod
    def from_list(cls, key: str, items: Sequence[Any]) -> Example | None:
        """The input in a tuple or list; None if it cannot be one."""
        return None

    @classmethod
    def with_bio_tags(cls, splits: Splits, reader: Reader) -> tuple[Splits, str]:
        """The splits with tags in BIO, and the tag scheme of the files; kinds without tags return the splits and ""."""
        return splits, ""

    @classmethod
    def in_scored_form(cls, splits: Splits, reader: Reader) -> Splits:
        """The splits, after dev was held out, with the examples besides train in the form in which they are scored."""
        return splits

    @classmethod
    def is_scored(cls, example: Example, allows_no_answer: bool) -> bool:
        """Whether an example has a text and a label that the task can predict."""
        return example.gold is not None and not example.reason_unusable

    @classmethod
    def refuse_training(cls, data: DataSet) -> None:
        """Raises a `ValueError` if nothing can be learned from the data."""

    @classmethod
    def hints(cls, data: DataSet) -> list[str]:
        """Hints where the labels are probably not what the user means."""
        return [hint] if (hint := heading_hint(data)) else []

    @classmethod
    def statistics(cls, data: DataSet) -> dict[str, Any] | None:
        """Numbers that describe labels which are not names."""
        return None

    # ---- making a task

    @classmethod
    def head_config_for(cls, data: DataSet, options: HeadOptions) -> HeadConfig:
        """The model output that the data needs."""
        raise NotImplementedError

    @classmethod
    def details_for(cls, registered: "RegisteredTask", data: DataSet) -> dict[str, Any]:
        """The details of a task, as in `task.json`, for a registry entry and its data."""
        return {"metrics": list(registered.metrics)}

    @classmethod
    def build(cls, head_config: HeadConfig, details: Mapping[str, Any]) -> Self:
        """The task for a model output and the details of `task.json`, which may be missing. A detail has the type of
        the default of its field."""
        fields = {name: getattr(cls, name) for name in cls.saved_fields if name != "metrics"}
        given = {name: type(fields[name])(details[name]) for name in fields if details.get(name) is not None}
        return cls(head_config, metrics=tuple(details.get("metrics") or cls.default_metrics), **given)

    def details(self) -> dict[str, Any]:
        """What `task.json` holds of this task."""
        return {name: getattr(self, name) for name in self.saved_fields}

    @property
    def group_size(self) -> int:
        return self.head_config.group_size

    def for_example(self, example: Example) -> Self:
        """The task with this example's number of choices; examples with equal tasks are batched together."""
        return self

    @classmethod
    def ensembled(cls, tasks: Sequence[Self]) -> Self:
        """The task of an ensemble, with the mean of the thresholds if the kind has one."""
        if "threshold" not in cls.saved_fields:
            return tasks[0]
        return replace(tasks[0], threshold=float(np.mean([task.threshold for task in tasks])))

    # ---- encoding, decoding, scoring

    def encode(self, examples: Sequence[Example], tokenizer: "Tokenizer", max_length: int) -> EncodedExamples:
        """Examples to token sequences with targets."""
        raise NotImplementedError

    def decode(self, outputs: Outputs, encoded: EncodedExamples | None, examples: Sequence[Example]) -> list:
        """Model outputs to predictions, one per example, in order."""
        raise NotImplementedError

    def scorer(self, examples: Sequence[Example], predictions: list) -> Scorer:
        """A function from example indices, by default all, to scores."""
        raise NotImplementedError

    @classmethod
    def compares_examples(cls, examples: Sequence[Example]) -> bool:
        """Whether the score of each example depends on the others, so that all must be predicted together."""
        return False

    def describe(self, example: Example, prediction: Any) -> dict[str, Any]:
        """A prediction as a row for files and tables."""
        raise NotImplementedError

    def average(self, logits: np.ndarray) -> np.ndarray:
        """Logits that decode to the mean of the probabilities of several models, which are stacked."""
        return np.log(np.maximum(softmax(logits).mean(0), MIN_PROBABILITY))

    def decision(self, outputs: np.ndarray) -> np.ndarray | None:
        """The predicted class, tags or span of the outputs of one group, to compare models; None for numbers."""
        return outputs.argmax(-1)

    def with_best_threshold(self, examples: Sequence[Example], predictions: list) -> Self:
        """The task with the threshold that is best on these examples, for kinds that have one."""
        return self

    def apply_threshold(self, predictions: list) -> list:
        """The predictions with this task's threshold applied."""
        return predictions

    def in_hornbook_scheme(self, prediction: Any) -> Any:
        """A prediction of a model from elsewhere, in the tag scheme that Hornbook uses."""
        return prediction

    def in_file_scheme(self, row: dict[str, Any], scheme: str) -> dict[str, Any]:
        """A described prediction in the tag scheme of the user's files."""
        return row

    # ---- baselines

    def best_constant(self, gold: list) -> tuple[str, Predict] | None:
        """The constant prediction that is best for these labels, in words and as a function; None if there is none."""
        raise NotImplementedError

    def majority(self, train: Sequence[Example]) -> Predict:
        """The baseline that gives every input the most frequent label, with its frequency as the probability."""
        constant = self.best_constant([example.gold for example in train])
        if constant is None:
            raise ValueError(f"{self.kind} has no majority baseline here: use the tfidf baseline")
        return constant[1]

    def degenerate(self, examples: Sequence[Example], predictions: list) -> str | None:
        """A message if the predictions are the same whatever the input."""
        return None

    @property
    def with_correlation_metric(self) -> "Task | None":
        """This task with only the metric that shows whether predictions depend on the class; None if it has none."""
        return None

    # ---- reporting

    @classmethod
    def confusion(cls, judged: Judged) -> Confusion | None:
        return None

    @classmethod
    def tallies(cls, judged: Judged) -> list[Tally]:
        """One tally per class, entity type or tag that occurs in gold or predictions."""
        return []

    @classmethod
    def tally_noun(cls, judged: Judged) -> str:
        """The noun for one entry of `tallies`, such as 'class'."""
        return "class"

    @classmethod
    def mistakes(cls, rows: list[dict[str, Any]]) -> Iterator[tuple[float, Mistake]]:
        """Yields (how bad it is, mistake) for the mistakes in rows of `predictions-dev.jsonl`."""
        return iter(())

    @classmethod
    def worst_mistakes(cls, rows: list[dict[str, Any]], most: int) -> tuple[str, list[Mistake]]:
        """(description of the order, the `most` worst mistakes in rows of `predictions-dev.jsonl`)."""
        found = sorted(cls.mistakes(rows), key=lambda each: -each[0])
        return f"{cls.mistake_order}, of {len(found):,} in {len(rows):,} examples", [each for _, each in found[:most]]

    @classmethod
    def by_length(cls, rows: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
        """Rows of (length of the gold answer, number of examples, number of misses)."""
        return []

    @classmethod
    def by_threshold(cls, rows: list[dict[str, Any]], rules: str) -> list[tuple[float, float, float]]:
        """(no-answer threshold, exact match, F1) of rows of `predictions-dev.jsonl`; none if no question
        lacks an answer."""
        return []

    def illustrations(
        self, examples: Sequence[Example], predictions: list, encoded: EncodedExamples, run: RunExamples
    ) -> list[dict[str, Any]]:
        """The rows of `illustrations.json`: a few examples that the report shows with their probabilities. `run`
        encodes examples and runs the model on them."""
        return []

    def write_files(self, folder: Path, width: int, max_length: int | None) -> None:
        """Writes the files that other programs need to use a model of this kind. `width`: of the model; `max_length`:
        maximum number of tokens."""

    @classmethod
    def as_glue_label(cls, prediction: Any, registered: "RegisteredTask") -> str:
        """A prediction in the notation of GLUE's files."""
        raise NotImplementedError

    def submission(
        self, spec: "TaskSpec", examples: Sequence[Example], predictions: list, ending: str
    ) -> dict[str, str]:
        """The files of an official grader by name, for one split; `ending` goes before the suffix of their names."""
        raise ValueError(f"{spec.name} has no official submission format: write the predictions as JSON or CSV")


@dataclass(frozen=True)
class RegisteredTask:
    """One entry of the registry. The first of `metrics` selects between models."""

    name: str
    task_class: type[Task]
    layout: FileLayout
    metrics: tuple[str, ...]
    labels: tuple[str, ...] = ()
    pos_label: str | None = None  # the class whose F1 is reported
    submissions: Mapping[str, str] = field(default_factory=dict)  # GLUE's file name for each test split
    allows_no_answer: bool = False  # a question may have no answer
    batch_size: int = 32
    learning_rate: float | None = None  # None: the default for the model's width
    epochs: int = 3

    @property
    def is_custom(self) -> bool:
        """Whether it stands for a user's own files of a kind of task."""
        return self.name in (self.kind, "spans-or-none")

    @property
    def kind(self) -> str:
        return self.task_class.kind

    @property
    def custom_layout(self) -> TabularLayout:
        """The layout of a user's own files for this task."""
        layout = self.task_class.custom_layout
        return replace(layout, allows_no_answer=True) if self.allows_no_answer else layout


def is_list_of_texts(item: Any) -> bool:
    return isinstance(item, tuple | list) and all(isinstance(each, str) for each in item)
