"""The training loop: steps, optimizers, schedules, checkpoints, rollback and device choice. Knows no task."""
