"""Compares the outputs of an exported model with those of the original, on the same inputs."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hornbook.deployment.loading import MeasuredModel
from hornbook.tasks.encoded import EncodedExamples
from hornbook.tasks.evaluation import outputs_by_group

BATCH_TOKENS = 4096  # tokens per forward pass


@dataclass(frozen=True)
class Agreement:
    """`same` is the fraction of inputs (for tagging: of tokens) with the same prediction; None for models that output a
    number or vectors. `smallest_cosine` compares the mean vectors of an input, for models that output vectors."""

    num_inputs: int
    largest_difference: float  # largest absolute difference of any output number
    same: float | None
    smallest_cosine: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


def agreement(
    original: MeasuredModel,
    exported: MeasuredModel,
    encoded: EncodedExamples,
    on_progress: Callable[[int], None] | None = None,
) -> Agreement:
    """Runs both models on the same inputs. `on_progress` is called with the number of inputs done."""
    pairs = list(zip(answers(original, encoded), answers(exported, encoded, on_progress), strict=True))
    largest = max(float(np.abs(a - b).max(initial=0.0)) for a, b in pairs)
    if original.head_config is None:
        return Agreement(len(pairs), largest, None, min(_cosine(a.mean(0), b.mean(0)) for a, b in pairs))
    task = original.predictor.task
    predicted = [(task.predicted(a), task.predicted(b)) for a, b in pairs]
    if predicted[0][0] is None:
        return Agreement(len(pairs), largest, None)
    if original.head_config.output_type.per_token:
        same = np.concatenate([a == b for a, b in predicted])
    else:
        same = np.array([np.array_equal(a, b) for a, b in predicted])
    return Agreement(len(pairs), largest, float(same.mean()))


def answers(
    model: MeasuredModel, encoded: EncodedExamples, on_progress: Callable[[int], None] | None = None
) -> list[np.ndarray]:
    """Returns the output of a model for each group; for tagging and vectors, for each sequence."""
    per_token = model.head_config is None or model.head_config.output_type.per_token
    return outputs_by_group(lambda batch: model.answer(batch).numpy(), encoded, per_token, BATCH_TOKENS, on_progress)


def _cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / max(np.linalg.norm(a) * np.linalg.norm(b), 1e-30))
