"""Semantic search: an index of embedded texts on disk, exact and approximate search in it, and its evaluation."""
