"""Runs that train: pre-training, fine-tuning and distillation, each from its settings to a finished folder. The loop
itself is in `train`, locks and resuming are in `lifecycle`."""
