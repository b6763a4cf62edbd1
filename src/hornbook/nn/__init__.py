"""Layers on ragged batches: attention, blocks, embeddings, heads. `kernels` holds their Triton versions."""
