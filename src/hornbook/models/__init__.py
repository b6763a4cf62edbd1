"""The families, one file each (what is unusual about it, its config, its model and its names in Hugging Face's format),
and what they share: the transformer, task heads, pooling, FLOPs, the registry."""
