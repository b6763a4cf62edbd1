"""Reads labelled files into examples. `read.read` is the entry point; most other modules handle one file layout
each."""
