"""Layers on ragged batches: attention, blocks, embeddings. `kernels` holds their Triton versions."""
