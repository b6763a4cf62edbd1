"""Experiments: several ways of pre-training beside each other, from a short file to a page with verdicts."""
