"""Reasoning over a knowledge graph in multiple choice (`--reason kagnet`): questions and answers are grounded in the
graph, and their schema graphs become streams of the batch. The head is in `models/kagnet.py`."""
