"""The inputs of KagNet: questions and answers grounded in a knowledge graph, and their schema graphs."""
