"""Metrics of generated text, BLEU and ROUGE, and perplexity.

BLEU (Papineni et al. 2002) is computed with sacrebleu from counts per example, which can be summed and resampled:

rows = bleu_counts(["un chat dort"], [["le chat dort"]])
bleu(rows.sum(0))                     # between 0 and 100, equal to sacrebleu's corpus_bleu

ROUGE (Lin 2004) is the F1 of the unigrams, bigrams and longest common subsequence that a text shares with a reference:

rouge("the cat sat", "the cat ate")["rouge1"]     # 0.667

Its definition is that of the `rouge-score` package without its stemmer: lower case, words of a-z and 0-9, F1 of the
common n-grams with clipped counts; `rougeL` is the longest common subsequence of the two whole texts, without splitting
into sentences. Published results of the original script often use stemming, which gives higher scores.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from hornbook.extras import import_extra
from hornbook.metrics.classification import f1

ORDER = 4  # of the longest n-grams of BLEU
WORDS = re.compile(r"[a-z0-9]+")
ROUGE_NAMES = ("rouge1", "rouge2", "rougeL")


def perplexity(log_probability: float, num_units: int) -> float:
    """exp of the mean negative log-probability of a unit, such as a token; infinity where that overflows.

    >>> round(perplexity(3 * math.log(0.25), 3), 6), perplexity(-1e6, 1)
    (4.0, inf)
    """
    exponent = -log_probability / num_units
    return math.exp(exponent) if exponent < 700 else math.inf


def check_sacrebleu() -> None:
    import_extra("sacrebleu", "prompt", "BLEU needs")


def bleu_counts(texts: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
    """One row per text: its length, the length of the closest reference, matched n-grams and total n-grams of each
    order 1 to 4; N x (2 + 2 * ORDER)."""
    check_sacrebleu()
    from sacrebleu.metrics import BLEU

    metric = BLEU(effective_order=True)
    scores = [metric.sentence_score(text, list(gold)) for text, gold in zip(texts, references, strict=True)]
    rows = [[score.sys_len, score.ref_len, *score.counts, *score.totals] for score in scores]
    return np.array(rows, float).reshape(len(rows), 2 + 2 * ORDER)


def bleu(sums: np.ndarray) -> float:
    """Corpus BLEU of the summed rows of `bleu_counts`, with sacrebleu's default smoothing (exp)."""
    from sacrebleu.metrics import BLEU

    hypothesis_length, reference_length, *counts = (round(number) for number in sums)
    return BLEU.compute_bleu(
        counts[:ORDER], counts[ORDER:], hypothesis_length, reference_length, smooth_method="exp"
    ).score


def signature() -> str:
    """The sacrebleu signature of these settings, to report with the score."""
    from sacrebleu.metrics import BLEU

    metric = BLEU()
    metric.corpus_score(["a"], [["a"]])
    return str(metric.get_signature())


def rouge(text: str, reference: str) -> dict[str, float]:
    """`rouge1`, `rouge2` and `rougeL`, as fractions."""
    words, gold = (WORDS.findall(each.lower()) for each in (text, reference))
    return {"rouge1": _ngram_f1(words, gold, 1), "rouge2": _ngram_f1(words, gold, 2), "rougeL": _lcs_f1(words, gold)}


def best_rouge(text: str, references: Sequence[str]) -> dict[str, float]:
    """Each score with the reference that gives the highest value."""
    scores = [rouge(text, reference) for reference in references]
    return {name: max(each[name] for each in scores) for name in ROUGE_NAMES}


def _ngram_f1(words: list[str], gold: list[str], length: int) -> float:
    text_counts, gold_counts = (
        Counter(zip(*(each[start:] for start in range(length)), strict=False)) for each in (words, gold)
    )
    return f1((text_counts & gold_counts).total(), text_counts.total(), gold_counts.total())


def _lcs_f1(words: list[str], gold: list[str]) -> float:
    """F1 of the longest common subsequence, by dynamic programming over one row of the table at a time."""
    row = [0] * (len(gold) + 1)
    for word in words:
        diagonal = 0  # of the row above, one column to the left
        for column, other in enumerate(gold, 1):
            above = row[column]
            row[column] = diagonal + 1 if word == other else max(above, row[column - 1])
            diagonal = above
    return f1(row[-1], len(words), len(gold))
