"""BLEU (Papineni et al. 2002) computed with sacrebleu from counts per example, which can be summed and resampled.

rows = bleu_counts(["un chat dort"], [["le chat dort"]])
bleu(rows.sum(0))                     # between 0 and 100, equal to sacrebleu's corpus_bleu
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
