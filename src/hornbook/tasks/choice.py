"""One of several endings: each is encoded with its context, one vector scores the `[CLS]` of each, and the softmax runs
over the endings of one question."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hornbook.models.outputs import Output
from hornbook.tasks.classification import encode_texts
from hornbook.tasks.records import ChoiceExample, TextExample
from hornbook.tasks.task import Features, Scorer, softmax
from hornbook.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class ChoicePrediction:
    choice: int
    probabilities: tuple[float, ...]


@dataclass(frozen=True)
class Choice:
    """Every question of a data set has the same number of endings."""

    output: Output
    num_endings: int
    measures: tuple[str, ...] = ("accuracy",)

    def encode(self, examples: Sequence[ChoiceExample], tokenizer: Tokenizer, longest: int) -> Features:
        pairs = []
        for each in examples:
            if len(each.endings) != self.num_endings:
                raise ValueError(
                    f"question {each.key} has {len(each.endings)} endings, but the model was trained with "
                    f"{self.num_endings}: give it so many"
                )
            pairs += [TextExample(each.key, each.context, f"{each.beginning} {end}".strip()) for end in each.endings]
        joined, num_cut = encode_texts(pairs, tokenizer, longest)
        known = all(each.label is not None for each in examples)
        labels = np.repeat([each.label for each in examples], self.num_endings) if known else None
        return Features(
            ids=[np.array(each.ids, np.int64) for each in joined],
            segments=[np.array(each.type_ids, np.int64) for each in joined],
            owners=np.repeat(np.arange(len(examples)), self.num_endings),
            num_examples=len(examples),
            labels=labels,
            group_size=self.num_endings,
            num_cut=num_cut,
        )

    def decode(
        self, found: list[np.ndarray], features: Features, examples: Sequence[ChoiceExample]
    ) -> list[ChoicePrediction]:
        shares = [softmax(row) for row in found]
        return [ChoicePrediction(int(row.argmax()), tuple(row.tolist())) for row in shares]

    def scorer(self, examples: Sequence[ChoiceExample], predictions: list[ChoicePrediction]) -> Scorer:
        pairs = zip(examples, predictions, strict=True)
        right = np.array([each.label == found.choice for each, found in pairs], float)

        def score(chosen: np.ndarray | None = None) -> dict[str, float]:
            return {"accuracy": float((right if chosen is None else right[chosen]).mean())}

        return score

    def describe(self, example: ChoiceExample, prediction: ChoicePrediction) -> dict[str, Any]:
        return {
            "context": example.context,
            "endings": list(example.endings),
            "choice": prediction.choice,
            "ending": example.endings[prediction.choice],
            "probability": prediction.probabilities[prediction.choice],
            "probabilities": list(prediction.probabilities),
        }
