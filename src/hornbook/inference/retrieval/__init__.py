"""Semantic search: an index of embedded texts on disk, exact search in it, and the evaluation of retrieval."""
