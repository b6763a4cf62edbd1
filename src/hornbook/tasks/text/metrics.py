"""The metrics of a task as text. Each computes a row of additive statistics per example, so that the score of any
sample of examples follows from the sum of its rows.

All are in percent except BLEU, which is in BLEU points, and perplexity.
"""

import math
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from hornbook.metrics.bleu import bleu, bleu_counts
from hornbook.metrics.rouge import NAMES, best_rouge
from hornbook.metrics.spans import COQA, SQUAD_1, Rules

STRIPPED = string.punctuation + string.whitespace + "“”‘’–—…"  # stripped from words
Needs = Literal["choice", "text", "likelihood"]


@dataclass(frozen=True)
class TextAnswer:
    """The answer to one question; fields that the metrics do not need are empty."""

    answers: tuple[str, ...]  # all right answers
    text: str = ""  # the choice, or the generated text
    log_probabilities: tuple[float, ...] = ()  # of the tokens of the right answer
    is_greedy: tuple[bool, ...] = ()  # whether each of them is the likeliest token
    about: dict[str, Any] = field(default_factory=dict)  # further values to record in the predictions


Rows = Callable[[Sequence[TextAnswer]], np.ndarray]


@dataclass(frozen=True)
class Metric:
    needs: Needs
    rows: Rows
    description: str  # for reports
    score: Callable[[np.ndarray, int], float]  # from the sum of the rows and their number
    is_share: bool = True
    higher_is_better: bool = True


def _percent(sums: np.ndarray, num: int) -> float:
    return float(100 * sums[0] / num)


def _mean(needs: Needs, of_one: Callable[[TextAnswer], float], description: str) -> Metric:
    return Metric(needs, lambda found: np.array([[float(of_one(each))] for each in found]), description, _percent)


def _by(rules: Rules, index: int) -> Callable[[TextAnswer], float]:
    return lambda found: rules.score(found.text, found.answers)[index]


def _is_the_word(found: TextAnswer) -> bool:
    return found.text in {answer.strip(STRIPPED) for answer in found.answers}


def _rouge(name: str, description: str) -> Metric:
    return _mean("text", lambda found: best_rouge(found.text, found.answers)[name], description)


def _log_probability(found: Sequence[TextAnswer]) -> np.ndarray:
    return np.array([[math.fsum(each.log_probabilities)] for each in found])


def _perplexity(sums: np.ndarray, num: int) -> float:
    exponent = -float(sums[0]) / num
    return math.exp(exponent) if exponent < 700 else math.inf


def _bleu_rows(found: Sequence[TextAnswer]) -> np.ndarray:
    return bleu_counts([each.text for each in found], [each.answers for each in found])


METRICS: dict[str, Metric] = {
    "accuracy": _mean("choice", lambda found: found.text in found.answers, "the likeliest choice is right"),
    "exact": _mean("text", _by(SQUAD_1, 0), "equal to an answer, ignoring articles, punctuation and case (SQuAD)"),
    "f1": _mean("text", _by(SQUAD_1, 1), "word F1 with the best-matching answer (SQuAD)"),
    "coqa_f1": _mean("text", _by(COQA, 1), "F1 by CoQA's script, leaving out each annotator's answer in turn"),
    "coqa_exact": _mean("text", _by(COQA, 0), "exact match by CoQA's script"),
    "word": _mean("text", _is_the_word, "the generated word is the right one"),
    **{name: _rouge(name, f"ROUGE-{name[-1]}, F1, without stemming (the definition of rouge-score)") for name in NAMES},
    "bleu": Metric("text", _bleu_rows, "corpus BLEU by sacrebleu", lambda sums, num: bleu(sums), is_share=False),
    "greedy": _mean(
        "likelihood", lambda found: all(found.is_greedy), "every token of the right answer is the likeliest"
    ),
    "last_token": _mean(
        "likelihood", lambda found: found.is_greedy[-1], "the last token of the right answer is the likeliest"
    ),
    "perplexity": Metric(
        "likelihood",
        _log_probability,
        "exp of the mean negative log-probability of the whole right answer",
        _perplexity,
        is_share=False,
        higher_is_better=False,
    ),
}
