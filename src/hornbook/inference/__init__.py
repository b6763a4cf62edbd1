"""Using a saved model: filling in masks, scoring, generation, features and predictions for tasks, and (in `retrieval/`)
semantic search."""
