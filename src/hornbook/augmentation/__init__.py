"""More training examples from those that there are: words replaced by others that a model or vectors find near."""
