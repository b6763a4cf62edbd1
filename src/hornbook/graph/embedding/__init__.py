"""Vectors of a graph's entities and relations: TransE, DistMult and RotatE, their training and their filtered ranks."""
