"""From files of raw text to training sequences: readers, deduplication, corpora of token shards, examples and batches.
Knows no model."""
