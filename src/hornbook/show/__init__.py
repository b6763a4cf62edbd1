"""Pictures of what a model reads and does: tokens, masking, training examples, attention, parameters.

Each function returns a `Picture` (`picture.py`), which the terminal, an HTML file and the page of
`hornbook serve` draw.
"""
