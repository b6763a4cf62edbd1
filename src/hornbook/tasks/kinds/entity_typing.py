"""Entity typing: the types of a mention, any number of them, by sigmoid over `[CLS]`; `[ENT]` marks the mention."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hornbook.metrics import classification as measured
from hornbook.tasks.features import Scorer
from hornbook.tasks.kinds.classification import ClassPrediction
from hornbook.tasks.kinds.marked import Marked
from hornbook.tasks.kinds.multi_label import MultiLabel
from hornbook.tasks.records import MarkedExample

MAX_SHOWN = 20  # types of a mention whose probabilities are written


@dataclass(frozen=True)
class EntityTyping(Marked, MultiLabel):
    name = "entity-typing"
    in_words = "the types of a marked mention"
    takes = "a text with [ENT] before and after the mention, or a dictionary with text, start and end"
    marks = ("[ENT]",)
    default_measures = ("loose_micro_f1", "loose_macro_f1", "exact_match")

    def prediction_for(self, probabilities: dict[str, float]) -> ClassPrediction:
        """Every mention has a type: if none is probable, the most probable is predicted (as Choi et al. 2018)."""
        found = super().prediction_for(probabilities)
        return found if found.label else ClassPrediction((max(probabilities, key=probabilities.get),), probabilities)

    def describe(self, example: MarkedExample, prediction: ClassPrediction) -> dict[str, Any]:
        """With the likeliest types only: there may be thousands."""
        likeliest = sorted(prediction.probabilities.items(), key=lambda each: -each[1])[:MAX_SHOWN]
        return super().describe(example, prediction) | {"probabilities": dict(likeliest)}

    def scorer(self, examples: Sequence[MarkedExample], predictions: list[ClassPrediction]) -> Scorer:
        counts_N3 = measured.loose_counts(*([each.label for each in side] for side in (examples, predictions)))

        def score(chosen: np.ndarray | None = None) -> dict[str, float]:
            return measured.loose_scores(counts_N3 if chosen is None else counts_N3[chosen])

        return score
