"""Visualizations of what a model reads and does: tokens, masking, training examples, attention, parameters.

Each function returns a `Visualization` (`visualization.py`), which the terminal, an HTML file and the page of
`hornbook serve` draw.
"""
