"""The unigram baseline: the loss of predicting tokens by their frequency, which any useful model must beat."""

import numpy as np

from hornbook.batch import Batch
from hornbook.train.objective import Objective
from hornbook.train.randomness import seed_of

TOKEN_TERMS = ("mlm", "clm")  # terms whose targets are tokens


def unigram_baseline(objective: Objective, held_out: list[Batch], token_counts: np.ndarray) -> dict[str, float]:
    """Loss and accuracy on the validation targets if every token is predicted with its relative frequency.

    Returns `{"mlm": ..., "mlm_accuracy": ...}`, the same for `clm`, or both: loss = - mean log (count + 1) / (total +
    vocabulary); the accuracy is that of always predicting the most frequent token.
    """
    counts = token_counts.astype(np.float64) + 1
    log_probabilities = np.log(counts / counts.sum())
    most_frequent = int(token_counts.argmax())
    sums: dict[str, np.ndarray] = {}  # of losses, hits and weights
    for i, batch in enumerate(held_out):
        for term, targets in objective.prepare(batch, seed_of("validation", i)).targets.items():
            if term in TOKEN_TERMS:
                values, weights = targets.values_K.cpu().numpy(), targets.weights_K.cpu().numpy()
                rows = np.stack([-log_probabilities[values], values == most_frequent, np.ones(len(values))])
                sums[term] = sums.get(term, 0.0) + rows @ weights.astype(np.float64)
    metrics = {}
    for term, (loss, hits, total) in sums.items():
        metrics |= {term: float(loss / max(total, 1)), f"{term}_accuracy": float(hits / max(total, 1))}
    return metrics
