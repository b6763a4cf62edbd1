"""Scores of retrieval, as in trec_eval and BEIR: nDCG, reciprocal rank and recall of one query's ranked results."""

from collections.abc import Mapping, Sequence

import numpy as np


def ndcg(ranked: Sequence[str], relevant: Mapping[str, float], top: int = 10) -> float:
    """Normalised discounted cumulative gain of the first `top` results: gain over log2(rank + 1), divided by that of
    the best order. `relevant`: gain by id.

    >>> round(ndcg(["a", "b"], {"b": 1}), 4)  # 1 / log2(3)
    0.6309
    """
    gains = [max(relevant.get(each, 0.0), 0.0) for each in ranked[:top]]
    best = sorted((max(gain, 0.0) for gain in relevant.values()), reverse=True)[:top]
    return _discounted(gains) / _discounted(best) if any(best) else 0.0


def _discounted(gains: Sequence[float]) -> float:
    return float(np.sum(np.array(gains, float) / np.log2(np.arange(2, len(gains) + 2))))


def reciprocal_rank(ranked: Sequence[str], relevant: Mapping[str, float], top: int = 10) -> float:
    """One over the rank of the first relevant result among the first `top`; 0 if there is none.

    >>> reciprocal_rank(["a", "b"], {"b": 1})
    0.5
    """
    return next((1 / rank for rank, each in enumerate(ranked[:top], 1) if relevant.get(each, 0) > 0), 0.0)


def recall(ranked: Sequence[str], relevant: Mapping[str, float], top: int) -> float:
    """The fraction of the relevant ids that are among the first `top` results.

    >>> recall(["a", "b"], {"b": 1, "c": 1}, 10)
    0.5
    """
    right = {each for each, gain in relevant.items() if gain > 0}
    return len(right & set(ranked[:top])) / len(right) if right else 0.0
