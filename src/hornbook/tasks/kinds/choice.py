"""Multiple choice: each ending is encoded with its context, a linear layer scores each `[CLS]`, and the softmax runs
over the endings of one question."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hornbook.models.outputs import Output
from hornbook.tasks.features import Features, Scorer, softmax
from hornbook.tasks.kinds.classification import encode_texts
from hornbook.tasks.records import ChoiceExample, TextExample
from hornbook.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class ChoicePrediction:
    choice: int
    probabilities: tuple[float, ...]


@dataclass(frozen=True)
class Choice:
    """Multiple choice with `num_endings` endings for every question."""

    output: Output
    num_endings: int
    measures: tuple[str, ...] = ("accuracy",)

    def encode(self, examples: Sequence[ChoiceExample], tokenizer: Tokenizer, longest: int) -> Features:
        pairs = []
        for each in examples:
            if len(each.endings) != self.num_endings:
                raise ValueError(
                    f"question {each.key} has {len(each.endings)} endings, but the model was trained with "
                    f"{self.num_endings}: give {self.num_endings} endings"
                )
            pairs += [TextExample(each.key, each.context, f"{each.beginning} {end}".strip()) for end in each.endings]
        encodings, num_cut = encode_texts(pairs, tokenizer, longest)
        known = all(each.label is not None for each in examples)
        labels = np.repeat([each.label for each in examples], self.num_endings) if known else None
        return Features(
            ids=[np.array(each.ids, np.int64) for each in encodings],
            segments=[np.array(each.type_ids, np.int64) for each in encodings],
            owners=np.repeat(np.arange(len(examples)), self.num_endings),
            num_examples=len(examples),
            labels=labels,
            group_size=self.num_endings,
            num_cut=num_cut,
        )

    def decode(
        self, outputs: list[np.ndarray], features: Features, examples: Sequence[ChoiceExample]
    ) -> list[ChoicePrediction]:
        probabilities = [softmax(logits) for logits in outputs]
        return [ChoicePrediction(int(row.argmax()), tuple(row.tolist())) for row in probabilities]

    def scorer(self, examples: Sequence[ChoiceExample], predictions: list[ChoicePrediction]) -> Scorer:
        pairs = zip(examples, predictions, strict=True)
        is_correct = np.array([each.label == prediction.choice for each, prediction in pairs], float)

        def score(chosen: np.ndarray | None = None) -> dict[str, float]:
            return {"accuracy": float((is_correct if chosen is None else is_correct[chosen]).mean())}

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
