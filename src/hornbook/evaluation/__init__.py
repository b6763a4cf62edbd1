"""Judging models: baselines and probes, label curves, prompting, and the adapter for lm-evaluation-harness."""
