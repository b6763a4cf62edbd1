"""ROUGE (Lin 2004): F1 of the unigrams, bigrams and longest common subsequence that a text shares with a reference.

rouge("the cat sat", "the cat ate")["rouge1"]     # 0.667

The definition is that of the `rouge-score` package without its stemmer: lower case, words of a-z and 0-9, F1 of the
common n-grams with clipped counts; `rougeL` is the longest common subsequence of the two whole texts, without splitting
into sentences. Published results of the original script often use stemming, which gives higher scores.
"""

import re
from collections import Counter
from collections.abc import Sequence

WORDS = re.compile(r"[a-z0-9]+")
NAMES = ("rouge1", "rouge2", "rougeL")


def rouge(text: str, reference: str) -> dict[str, float]:
    """`rouge1`, `rouge2` and `rougeL`, as fractions."""
    words, gold = (WORDS.findall(each.lower()) for each in (text, reference))
    return {"rouge1": _ngram_f1(words, gold, 1), "rouge2": _ngram_f1(words, gold, 2), "rougeL": _lcs_f1(words, gold)}


def best_rouge(text: str, references: Sequence[str]) -> dict[str, float]:
    """Each score with the reference that gives the highest value."""
    scores = [rouge(text, reference) for reference in references]
    return {name: max(each[name] for each in scores) for name in NAMES}


def _ngram_f1(words: list[str], gold: list[str], length: int) -> float:
    text_counts, gold_counts = (
        Counter(zip(*(each[start:] for start in range(length)), strict=False)) for each in (words, gold)
    )
    return _f1((text_counts & gold_counts).total(), text_counts.total(), gold_counts.total())


def _lcs_f1(words: list[str], gold: list[str]) -> float:
    """F1 of the longest common subsequence, by dynamic programming over one row of the table at a time."""
    row = [0] * (len(gold) + 1)
    for word in words:
        diagonal = 0  # of the row above, one column to the left
        for column, other in enumerate(gold, 1):
            above = row[column]
            row[column] = diagonal + 1 if word == other else max(above, row[column - 1])
            diagonal = above
    return _f1(row[-1], len(words), len(gold))


def _f1(num_shared: int, num_text: int, num_gold: int) -> float:
    return 2 * num_shared / (num_text + num_gold) if num_shared else 0.0
