"""Puts a preset, corpora, an objective and the loop together into one run folder."""
