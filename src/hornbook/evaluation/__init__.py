"""Judging models: baselines and probes, label curves, prompting, the adapter for lm-evaluation-harness, and (in
`experiments/`) comparisons of pre-training methods."""
