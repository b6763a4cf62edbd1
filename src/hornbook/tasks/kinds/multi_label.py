"""Multi-label classification of a text or a pair: any number of classes, by sigmoid.

A class is predicted if its probability reaches a threshold. With calibrated probabilities the best one for F1 is half
of the best F1 (Lipton et al. 2014, arXiv 1402.1892), so 0.5 misses classes wherever the task is difficult; the
threshold is chosen on dev.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hornbook.metrics import classification as class_metrics
from hornbook.metrics.breakdown import Judged, Mistake, Tally, tally_classes
from hornbook.metrics.formatting import number
from hornbook.models.head_config import HeadConfig
from hornbook.tasks.encoded import ALL, EncodedExamples, Outputs, Scorer, sigmoid
from hornbook.tasks.kinds.classification import ClassPrediction, same_label
from hornbook.tasks.kinds.sequence import SequenceTask
from hornbook.tasks.label_hints import capitals_hint, missing_hint, single_label_hint
from hornbook.tasks.reading.texts import CustomTexts
from hornbook.tasks.records import DataSet, TextExample
from hornbook.tasks.task import MIN_PROBABILITY, Predict

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

    threshold: float = THRESHOLD

    @classmethod
    def build(cls, head_config: HeadConfig, details: Mapping[str, Any]) -> "MultiLabel":
        task = super().build(head_config, details)
        if not 0 < task.threshold < 1:
            raise ValueError(f"its threshold is not between 0 and 1, but {task.threshold:g}")
        return task

    @classmethod
    def refuse_training(cls, data: DataSet) -> None:
        if not any(each.label for each in data.splits["train"]):
            raise ValueError("no training example has a label: check which column has the labels, or name it by label=")

    @property
    def min_logit(self) -> float:
        """Minimum logit of a predicted class."""
        return math.log(self.threshold / (1 - self.threshold))

    @classmethod
    def hints(cls, data: DataSet) -> list[str]:
        return [*super().hints(data), *filter(None, [missing_hint(data), capitals_hint(data), single_label_hint(data)])]

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
                gold, predicted = (", ".join(names) or "none" for names in (row["gold"], labels))
                yield error, Mistake.of(row, gold, predicted, f"sum of absolute probability errors {error:.2f}")


def _joined(labels: tuple[str, ...]) -> str:
    return ", ".join(labels) or "no class"
