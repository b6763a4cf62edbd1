"""Relation classification: the relation between two mentions, by softmax over `[CLS]`; `[HD]` marks the head of the
relation and `[TL]` its tail."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hornbook.metrics import classification as measured
from hornbook.tasks.features import Scorer
from hornbook.tasks.kinds.classification import Classification, ClassPrediction
from hornbook.tasks.kinds.marked import Marked
from hornbook.tasks.records import MarkedExample


@dataclass(frozen=True)
class Relation(Marked, Classification):
    """`macro_f1` is that of SemEval-2010 task 8: over relations, in the right direction, without `Other`."""

    name = "relation"
    in_words = "the relation between two marked mentions"
    takes = "a text with [HD] around the first and [TL] around the second mention, or a dictionary with tokens, h and t"
    marks = ("[HD]", "[TL]")
    default_measures = ("macro_f1", "accuracy")
    other_measures = ()

    def scorer(self, examples: Sequence[MarkedExample], predictions: list[ClassPrediction]) -> Scorer:
        gold, predicted = ([each.label for each in side] for side in (examples, predictions))
        _, counts_NR2 = measured.relation_counts(gold, predicted)
        is_right_N = np.array([right == found for right, found in zip(gold, predicted, strict=True)], float)
        others = Classification.scorer(self, examples, predictions) if "matthews" in self.measures else None

        def score(chosen: np.ndarray | None = None) -> dict[str, float]:
            if others is not None:
                return others(chosen)
            some = slice(None) if chosen is None else chosen
            found = {
                "macro_f1": measured.relation_f1(counts_NR2[some].sum(0)),
                "accuracy": float(is_right_N[some].mean()),
            }
            return {name: found[name] for name in self.measures}

        return score
