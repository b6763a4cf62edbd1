"""Pre-training: combines a preset, corpora, an objective and the training loop into one run folder."""
