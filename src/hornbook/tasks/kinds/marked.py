"""Tasks on marked mentions (Zhang et al. 2019): special tokens mark the mentions in the text, and the head reads
`[CLS]`. Any encoder can learn them; ERNIE also reads the entities that the text mentions.

entity-typing     the types of a mention, any number of them, by sigmoid; `[ENT]` marks the mention
relation          the relation between two mentions, by softmax; `[HD]` marks its head and `[TL]` its tail
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hornbook.data.tokenizing import mention_tokens
from hornbook.metrics import classification as class_metrics
from hornbook.tasks.encoded import ALL, EncodedExamples, Scorer
from hornbook.tasks.kinds.classification import Classification, ClassPrediction, MultiLabel
from hornbook.tasks.kinds.sequence import as_encoded_examples
from hornbook.tasks.label_hints import capitals_hint, missing_hint
from hornbook.tasks.reading.marked import MarkedLayout, split_marks
from hornbook.tasks.reading.reader import Reader
from hornbook.tasks.reading.table_files import TABLE_SUFFIXES
from hornbook.tasks.records import MarkedExample
from hornbook.tasks.task import RegisteredTask

if TYPE_CHECKING:
    from hornbook.data.tokenizing import EntityLinkerProtocol
    from hornbook.text.tokenizer import Tokenizer

MAX_SHOWN = 20  # types of a mention whose probabilities are written


class Marked:
    """Mixed into a kind whose head reads `[CLS]`. `marks`: the special token around each of the mentions."""

    marks: ClassVar[tuple[str, ...]]
    example = MarkedExample
    has_baselines = False

    @classmethod
    def read_file(cls, path: Path, registered: RegisteredTask, reader: Reader) -> list[MarkedExample] | None:
        layout = registered.layout
        if path.suffix.lower() not in TABLE_SUFFIXES and not layout.is_semeval(path):
            return None
        return layout.read_inputs(path, reader)

    @classmethod
    def from_line(cls, key: str, line: str, has_tabs: bool) -> MarkedExample:
        return cls.from_text(key, line)

    @classmethod
    def from_text(cls, key: str, text: str) -> MarkedExample:
        return MarkedExample(key, *split_marks(text, cls.marks))

    @classmethod
    def from_list(cls, key: str, items: Sequence[Any]) -> MarkedExample | None:
        return None

    def encode(self, examples: Sequence[MarkedExample], tokenizer: "Tokenizer", max_length: int) -> EncodedExamples:
        if self.head_config.pair_encoding != "joint":
            raise ValueError("task.pair_encoding= is for pairs of texts: leave it out")
        texts, mentions = zip(*(each.marked(self.marks) for each in examples), strict=True) if examples else ((), ())
        mark_ids = [tokenizer.id(mark) for mark in self.marks]
        capacity, num_truncated, encodings = max_length - tokenizer.num_special(False), 0, []
        for encoding in tokenizer.encode_batch(list(texts)):
            num_truncated += _cut(encoding, mark_ids, capacity)
            encodings.append(tokenizer.with_special_tokens(encoding))
        targets = self.targets(examples) if all(each.label is not None for each in examples) else None
        encoded = as_encoded_examples(encodings, num_truncated, 1, targets)
        if not any(each.entities for each in examples):
            return encoded
        entities = [mention_tokens(np.array(encodings[i].offsets), each) for i, each in enumerate(mentions)]
        return replace(encoded, entities=entities)


def _cut(encoding, mark_ids: list[int | None], capacity: int) -> bool:
    """Truncates a text that is too long on both sides, so that its marks are in the middle. Returns whether it was."""
    length = len(encoding.ids)
    if length <= capacity:
        return False
    marks = [position for position, token in enumerate(encoding.ids) if token in mark_ids] or [0]
    first, last = marks[0], marks[-1]
    start = first if last - first >= capacity else (first + last + 1 - capacity) // 2
    start = max(0, min(start, length - capacity))
    encoding.truncate(length - start, direction="left")
    encoding.truncate(capacity)
    return True


def with_entities(
    examples: Sequence[MarkedExample], linker: "EntityLinkerProtocol", has_vector: np.ndarray
) -> list[MarkedExample]:
    """The examples with the entities of a graph that their texts mention: those that the file gives, else those that
    are found. Entities without a vector are left out."""
    mentions_by_text = linker.link([each.text for each in examples], [each.given for each in examples])
    return [
        replace(each, entities=tuple(mention for mention in mentions if has_vector[mention[2]]))
        for each, mentions in zip(examples, mentions_by_text, strict=True)
    ]


@dataclass(frozen=True)
class Relation(Marked, Classification):
    """`macro_f1` is that of SemEval-2010 task 8: over relations, in the right direction, without `Other`."""

    kind = "relation"
    description = "the relation between two marked mentions"
    accepted_inputs = (
        "a text with [HD] around the first and [TL] around the second mention, or a dictionary with tokens, h and t"
    )
    marks = ("[HD]", "[TL]")
    custom_layout = MarkedLayout(marks, has_several=False)
    default_metrics = ("macro_f1", "accuracy")
    other_metrics = ()

    def scorer(self, examples: Sequence[MarkedExample], predictions: list[ClassPrediction]) -> Scorer:
        if "matthews" in self.metrics:
            return Classification.scorer(self, examples, predictions)
        gold, predicted = ([each.label for each in side] for side in (examples, predictions))
        _, counts_NR2 = class_metrics.relation_counts(gold, predicted)
        is_right_N = np.array(gold) == np.array(predicted)

        def score(chosen: np.ndarray | slice = ALL) -> dict[str, float]:
            scores = {
                "macro_f1": class_metrics.relation_f1(counts_NR2[chosen].sum(0)),
                "accuracy": float(is_right_N[chosen].mean()),
            }
            return {name: scores[name] for name in self.metrics}

        return score


@dataclass(frozen=True)
class EntityTyping(Marked, MultiLabel):
    kind = "entity-typing"
    description = "the types of a marked mention"
    accepted_inputs = "a text with [ENT] before and after the mention, or a dictionary with text, start and end"
    marks = ("[ENT]",)
    custom_layout = MarkedLayout(marks, has_several=True)
    label_hints = (missing_hint, capitals_hint)  # classification does not read marks
    default_metrics = ("loose_micro_f1", "loose_macro_f1", "exact_match")

    def prediction_for(self, probabilities: dict[str, float]) -> ClassPrediction:
        """Every mention has a type: if none is probable, the most probable is predicted (as Choi et al. 2018)."""
        prediction = super().prediction_for(probabilities)
        if prediction.label:
            return prediction
        return ClassPrediction((max(probabilities, key=probabilities.get),), probabilities)

    def describe(self, example: MarkedExample, prediction: ClassPrediction) -> dict[str, Any]:
        """With the likeliest types only: there may be thousands."""
        likeliest = sorted(prediction.probabilities.items(), key=lambda each: -each[1])[:MAX_SHOWN]
        return super().describe(example, prediction) | {"probabilities": dict(likeliest)}

    def scorer(self, examples: Sequence[MarkedExample], predictions: list[ClassPrediction]) -> Scorer:
        counts_N3 = class_metrics.loose_counts(*([each.label for each in side] for side in (examples, predictions)))
        return lambda chosen=ALL: class_metrics.loose_scores(counts_N3[chosen])
