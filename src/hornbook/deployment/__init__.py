"""Deployment: exporting models to ONNX, and comparing models by size, speed and score."""
