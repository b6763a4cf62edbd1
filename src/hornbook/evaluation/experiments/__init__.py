"""Experiments: comparisons of pre-training methods, defined in a TOML file and reported with verdicts on claims."""
