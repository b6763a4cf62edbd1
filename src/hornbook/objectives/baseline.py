"""What guessing by word frequency gets: the loss that any model has to beat before it has learned anything."""

import numpy as np
import torch

from hornbook.batch import Batch
from hornbook.train.objective import Objective
from hornbook.train.randomness import seed_of

PREDICTED = ("mlm", "clm")  # terms whose targets are tokens


def frequency_baseline(objective: Objective, held_out: list[Batch], token_counts: np.ndarray) -> dict[str, float]:
    """Loss and accuracy on the very targets of validation when every token is guessed in proportion to its count.

    Returns `{"mlm": ..., "mlm_accuracy": ...}`, or the same of `clm`: loss = - mean log (count + 1) / (total +
    vocabulary); the accuracy is that of always naming the most frequent token.
    """
    counts = token_counts.astype(np.float64) + 1
    log_share = np.log(counts / counts.sum())
    most_frequent = int(token_counts.argmax())
    generator = torch.Generator(held_out[0].ids_T.device)
    loss = hits = total = 0.0
    for i, batch in enumerate(held_out):
        generator.manual_seed(seed_of("validation", i))
        step_inputs = objective.prepare(batch, generator).targets
        term = next(name for name in PREDICTED if name in step_inputs)
        targets = step_inputs[term]
        values, weights = targets.values_K.cpu().numpy(), targets.weights_K.cpu().numpy()
        loss -= float((log_share[values] * weights).sum())
        hits += float(((values == most_frequent) * weights).sum())
        total += float(weights.sum())
    return {term: loss / total, f"{term}_accuracy": hits / total}
