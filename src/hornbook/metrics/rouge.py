"""ROUGE (Lin 2004): how many words, pairs of words or words in order a text shares with a reference.

rouge("the cat sat", "the cat ate")["rouge1"]     # 0.667

The definition is that of the `rouge-score` package without its stemmer: lower case, words of a-z and 0-9, F1 of the
n-grams that both have, counted as often as the rarer side has them; `rougeL` is the longest common subsequence of the
two whole texts, whatever their sentences. Published figures of the original script often stem, and then are higher.
"""

import re
from collections import Counter
from collections.abc import Sequence

WORDS = re.compile(r"[a-z0-9]+")
NAMES = ("rouge1", "rouge2", "rougeL")


def rouge(text: str, reference: str) -> dict[str, float]:
    """`rouge1`, `rouge2` and `rougeL`, as fractions."""
    ours, gold = (WORDS.findall(each.lower()) for each in (text, reference))
    return {"rouge1": _shared(ours, gold, 1), "rouge2": _shared(ours, gold, 2), "rougeL": _in_order(ours, gold)}


def best_rouge(text: str, references: Sequence[str]) -> dict[str, float]:
    """Of several references, the one that each score is highest with."""
    found = [rouge(text, reference) for reference in references]
    return {name: max(each[name] for each in found) for name in NAMES}


def _shared(ours: list[str], gold: list[str], length: int) -> float:
    ours_counted, gold_counted = (
        Counter(zip(*(words[start:] for start in range(length)), strict=False)) for words in (ours, gold)
    )
    return _f1((ours_counted & gold_counted).total(), ours_counted.total(), gold_counted.total())


def _in_order(ours: list[str], gold: list[str]) -> float:
    """By a row of the table of longest common subsequences at a time."""
    row = [0] * (len(gold) + 1)
    for word in ours:
        before = 0  # what the row above has to the left
        for place, other in enumerate(gold, 1):
            above = row[place]
            row[place] = before + 1 if word == other else max(above, row[place - 1])
            before = above
    return _f1(row[-1], len(ours), len(gold))


def _f1(num_shared: int, num_ours: int, num_gold: int) -> float:
    return 2 * num_shared / (num_ours + num_gold) if num_shared else 0.0
