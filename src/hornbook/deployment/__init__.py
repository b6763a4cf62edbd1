"""Deployment: exporting models to ONNX, comparing models by size, speed and score, and uploading them."""
