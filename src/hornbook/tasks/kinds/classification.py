"""Classification of a text or a pair: one class, by softmax, or any number of classes (multi-label), by sigmoid.

A class of a multi-label task is predicted if its probability reaches a threshold. With calibrated probabilities the
best one for F1 is half of the best F1 (Lipton et al. 2014, arXiv 1402.1892), so 0.5 misses classes wherever the task is
difficult; the threshold is chosen on dev.
"""

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
from hornbook.tasks.encoded import ALL, EncodedExamples, Outputs, Scorer, sigmoid, softmax
from hornbook.tasks.kinds.sequence import SequenceTask
from hornbook.tasks.label_hints import (
    capitals_hint,
    contradictions_hint,
    missing_hint,
    numbers_hint,
    rare_classes_hint,
    several_labels_hint,
    single_label_hint,
)
from hornbook.tasks.reading.texts import CustomTexts
from hornbook.tasks.records import DataSet, TextExample
from hornbook.tasks.task import MIN_PROBABILITY, Predict, RegisteredTask


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
        super().refuse_training(data)
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


# ---- several classes


THRESHOLD = 0.5  # minimum probability of a predicted class, where none is chosen on dev
THRESHOLDS = tuple(i / 20 for i in range(1, 20))  # that are tried
MIN_DEV_EXAMPLES = 200  # dev examples to choose a threshold on


@dataclass(frozen=True)
class MultiLabel(SequenceTask):
    kind = "multi-label"
    description = "any number of labels per text"
    problem_type = "multi_label_classification"
    custom_layout = CustomTexts("multi_label_classification")
    default_metrics = ("micro_f1", "macro_f1", "exact_match")
    mistake_order = "largest errors"
    has_labels = True
    saved_fields = ("metrics", "threshold")
    label_hints = (missing_hint, capitals_hint, single_label_hint)

    threshold: float = THRESHOLD

    @classmethod
    def build(cls, head_config: HeadConfig, details: Mapping[str, Any]) -> "MultiLabel":
        task = super().build(head_config, details)
        if not 0 < task.threshold < 1:
            raise ValueError(f"its threshold is not between 0 and 1, but {task.threshold:g}")
        return task

    @property
    def min_logit(self) -> float:
        """Minimum logit of a predicted class."""
        return math.log(self.threshold / (1 - self.threshold))

    @classmethod
    def hints(cls, data: DataSet) -> list[str]:
        return [*super().hints(data), *filter(None, (hint(data) for hint in cls.label_hints))]

    def targets(self, examples: Sequence[TextExample]) -> np.ndarray:
        rows = [[label in each.label for label in self.head_config.labels] for each in examples]
        return np.array(rows, np.float32).reshape(len(examples), len(self.head_config.labels))

    def decode(
        self, outputs: Outputs, encoded: EncodedExamples | None, examples: Sequence[TextExample]
    ) -> list[ClassPrediction]:
        probabilities = sigmoid(np.stack(outputs)) if outputs else np.zeros((0, 0))
        return [
            self.prediction_for(dict(zip(self.head_config.labels, row, strict=True))) for row in probabilities.tolist()
        ]

    def prediction_for(self, probabilities: dict[str, float]) -> ClassPrediction:
        labels = tuple(label for label, p in probabilities.items() if p >= self.threshold)
        return ClassPrediction(labels, probabilities)

    def apply_threshold(self, predictions: list[ClassPrediction]) -> list[ClassPrediction]:
        return [self.prediction_for(each.probabilities) for each in predictions]

    def with_best_threshold(self, examples: Sequence[TextExample], predictions: list[ClassPrediction]) -> "MultiLabel":
        """With the threshold that has the best score; of several, the one closest to 0.5."""
        if len(examples) < MIN_DEV_EXAMPLES:
            return self
        tasks = [replace(self, threshold=each) for each in sorted(THRESHOLDS, key=lambda each: abs(each - THRESHOLD))]
        return max(tasks, key=lambda task: task.scorer(examples, task.apply_threshold(predictions))()[self.metrics[0]])

    def average(self, logits: np.ndarray) -> np.ndarray:
        yes, no = (np.maximum(sigmoid(each).mean(0), MIN_PROBABILITY) for each in (logits, -logits))
        return np.log(yes) - np.log(no)

    def decision(self, outputs: np.ndarray) -> np.ndarray:
        return outputs >= self.min_logit

    def scorer(self, examples: Sequence[TextExample], predictions: list[ClassPrediction]) -> Scorer:
        gold, predicted = ([each.label for each in side] for side in (examples, predictions))
        # Labels unknown to the model count as missed.
        known = self.head_config.labels
        labels = (*known, *sorted({label for each in gold for label in each} - set(known)))
        counts = class_metrics.multi_label_counts(gold, predicted, labels)

        def score(chosen: np.ndarray | slice = ALL) -> dict[str, float]:
            if isinstance(chosen, slice):
                return class_metrics.multi_label_scores(counts.sum(0), len(counts))
            times_drawn = np.bincount(chosen, minlength=len(counts)).astype(float)
            return class_metrics.multi_label_scores(times_drawn @ counts, len(chosen))

        return score

    def describe(self, example: TextExample, prediction: ClassPrediction) -> dict[str, Any]:
        return example.inputs | {"labels": list(prediction.label), "probabilities": prediction.probabilities}

    def best_constant(self, gold: list[tuple[str, ...]]) -> tuple[str, Predict]:
        labels = Counter(gold).most_common(1)[0][0]
        answer = ClassPrediction(labels, {})
        return f"always predicting '{_joined(labels)}'", lambda examples: [answer] * len(examples)

    def majority(self, train: Sequence[TextExample]) -> Predict:
        """Every class with the fraction of examples that have it."""
        shares = self.targets(train).astype(float).mean(0).clip(1e-6, 1 - 1e-6)
        return lambda examples: self.decode([np.log(shares / (1 - shares))] * len(examples), None, examples)

    def degenerate(self, examples: Sequence[TextExample], predictions: list[ClassPrediction]) -> str | None:
        return same_label(examples, predictions, _joined)

    @classmethod
    def tallies(cls, judged: Judged) -> list[Tally]:
        rows = (row for row in judged.rows if "labels" in row)
        return tally_classes(tuple([(str(each),) for each in row[side]] for side in ("gold", "labels")) for row in rows)

    @classmethod
    def mistakes(cls, rows: list[dict[str, Any]]) -> Iterator[tuple[float, Mistake]]:
        for row in rows:
            labels, probabilities = row.get("labels") or [], row.get("probabilities") or {}
            if set(labels) != set(row["gold"]):
                error = sum(abs(number(each) - (name in row["gold"])) for name, each in probabilities.items())
                error += len(set(row["gold"]) - probabilities.keys())  # of many labels only the likeliest are written
                gold, predicted = (", ".join(names) or "none" for names in (row["gold"], labels))
                yield error, Mistake.of(row, gold, predicted, f"sum of absolute probability errors {error:.2f}")


def _joined(labels: tuple[str, ...]) -> str:
    return ", ".join(labels) or "no class"
