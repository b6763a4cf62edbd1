"""Classification of a text or a pair (softmax), multi-label classification (sigmoid), and regression (squared
error)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tokenizers

from hornbook.metrics import classification as measured
from hornbook.metrics import regression
from hornbook.models.outputs import Output, PairEncoding
from hornbook.tasks.features import Features, Scorer, softmax
from hornbook.tasks.records import TextExample
from hornbook.text.tokenizer import Tokenizer

THRESHOLD = 0.5  # minimum probability of a predicted class in multi-label classification


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
class Classification:
    """The head maps `[CLS]` to one of `output.labels`, to several of them, or to a number."""

    output: Output
    measures: tuple[str, ...]
    positive: str | None = None  # the class whose F1 is reported

    def encode(self, examples: Sequence[TextExample], tokenizer: Tokenizer, longest: int) -> Features:
        encodings, num_cut = encode_texts(examples, tokenizer, longest, self.output.pairs)
        group_size = self.output.group_size
        return Features(
            ids=[np.array(each.ids, np.int64) for each in encodings],
            segments=[np.array(each.type_ids, np.int64) for each in encodings],
            owners=np.repeat(np.arange(len(examples)), group_size),
            num_examples=len(examples),
            labels=self._targets(examples, group_size),
            group_size=group_size,
            num_cut=num_cut,
        )

    def _targets(self, examples: Sequence[TextExample], group_size: int) -> np.ndarray | None:
        if any(each.label is None for each in examples):
            return None
        if self.output.problem == "number":
            return np.repeat(np.array([each.label for each in examples], np.float32), group_size)
        index = {label: i for i, label in enumerate(self.output.labels)}
        if self.output.problem == "single":
            return np.repeat(np.array([index.get(each.label, -1) for each in examples]), group_size)
        rows = np.zeros((len(examples), len(index)), np.float32)
        for row, each in zip(rows, examples, strict=True):
            row[[index[label] for label in each.label if label in index]] = 1
        return np.repeat(rows, group_size, 0)

    def decode(
        self, outputs: list[np.ndarray], features: Features, examples: Sequence[TextExample]
    ) -> list[ClassPrediction] | list[float]:
        if not outputs:
            return []
        logits = np.stack(outputs)
        if self.output.problem == "number":
            return logits[:, 0].tolist()
        labels = self.output.labels
        if self.output.problem == "single":
            probabilities = softmax(logits)
            return [
                ClassPrediction(labels[int(row.argmax())], dict(zip(labels, row.tolist(), strict=True)))
                for row in probabilities
            ]
        probabilities = 1 / (1 + np.exp(-logits))
        return [
            ClassPrediction(tuple(label for label, p in by_label.items() if p >= THRESHOLD), by_label)
            for row in probabilities.tolist()
            for by_label in [dict(zip(labels, row, strict=True))]
        ]

    def scorer(self, examples: Sequence[TextExample], predictions: list) -> Scorer:
        if self.output.problem == "number":
            gold = np.array([each.label for each in examples], float)
            return _number_scorer(gold, np.array(predictions, float))
        labels = [each.label for each in examples]
        if self.output.problem == "multi":
            return _multi_scorer(labels, [each.label for each in predictions], self.output.labels)
        return _class_scorer(labels, [each.label for each in predictions], self.measures, self.positive)

    def describe(self, example: TextExample, prediction: ClassPrediction | float) -> dict[str, Any]:
        row: dict[str, Any] = {"text": example.text} | ({} if example.pair is None else {"pair": example.pair})
        if isinstance(prediction, float):
            return row | {"value": prediction}
        probabilities = prediction.probabilities
        if isinstance(prediction.label, tuple):
            return row | {"labels": list(prediction.label), "probabilities": probabilities}
        return row | {"label": prediction.label, "probability": prediction.probability, "probabilities": probabilities}


def encode_texts(
    examples: Sequence[TextExample], tokenizer: Tokenizer, longest: int, pairs: PairEncoding = "joint"
) -> tuple:
    """(encodings with special tokens, at least one token each; number of truncated texts). In a pair the longer text is
    truncated first, as published; with `pairs="both"` both orders are truncated identically."""
    first = tokenizer.encode_batch([each.text for each in examples])
    has_pair = [each.pair is not None for each in examples]
    second = iter(tokenizer.encode_batch([each.pair for each in examples if each.pair is not None]))
    encodings, num_cut = [], 0
    for one, paired in zip(first, has_pair, strict=True):
        two = next(second) if paired else None
        if pairs != "joint" and two is None:
            raise ValueError(
                f"--pair-encoding {pairs} is for pairs of texts, but an example has only one text; give a pair (--pair "
                "names its column) or leave the option out"
            )
        if pairs == "separate":
            capacity = longest - tokenizer.num_special(False)
            num_cut += (len(one.ids) > capacity) + (len(two.ids) > capacity)
            for each in (one, two):
                each.truncate(capacity)
                encodings.append(_never_empty(tokenizer.joined(each), tokenizer))
            continue
        capacity = longest - tokenizer.num_special(paired)
        if pairs == "both" and len(one.ids) == len(two.ids):
            capacity -= capacity % 2  # an odd token would go to one of the two texts depending on their order
        num_cut += cut_pair(one, two, capacity)
        encodings.append(_never_empty(tokenizer.joined(one, two), tokenizer))
        if pairs == "both":
            encodings.append(_never_empty(tokenizer.joined(two, one), tokenizer))
    return encodings, num_cut


def _never_empty(encoding: tokenizers.Encoding, tokenizer: Tokenizer) -> tokenizers.Encoding:
    """The encoding, or the end-of-text token alone if the encoding is empty: the head needs a token to read."""
    if encoding.ids:
        return encoding
    if tokenizer.end_id is None:
        raise ValueError("a text is empty and the tokenizer has no end-of-text token to encode it as: remove the text")
    return tokenizer.backend.encode(tokenizer.token(tokenizer.end_id), add_special_tokens=False)


def cut_pair(one, two, capacity: int) -> bool:
    """Truncates the longer text until both fit in `capacity` tokens. Returns whether anything was truncated."""
    first, second = len(one.ids), 0 if two is None else len(two.ids)
    if first + second <= capacity:
        return False
    if two is None:
        one.truncate(capacity)
        return True
    shorter = min(first, second)
    keep_shorter = min(shorter, capacity // 2)
    keep_longer = capacity - keep_shorter
    one.truncate(keep_longer if first > second else keep_shorter)
    two.truncate(keep_shorter if first > second else keep_longer)
    return True


def _number_scorer(gold: np.ndarray, predicted: np.ndarray) -> Scorer:
    orders = regression.order(gold), regression.order(predicted)

    def score(chosen: np.ndarray | None = None) -> dict[str, float]:
        some = slice(None) if chosen is None else chosen
        a, b = gold[some], predicted[some]
        return {
            "pearson": regression.pearson(a, b),
            "spearman": regression.pearson(*(regression.ranks(each[some]) for each in orders)),
            "mean_squared_error": regression.mean_squared_error(a, b),
        }

    return score


def _class_scorer(gold: list[str], predicted: list[str], measures: tuple[str, ...], positive: str | None) -> Scorer:
    labels, gold_N, predicted_N = measured.numbered(gold, predicted)
    positive_index = labels.index(positive) if positive in labels else None

    def score(chosen: np.ndarray | None = None) -> dict[str, float]:
        some = slice(None) if chosen is None else chosen
        counts = measured.class_counts(gold_N[some], predicted_N[some], len(labels))
        computed = {
            "accuracy": counts.accuracy,
            "f1": lambda: 0.0 if positive_index is None else counts.f1(positive_index),
            "macro_f1": counts.macro_f1,
            "matthews": counts.matthews,
        }
        return {name: computed[name]() for name in measures}

    return score


def _multi_scorer(gold: list[tuple], predicted: list[tuple], labels: tuple[str, ...]) -> Scorer:
    # Labels unknown to the model count as missed.
    labels = (*labels, *sorted({label for each in gold for label in each} - set(labels)))
    counts = measured.multi_label_counts(gold, predicted, labels)

    def score(chosen: np.ndarray | None = None) -> dict[str, float]:
        if chosen is None:
            return measured.multi_label_scores(counts.sum(0), len(counts))
        times_drawn = np.bincount(chosen, minlength=len(counts)).astype(float)
        return measured.multi_label_scores(times_drawn @ counts, len(chosen))

    return score
