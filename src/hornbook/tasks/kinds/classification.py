"""Classification of a text or a pair: one class, by softmax."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hornbook.metrics import classification as class_metrics
from hornbook.metrics.breakdown import (
    Confusion,
    Judged,
    Mistake,
    Tally,
    confidence,
    confusion_matrix,
    tally_classes,
)
from hornbook.metrics.formatting import number, percent
from hornbook.models.head_config import HeadConfig
from hornbook.tasks.encoded import ALL, EncodedExamples, Outputs, Scorer, softmax
from hornbook.tasks.kinds.sequence import SequenceTask
from hornbook.tasks.label_hints import (
    capitals_hint,
    contradictions_hint,
    missing_hint,
    numbers_hint,
    rare_classes_hint,
    several_labels_hint,
)
from hornbook.tasks.reading.texts import CustomTexts
from hornbook.tasks.records import DataSet, TextExample
from hornbook.tasks.task import Predict, RegisteredTask


@dataclass(frozen=True)
class ClassPrediction:
    """`label`: the most probable class, or for multi-label tasks a tuple of all predicted classes; `probabilities`: by
    label."""

    label: str | tuple[str, ...]
    probabilities: dict[str, float]

    @property
    def probability(self) -> float:
        """Probability of `label`; single-label tasks only."""
        if isinstance(self.label, tuple):
            raise AttributeError("a multi-label prediction has no single probability: use `probabilities`")
        return self.probabilities[self.label]


@dataclass(frozen=True)
class Classification(SequenceTask):
    kind = "classification"
    description = "one label per text"
    custom_layout = CustomTexts("single_label_classification")
    default_metrics = ("accuracy", "macro_f1", "matthews")
    other_metrics = ("f1",)
    number_metrics = ("matthews",)
    has_labels = True
    saved_fields = ("metrics", "positive")

    positive: str | None = None  # the class whose F1 is reported

    @classmethod
    def refuse_training(cls, data: DataSet) -> None:
        """Raises a `ValueError` if all training examples have one class, which any model would predict perfectly."""
        labels = {example.label for example in data.splits["train"]}
        if len(labels) == 1:
            raise ValueError(f"every training example has the label '{labels.pop()}': add examples of other classes")

    @classmethod
    def hints(cls, data: DataSet) -> list[str]:
        hints = (numbers_hint, several_labels_hint, missing_hint, capitals_hint, contradictions_hint, rare_classes_hint)
        return [*super().hints(data), *filter(None, (hint(data) for hint in hints))]

    @classmethod
    def details_for(cls, registered: RegisteredTask, data: DataSet) -> dict[str, Any]:
        positive = registered.pos_label if registered.pos_label in data.labels else None
        return super().details_for(registered, data) | {"positive": positive}

    @classmethod
    def build(cls, head_config: HeadConfig, details: Mapping[str, Any]) -> "Classification":
        positive, metrics = details.get("positive"), details.get("metrics") or cls.default_metrics
        metrics = tuple("macro_f1" if name == "f1" and positive is None else name for name in metrics)
        return cls(head_config, metrics, positive)

    def targets(self, examples: Sequence[TextExample]) -> np.ndarray:
        index = {label: i for i, label in enumerate(self.head_config.labels)}
        return np.array([index.get(each.label, -1) for each in examples])

    def decode(
        self, outputs: Outputs, encoded: EncodedExamples | None, examples: Sequence[TextExample]
    ) -> list[ClassPrediction]:
        labels = self.head_config.labels
        return [
            ClassPrediction(labels[int(row.argmax())], dict(zip(labels, row.tolist(), strict=True)))
            for row in (softmax(np.stack(outputs)) if outputs else ())
        ]

    def scorer(self, examples: Sequence[TextExample], predictions: list[ClassPrediction]) -> Scorer:
        gold, predicted = ([each.label for each in side] for side in (examples, predictions))
        labels, gold_N, predicted_N = class_metrics.as_indices(gold, predicted)
        positive_index = labels.index(self.positive) if self.positive in labels else None

        def score(chosen: np.ndarray | slice = ALL) -> dict[str, float]:
            counts = class_metrics.class_counts(gold_N[chosen], predicted_N[chosen], len(labels))
            computed = {
                "accuracy": counts.accuracy,
                "f1": lambda: 0.0 if positive_index is None else counts.f1(positive_index),
                "macro_f1": counts.macro_f1,
                "matthews": counts.matthews,
            }
            return {name: computed[name]() for name in self.metrics}

        return score

    def describe(self, example: TextExample, prediction: ClassPrediction) -> dict[str, Any]:
        names = ("label", "probability", "probabilities")
        return example.inputs | {name: getattr(prediction, name) for name in names}

    def best_constant(self, gold: list[str]) -> tuple[str, Predict]:
        counts = Counter(gold)
        label = counts.most_common(1)[0][0]
        prediction = ClassPrediction(label, {name: counts[name] / len(gold) for name in self.head_config.labels})
        return f"the majority class '{label}'", lambda examples: [prediction] * len(examples)

    def degenerate(self, examples: Sequence[TextExample], predictions: list[ClassPrediction]) -> str | None:
        return same_label(examples, predictions, str)

    @property
    def with_correlation_metric(self) -> "Classification":
        return replace(self, metrics=("matthews",))

    @classmethod
    def confusion(cls, judged: Judged) -> Confusion | None:
        pairs = [(str(row["gold"]), str(row["label"])) for row in judged.rows if "label" in row]
        return confusion_matrix(pairs, judged.labels, "examples")

    @classmethod
    def tallies(cls, judged: Judged) -> list[Tally]:
        return tally_classes(([(str(row["gold"]),)], [(str(row["label"]),)]) for row in judged.rows if "label" in row)

    @classmethod
    def mistakes(cls, rows: list[dict[str, Any]]) -> Iterator[tuple[float, Mistake]]:
        for row in rows:
            if "label" not in row or row["label"] == row["gold"]:
                continue
            probability = number((row.get("probabilities") or {}).get(row["gold"]))
            other = f", gold label {percent(probability)}" if math.isfinite(probability) else ""
            note = f"probability {percent(confidence(row))}{other}"
            yield confidence(row), Mistake.of(row, str(row["gold"]), str(row["label"]), note)

    @classmethod
    def as_glue_label(cls, prediction: ClassPrediction, registered: RegisteredTask) -> str:
        if prediction.label not in registered.labels:
            raise ValueError(
                f"the grader of {registered.name} accepts {', '.join(registered.labels)}, but the model predicts "
                f"'{prediction.label}': fine-tune on the published files"
            )
        return prediction.label


def same_label(
    examples: Sequence[TextExample], predictions: Sequence[ClassPrediction], describe: Callable[[Any], str]
) -> str | None:
    """A message if all predictions have the same label and the examples do not."""
    predicted, right = {each.label for each in predictions}, {each.label for each in examples}
    if len(predicted) == 1 and len(right) > 1:
        return f"the model predicts '{describe(next(iter(predicted)))}' for every input"
    return None
