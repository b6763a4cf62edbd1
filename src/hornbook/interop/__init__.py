"""Reading and writing folders in Hugging Face's format, the hub, and ONNX."""
