"""BLEU (Papineni et al. 2002) by sacrebleu, from counts that add up over examples, so that it can be resampled.

rows = bleu_counts(["un chat dort"], [["le chat dort"]])
bleu(rows.sum(0))                     # between 0 and 100, as sacrebleu's corpus_bleu of the same texts
"""

from collections.abc import Sequence

import numpy as np

ORDER = 4


def check_sacrebleu() -> None:
    try:
        import sacrebleu  # noqa: F401
    except ImportError:
        raise ValueError("BLEU needs sacrebleu, which is not installed: pip install 'hornbook[prompt]'") from None


def bleu_counts(texts: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
    """A row for each text: its length and its nearest reference's, n-grams that are right, n-grams that there are."""
    check_sacrebleu()
    from sacrebleu.metrics import BLEU

    metric = BLEU(effective_order=True)
    found = [metric.sentence_score(text, list(gold)) for text, gold in zip(texts, references, strict=True)]
    rows = [[each.sys_len, each.ref_len, *each.counts, *each.totals] for each in found]
    return np.array(rows, float).reshape(len(rows), 2 + 2 * ORDER)


def bleu(sums: np.ndarray) -> float:
    """Of the summed rows of `bleu_counts`, with sacrebleu's usual smoothing."""
    from sacrebleu.metrics import BLEU

    ours, gold, *counts = (round(number) for number in sums)
    return BLEU.compute_bleu(counts[:ORDER], counts[ORDER:], ours, gold, smooth_method="exp").score


def signature() -> str:
    """How it was computed, in sacrebleu's words."""
    from sacrebleu.metrics import BLEU

    metric = BLEU()
    metric.corpus_score(["a"], [["a"]])
    return str(metric.get_signature())
