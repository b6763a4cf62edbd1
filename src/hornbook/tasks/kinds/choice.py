"""Multiple choice: each choice is encoded with its context, a linear layer scores each `[CLS]`, and the softmax runs
over the choices of one question."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hornbook.metrics.breakdown import Confusion, Judged, Mistake, confidence, confusion_matrix
from hornbook.metrics.formatting import number, percent
from hornbook.models.head_config import HeadConfig, HeadOptions
from hornbook.tasks.encoded import EncodedExamples, Outputs, Scorer, mean_scorer, softmax
from hornbook.tasks.kinds.sequence import as_encoded_examples, encode_texts
from hornbook.tasks.reading.choices import ChoiceLayout
from hornbook.tasks.reading.reader import Reader
from hornbook.tasks.reading.table_files import TABLE_SUFFIXES
from hornbook.tasks.records import ChoiceExample, DataSet, TextExample
from hornbook.tasks.task import Predict, RegisteredTask, Task, is_list_of_texts

if TYPE_CHECKING:
    from hornbook.text.tokenizer import Tokenizer

ENOUGH_CHOICES = 20  # questions: with fewer, choosing the same position every time may happen by chance


@dataclass(frozen=True)
class ChoicePrediction:
    choice: int
    probabilities: tuple[float, ...]


@dataclass(frozen=True)
class Choice(Task):
    """Multiple choice with `num_choices` choices for every question."""

    kind = "choice"
    description = "one of several choices"
    accepted_inputs = "a (context, choices), a (context, choice, choice, …), or a dictionary with context and choices"
    example = ChoiceExample
    custom_layout = ChoiceLayout()
    output = "choice"
    default_metrics = ("accuracy",)
    tab_separated = "the context and its choices"
    label_scope = "choice"
    hf_class = "ForMultipleChoice"
    saved_fields = ("metrics", "num_choices")

    head_config: HeadConfig
    num_choices: int = 4
    metrics: tuple[str, ...] = ("accuracy",)

    @classmethod
    def read_file(cls, path: Path, registered: RegisteredTask, reader: Reader) -> list[ChoiceExample] | None:
        if path.suffix.lower() not in TABLE_SUFFIXES:
            return None
        return registered.layout.read_inputs(path, reader)

    @classmethod
    def from_line(cls, key: str, line: str, has_tabs: bool) -> ChoiceExample:
        context, *choices = line.split("\t")
        return ChoiceExample(key, context, tuple(choices) or ("",))

    @classmethod
    def from_list(cls, key: str, items: Sequence[Any]) -> ChoiceExample | None:
        if len(items) == 2:
            items = [items[0], *items[1]] if is_list_of_texts(items[1]) else []
        return ChoiceExample(key, items[0], tuple(items[1:])) if len(items) > 1 and is_list_of_texts(items) else None

    @classmethod
    def head_config_for(cls, data: DataSet, options: HeadOptions) -> HeadConfig:
        return HeadConfig("choice")

    @classmethod
    def details_for(cls, registered: RegisteredTask, data: DataSet) -> dict[str, Any]:
        first = next(example for split in data.splits.values() for example in split)
        return super().details_for(registered, data) | {"num_choices": len(first.choices)}

    @property
    def group_size(self) -> int:
        return self.num_choices

    def for_example(self, example: ChoiceExample) -> "Choice":
        return replace(self, num_choices=len(example.choices))

    def encode(self, examples: Sequence[ChoiceExample], tokenizer: "Tokenizer", max_length: int) -> EncodedExamples:
        pairs = []
        for each in examples:
            if len(each.choices) != self.num_choices:
                raise ValueError(
                    f"question {each.key} has {len(each.choices)} choices, but the model was trained with "
                    f"{self.num_choices}: give {self.num_choices} choices"
                )
            pairs += [
                TextExample(each.key, each.context, f"{each.beginning} {choice}".strip()) for choice in each.choices
            ]
        known = all(each.label is not None for each in examples)
        labels = np.array([each.label for each in examples]) if known else None
        return as_encoded_examples(*encode_texts(pairs, tokenizer, max_length), self.num_choices, labels)

    def decode(
        self, outputs: Outputs, encoded: EncodedExamples, examples: Sequence[ChoiceExample]
    ) -> list[ChoicePrediction]:
        probabilities = [softmax(logits) for logits in outputs]
        return [ChoicePrediction(int(row.argmax()), tuple(row.tolist())) for row in probabilities]

    def scorer(self, examples: Sequence[ChoiceExample], predictions: list[ChoicePrediction]) -> Scorer:
        pairs = zip(examples, predictions, strict=True)
        return mean_scorer({"accuracy": np.array([each.label == prediction.choice for each, prediction in pairs])})

    def describe(self, example: ChoiceExample, prediction: ChoicePrediction) -> dict[str, Any]:
        return example.inputs | {
            "choice": prediction.choice,
            "choice_text": example.choices[prediction.choice],
            "probability": prediction.probabilities[prediction.choice],
            "probabilities": list(prediction.probabilities),
        }

    def best_constant(self, gold: list[int]) -> tuple[str, Predict]:
        counts = Counter(gold)
        choice = counts.most_common(1)[0][0]
        prediction = ChoicePrediction(choice, tuple(counts[i] / len(gold) for i in range(self.num_choices)))
        return f"always taking choice {choice + 1}", lambda examples: [prediction] * len(examples)

    def degenerate(self, examples: Sequence[ChoiceExample], predictions: list[ChoicePrediction]) -> str | None:
        predicted, right = {each.choice for each in predictions}, {each.label for each in examples}
        if len(examples) >= ENOUGH_CHOICES and len(predicted) == 1 and len(right) > 1:
            return f"the model takes choice {next(iter(predicted)) + 1} of every question"
        return None

    @classmethod
    def confusion(cls, judged: Judged) -> Confusion | None:
        choices = [(row["gold"], row["choice"]) for row in judged.rows if "choice" in row]
        last = max((choice for pair in choices for choice in pair), default=-1)
        names = [f"choice {choice + 1}" for choice in range(last + 1)]
        return confusion_matrix([(names[gold], names[predicted]) for gold, predicted in choices], names, "questions")

    @classmethod
    def mistakes(cls, rows: list[dict[str, Any]]) -> Iterator[tuple[float, Mistake]]:
        for row in rows:
            if "choice" not in row or row["choice"] == row["gold"]:
                continue
            choices, probabilities, gold = row.get("choices") or [], row.get("probabilities") or [], row["gold"]
            right = f"choice {gold + 1}" + (f": {choices[gold]}" if gold < len(choices) else "")
            of_gold = percent(number(probabilities[gold])) if gold < len(probabilities) else ""
            note = f"probability {percent(confidence(row))}" + (f", gold choice {of_gold}" if of_gold else "")
            predicted = f"choice {row['choice'] + 1}: {row.get('choice_text', '')}"
            yield confidence(row), Mistake.of(row, right, predicted, note)
