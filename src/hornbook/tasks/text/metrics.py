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

from hornbook.metrics.generation import ROUGE_NAMES, best_rouge, bleu, bleu_counts, perplexity
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
    extra: dict[str, Any] = field(default_factory=dict)  # further values to record in the predictions


Rows = Callable[[Sequence[TextAnswer]], np.ndarray]


@dataclass(frozen=True)
class Metric:
    needs: Needs
    rows: Rows
    description: str  # for reports
    score: Callable[[np.ndarray, int], float]  # from the sum of the rows and their number
    is_share: bool = True
    higher_is_better: bool = True


def _mean(needs: Needs, score: Callable[[TextAnswer], float], description: str) -> Metric:
    """The mean over the examples of the score of each reply."""
    return Metric(
        needs,
        lambda replies: np.array([[float(score(reply))] for reply in replies]),
        description,
        lambda sums, num: float(100 * sums[0] / num),
    )


def _by(rules: Rules, index: int) -> Callable[[TextAnswer], float]:
    return lambda reply: rules.score(reply.text, reply.answers)[index]


def _is_right_word(reply: TextAnswer) -> bool:
    return reply.text in {answer.strip(STRIPPED) for answer in reply.answers}


def _rouge(name: str) -> Metric:
    description = f"ROUGE-{name[-1]}, F1, without stemming (the definition of rouge-score)"
    return _mean("text", lambda reply: best_rouge(reply.text, reply.answers)[name], description)


def _log_probability(replies: Sequence[TextAnswer]) -> np.ndarray:
    return np.array([[math.fsum(reply.log_probabilities)] for reply in replies])


def _bleu_rows(replies: Sequence[TextAnswer]) -> np.ndarray:
    return bleu_counts([reply.text for reply in replies], [reply.answers for reply in replies])


METRICS: dict[str, Metric] = {
    "accuracy": _mean("choice", lambda reply: reply.text in reply.answers, "the likeliest choice is right"),
    "exact": _mean("text", _by(SQUAD_1, 0), "equal to an answer, ignoring articles, punctuation and case (SQuAD)"),
    "f1": _mean("text", _by(SQUAD_1, 1), "word F1 with the best-matching answer (SQuAD)"),
    "coqa_f1": _mean("text", _by(COQA, 1), "F1 by CoQA's script, leaving out each annotator's answer in turn"),
    "coqa_exact": _mean("text", _by(COQA, 0), "exact match by CoQA's script"),
    "word": _mean("text", _is_right_word, "the generated word is the right one"),
    **{name: _rouge(name) for name in ROUGE_NAMES},
    "bleu": Metric("text", _bleu_rows, "corpus BLEU by sacrebleu", lambda sums, num: bleu(sums), is_share=False),
    "greedy": _mean(
        "likelihood", lambda reply: all(reply.is_greedy), "every token of the right answer is the likeliest"
    ),
    "last_token": _mean(
        "likelihood", lambda reply: reply.is_greedy[-1], "the last token of the right answer is the likeliest"
    ),
    "perplexity": Metric(
        "likelihood",
        _log_probability,
        "exp of the mean negative log-probability of the whole right answer",
        lambda sums, num: perplexity(float(sums[0]), num),
        is_share=False,
        higher_is_better=False,
    ),
}
