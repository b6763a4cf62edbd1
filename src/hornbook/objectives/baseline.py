"""The unigram baseline: the loss of predicting tokens by their frequency, which any useful model must beat."""

import numpy as np

from hornbook.batch import Batch
from hornbook.train.objective import Objective
from hornbook.train.randomness import seed_of

TOKEN_TERMS = ("mlm", "clm")  # terms whose targets are tokens


def frequency_baseline(objective: Objective, held_out: list[Batch], token_counts: np.ndarray) -> dict[str, float]:
    """Loss and accuracy on the validation targets if every token is predicted with its relative frequency.

    Returns `{"mlm": ..., "mlm_accuracy": ...}`, or the same for `clm`: loss = - mean log (count + 1) / (total +
    vocabulary); the accuracy is that of always predicting the most frequent token.
    """
    counts = token_counts.astype(np.float64) + 1
    log_probabilities = np.log(counts / counts.sum())
    most_frequent = int(token_counts.argmax())
    loss = hits = total = 0.0
    for i, batch in enumerate(held_out):
        targets_by_term = objective.prepare(batch, seed_of("validation", i)).targets
        term = next(name for name in TOKEN_TERMS if name in targets_by_term)
        targets = targets_by_term[term]
        values, weights = targets.values_K.cpu().numpy(), targets.weights_K.cpu().numpy()
        loss -= float((log_probabilities[values] * weights).sum())
        hits += float(((values == most_frequent) * weights).sum())
        total += float(weights.sum())
    return {term: loss / total, f"{term}_accuracy": hits / total}
