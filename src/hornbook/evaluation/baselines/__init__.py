"""Baselines and probes to compare a fine-tuned model with: linear models over TF-IDF, word vectors or frozen
features."""
