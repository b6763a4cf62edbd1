"""Labelled tasks: reading files, encoding examples, task heads, decoding and scoring."""
