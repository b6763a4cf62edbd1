"""Notes on the validation losses at the end of a run: above the unigram baseline, or risen since the best one."""

from collections.abc import Mapping
from pathlib import Path

from hornbook.train.job import Outcome

OVERFITTING = 0.01  # how far the last validation loss of an overfitting run is above its best one


def loss_notes(folder: Path, outcome: Outcome, unigram_baseline: Mapping[str, float]) -> list[str]:
    """Notes for the user; `unigram_baseline`: its losses and accuracies, as in run.json."""
    notes = []
    for term, baseline in unigram_baseline.items():
        last = outcome.last.get(f"validation_{term}", 0.0)
        if last > baseline and not term.endswith("accuracy"):
            notes.append(
                f"the last validation {term} loss, {last:.3f}, is above the unigram baseline ({baseline:.3f}), which "
                "predicts each token by its frequency alone: train for more minutes= or steps="
            )
    last_loss = outcome.last.get("validation_loss", 0.0)
    if outcome.best is not None and last_loss > outcome.best + OVERFITTING:
        notes.append(
            f"the validation loss was lowest at step {outcome.best_step:,}, whose weights are in {folder / 'best'}, "
            f"and has risen to {last_loss:.3f} since: the model overfits. More text, fewer steps, or a higher "
            "model.dropout or optimizer.weight_decay would help"
        )
    return notes
