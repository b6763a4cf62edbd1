"""Pages, pictures and summaries made from what a run left on disk. Computes nothing with a model."""
