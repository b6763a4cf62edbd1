"""Regression: a number for a text or a pair, trained on the squared error."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hornbook.metrics import regression
from hornbook.metrics.breakdown import Mistake
from hornbook.metrics.formatting import number
from hornbook.models.head_config import HeadConfig, HeadOptions
from hornbook.tasks.encoded import ALL, EncodedExamples, Outputs, Scorer
from hornbook.tasks.kinds.sequence import SequenceTask
from hornbook.tasks.reading.texts import CustomTexts
from hornbook.tasks.records import DataSet, TextExample
from hornbook.tasks.task import Predict, RegisteredTask

CONSTANT_SHARE = 0.02  # of the labels' standard deviation: predictions that vary less count as constant
STSB_RANGE = (0.0, 5.0)


@dataclass(frozen=True)
class Regression(SequenceTask):
    kind = "regression"
    description = "one number per text"
    problem_type = "regression"
    custom_layout = CustomTexts("regression")
    default_metrics = ("pearson", "spearman")
    min_scored = 2
    mistake_order = "largest errors"
    number_metrics = ("pearson", "spearman", "mean_absolute_error", "mean_squared_error")

    @classmethod
    def head_config_for(cls, data: DataSet, options: HeadOptions) -> HeadConfig:
        return HeadConfig("sequence", 1, ("score",), "regression", options.layers, options.pair_encoding)

    @classmethod
    def statistics(cls, data: DataSet) -> dict[str, Any]:
        """The range and mean of the numbers."""
        numbers = [each.label for split in data.splits.values() for each in split if each.label is not None]
        return {"numbers": number_range(numbers) if numbers else {}}

    def targets(self, examples: Sequence[TextExample]) -> np.ndarray:
        return np.array([each.label for each in examples], float)

    def decode(self, outputs: Outputs, encoded: EncodedExamples | None, examples: Sequence[TextExample]) -> list[float]:
        return np.stack(outputs)[:, 0].tolist() if outputs else []

    def average(self, logits: np.ndarray) -> np.ndarray:
        return logits.mean(0)

    def decision(self, outputs: np.ndarray) -> None:
        return None

    def scorer(self, examples: Sequence[TextExample], predictions: list[float]) -> Scorer:
        gold, predicted = np.array([each.label for each in examples], float), np.array(predictions, float)
        correlations = regression.correlations(gold, predicted)

        def score(chosen: np.ndarray | slice = ALL) -> dict[str, float]:
            return correlations(chosen) | regression.mean_errors(gold[chosen], predicted[chosen])

        return score

    def describe(self, example: TextExample, prediction: float) -> dict[str, Any]:
        return example.inputs | {"value": prediction}

    def best_constant(self, gold: list[float]) -> tuple[str, Predict]:
        mean = float(np.mean(gold))
        return f"always predicting the mean, {mean:.3g}", lambda examples: [mean] * len(examples)

    def degenerate(self, examples: Sequence[TextExample], predictions: list[float]) -> str | None:
        if len(examples) > 1 and np.std(predictions) < CONSTANT_SHARE * np.std([each.label for each in examples]):
            return f"the model predicts about {np.mean(predictions):.2f} for every input"
        return None

    @classmethod
    def mistakes(cls, rows: list[dict[str, Any]]) -> Iterator[tuple[float, Mistake]]:
        for row in rows:
            if "value" in row:
                gold, value = number(row["gold"]), number(row["value"])
                yield abs(value - gold), Mistake.of(row, f"{gold:.2f}", f"{value:.2f}", f"{value - gold:+.2f}")

    @classmethod
    def as_glue_label(cls, prediction: float, registered: RegisteredTask) -> str:
        low, high = STSB_RANGE
        return f"{min(max(prediction, low), high):.3f}"


def number_range(numbers: Sequence[float]) -> dict[str, float]:
    return {"min": min(numbers), "mean": float(np.mean(numbers)), "max": max(numbers)}
