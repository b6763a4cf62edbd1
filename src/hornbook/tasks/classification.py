"""One text or a pair to a class, to several classes at once (sigmoid), or to a number (squared error)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tokenizers

from hornbook.metrics import classification as measured
from hornbook.metrics import regression
from hornbook.models.outputs import Output, PairEncoding
from hornbook.tasks.records import TextExample
from hornbook.tasks.task import Features, Scorer, softmax
from hornbook.text.tokenizer import Tokenizer

CHANCE = 0.5  # from here on one of several classes is said to hold


@dataclass(frozen=True)
class ClassPrediction:
    """`label` is the likeliest class, or all that hold (a tuple); `probabilities` are by label."""

    label: str | tuple[str, ...]
    probabilities: dict[str, float]

    @property
    def probability(self) -> float:
        """Of `label`, where it is one."""
        if isinstance(self.label, tuple):
            raise AttributeError("several classes at once have no one probability: use `probabilities`")
        return self.probabilities[self.label]


@dataclass(frozen=True)
class Classification:
    """`[CLS]` through the head to one of `output.labels`, several of them, or a number."""

    output: Output
    measures: tuple[str, ...]
    positive: str | None = None  # the class whose F1 counts

    def encode(self, examples: Sequence[TextExample], tokenizer: Tokenizer, longest: int) -> Features:
        joined, num_cut = encode_texts(examples, tokenizer, longest, self.output.pairs)
        together = self.output.group_size
        return Features(
            ids=[np.array(each.ids, np.int64) for each in joined],
            segments=[np.array(each.type_ids, np.int64) for each in joined],
            owners=np.repeat(np.arange(len(examples)), together),
            num_examples=len(examples),
            labels=self._targets(examples, together),
            group_size=together,
            num_cut=num_cut,
        )

    def _targets(self, examples: Sequence[TextExample], together: int) -> np.ndarray | None:
        if any(each.label is None for each in examples):
            return None
        if self.output.problem == "number":
            return np.repeat(np.array([each.label for each in examples], np.float32), together)
        number = {label: i for i, label in enumerate(self.output.labels)}
        if self.output.problem == "single":
            return np.repeat(np.array([number.get(each.label, -1) for each in examples]), together)
        rows = np.zeros((len(examples), len(number)), np.float32)
        for row, each in zip(rows, examples, strict=True):
            row[[number[label] for label in each.label if label in number]] = 1
        return np.repeat(rows, together, 0)

    def decode(
        self, found: list[np.ndarray], features: Features, examples: Sequence[TextExample]
    ) -> list[ClassPrediction] | list[float]:
        if not found:
            return []
        scores = np.stack(found)
        if self.output.problem == "number":
            return scores[:, 0].tolist()
        labels = self.output.labels
        if self.output.problem == "single":
            chances = softmax(scores)
            return [
                ClassPrediction(labels[int(row.argmax())], dict(zip(labels, row.tolist(), strict=True)))
                for row in chances
            ]
        chances = 1 / (1 + np.exp(-scores))
        return [
            ClassPrediction(tuple(label for label, p in by_label.items() if p >= CHANCE), by_label)
            for row in chances.tolist()
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
        chances = prediction.probabilities
        if isinstance(prediction.label, tuple):
            return row | {"labels": list(prediction.label), "probabilities": chances}
        return row | {"label": prediction.label, "probability": prediction.probability, "probabilities": chances}


def encode_texts(
    examples: Sequence[TextExample], tokenizer: Tokenizer, longest: int, pairs: PairEncoding = "joint"
) -> tuple:
    """(encodings with special tokens, none of them without any token, how many were cut). Of a pair, the longer is cut
    first, as published; in both orders it is cut alike."""
    first = tokenizer.encode_batch([each.text for each in examples])
    has_pair = [each.pair is not None for each in examples]
    second = iter(tokenizer.encode_batch([each.pair for each in examples if each.pair is not None]))
    joined, num_cut = [], 0
    for one, paired in zip(first, has_pair, strict=True):
        two = next(second) if paired else None
        if pairs != "joint" and two is None:
            raise ValueError(f"--pair-encoding {pairs} is for pairs of texts, and these have only one each")
        if pairs == "separate":
            room = longest - tokenizer.num_special(False)
            num_cut += (len(one.ids) > room) + (len(two.ids) > room)
            for each in (one, two):
                each.truncate(room)
                joined.append(_with_a_token(tokenizer.joined(each), tokenizer))
            continue
        room = longest - tokenizer.num_special(paired)
        if pairs == "both" and len(one.ids) == len(two.ids):
            room -= room % 2  # no odd token, which would fall to one of the two by their order
        num_cut += cut_pair(one, two, room)
        joined.append(_with_a_token(tokenizer.joined(one, two), tokenizer))
        if pairs == "both":
            joined.append(_with_a_token(tokenizer.joined(two, one), tokenizer))
    return joined, num_cut


def _with_a_token(encoding: tokenizers.Encoding, tokenizer: Tokenizer) -> tokenizers.Encoding:
    """The same or, where nothing is put around an empty text, the end-of-text token: a task is read at some token."""
    if encoding.ids:
        return encoding
    if tokenizer.end_id is None:
        raise ValueError("a text is empty, and the tokenizer has no end-of-text token to stand for it: leave it out")
    return tokenizer.backend.encode(tokenizer.token(tokenizer.end_id), add_special_tokens=False)


def cut_pair(one, two, room: int) -> bool:
    """Cuts the longer of the two until both fit. True when something was cut."""
    first, second = len(one.ids), 0 if two is None else len(two.ids)
    if first + second <= room:
        return False
    if two is None:
        one.truncate(room)
        return True
    shorter = min(first, second)
    keep_shorter = min(shorter, room // 2)
    keep_longer = room - keep_shorter
    one.truncate(keep_longer if first > second else keep_shorter)
    two.truncate(keep_shorter if first > second else keep_longer)
    return True


def _number_scorer(gold: np.ndarray, found: np.ndarray) -> Scorer:
    places = regression.order(gold), regression.order(found)

    def score(chosen: np.ndarray | None = None) -> dict[str, float]:
        some = slice(None) if chosen is None else chosen
        a, b = gold[some], found[some]
        return {
            "pearson": regression.pearson(a, b),
            "spearman": regression.pearson(*(regression.ranks(each[some]) for each in places)),
            "mean_squared_error": regression.mean_squared_error(a, b),
        }

    return score


def _class_scorer(gold: list[str], found: list[str], measures: tuple[str, ...], positive: str | None) -> Scorer:
    labels, gold_N, found_N = measured.numbered(gold, found)
    counted = labels.index(positive) if positive in labels else None

    def score(chosen: np.ndarray | None = None) -> dict[str, float]:
        some = slice(None) if chosen is None else chosen
        counts = measured.class_counts(gold_N[some], found_N[some], len(labels))
        computed = {
            "accuracy": counts.accuracy,
            "f1": lambda: 0.0 if counted is None else counts.f1(counted),
            "macro_f1": counts.macro_f1,
            "matthews": counts.matthews,
        }
        return {name: computed[name]() for name in measures}

    return score


def _multi_scorer(gold: list[tuple], found: list[tuple], labels: tuple[str, ...]) -> Scorer:
    # Labels that the model does not know are missed by it.
    labels = (*labels, *sorted({label for each in gold for label in each} - set(labels)))
    counts = measured.multi_label_counts(gold, found, labels)

    def score(chosen: np.ndarray | None = None) -> dict[str, float]:
        if chosen is None:
            return measured.multi_label_scores(counts.sum(0), len(counts))
        times_drawn = np.bincount(chosen, minlength=len(counts)).astype(float)
        return measured.multi_label_scores(times_drawn @ counts, len(chosen))

    return score
