"""One file per family: what is unusual about it, its config, its model and its names in Hugging Face's format."""
