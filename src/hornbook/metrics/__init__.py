"""Metrics computed from predictions and labels, with bootstrap intervals. Knows no model and no file."""
