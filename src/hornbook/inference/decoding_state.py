"""Incremental decoding with a GPT: a key-value cache for several texts, and steps of one token per text.

decoding = DecodingState(model, num_sequences=3, capacity=200)
logits_NV = decoding.prefill([first_ids, second_ids, third_ids])     # the whole prompts, packed
logits_NV = decoding.step(chosen_N)                               # then one token of each

Shapes: T tokens, N sequences, V vocabulary, D width.
On CUDA a step is captured once as a CUDA graph, as its shapes never change. On a CPU a step reads only the filled slots
of the cache, and a single sequence uses specialised blocks (`nn/single_token.py`).
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from hornbook.batch import Batch, Tokens, pack
from hornbook.devices import current_gpu, refuse_beyond_memory, warm_up_on_side_stream
from hornbook.models.gpt import Gpt
from hornbook.nn.kv_cache import CachePositions, KeyValueCache, cache_dtype
from hornbook.nn.single_token import SingleTokenBlock, runs_on_numpy

NUM_WARM_UPS = 2  # steps before the CUDA graph is captured


class DecodingState:
    """The model with the cached keys and values of N sequences, `capacity` slots (tokens) each."""

    def __init__(self, model: Gpt, num_sequences: int, capacity: int):
        config = model.config
        weight = model.embeddings.tokens.weight
        shape = (num_sequences, config.num_heads, capacity, config.width // config.num_heads)
        self.model = model
        self.capacity = capacity
        refuse_beyond_memory(
            2.0 * config.num_layers * math.prod(shape) * weight.element_size(),
            weight.device,
            f"the keys and values of {num_sequences:,} texts of {capacity:,} tokens need",
            "generate fewer texts, use fewer beams, or lower max_new_tokens",
        )
        dtype = weight.dtype if model.clm.int8 is None else cache_dtype(weight)
        self.layers = [KeyValueCache(shape, weight, dtype) for _ in model.blocks]
        is_on_numpy = runs_on_numpy(weight) and not model.training
        pairs = zip(model.blocks, self.layers, strict=True)
        self.single_blocks = [SingleTokenBlock(*pair) for pair in pairs] if is_on_numpy else None
        self.device = weight.device
        self.num_filled = 0  # length of the longest sequence, counted on the host
        self.lengths_N = torch.zeros(num_sequences, dtype=torch.int64, device=self.device)
        self.rows_N = torch.arange(num_sequences, device=self.device)
        self.ids_N = torch.zeros_like(self.rows_N)  # fixed address: the captured step reads it
        self.offsets = torch.arange(num_sequences + 1, dtype=torch.int32, device=self.device)
        self.offsets_host = np.arange(num_sequences + 1)
        self.cuda_graph: torch.cuda.CUDAGraph | None = None
        self.logits_NV: Tensor | None = None

    @torch.inference_mode()
    def prefill(self, sequences: Sequence[Sequence[int]], rows: Sequence[int] | None = None) -> Tensor:
        """Encodes sequences into the first rows of the cache, or into `rows`, replacing their contents; returns the
        logits of the next token of each, N x V."""
        batch = pack(sequences).to(self.device)
        lengths_N = (batch.offsets[1:] - batch.offsets[:-1]).long()
        rows_N = self.rows_N[: len(sequences)] if rows is None else torch.tensor(rows, device=self.device)
        rows_T = torch.repeat_interleave(rows_N, lengths_N, output_size=batch.num_tokens)
        x_TD = self._forward(batch, CachePositions(rows_T, batch.positions_T, is_step=False, num_seen=0))
        self.lengths_N[rows_N] = lengths_N
        self.num_filled = max(self.num_filled, batch.max_length)
        return self.model.next_token_logits(x_TD[batch.offsets[1:].long() - 1])

    @torch.inference_mode()
    def step(self, ids_N: Tensor) -> Tensor:
        """Appends one token to each sequence and returns the logits of the next, N x V. A sequence whose slots are full
        overwrites its last slot, and its logits are meaningless. The next step may overwrite the returned tensor. On a
        CPU, fewer tokens than sequences are those of the first sequences; the others are unchanged."""
        self.num_filled = min(self.num_filled + 1, self.capacity)
        if self.single_blocks is not None and len(ids_N) == 1:
            return self._single_step(ids_N)
        if self.device.type != "cuda":
            positions = {min(length, self.capacity - 1) for length in self.lengths_N[: len(ids_N)].tolist()}
            common = min(positions) if len(positions) == 1 else None
            return self._step(ids_N, max(positions) + 1, common)
        assert len(ids_N) == len(self.rows_N)
        self.ids_N.copy_(ids_N)
        if self.cuda_graph is None:
            with current_gpu(self.device):
                self._capture()
        self.cuda_graph.replay()
        return self.logits_NV

    def reorder(self, rows_N: Tensor) -> None:
        """Replaces sequence i by a copy of sequence `rows_N[i]`."""
        self.lengths_N.copy_(self.lengths_N[rows_N])
        for layer in self.layers:
            layer.reorder(rows_N, self.num_filled)

    def move(self, source: int, target: int) -> None:
        """Replaces sequence `target` by a copy of sequence `source`."""
        num_seen = min(int(self.lengths_N[source]), self.capacity)
        self.lengths_N[target] = self.lengths_N[source]
        for layer in self.layers:
            layer.move(source, target, num_seen)

    def _step(self, ids_N: Tensor, num_seen: int, common: int | None = None) -> Tensor:
        num = len(ids_N)
        lengths_N, offsets_host = self.lengths_N[:num], self.offsets_host[: num + 1]
        positions_N = lengths_N.clamp(max=self.capacity - 1)
        # The segments are unused: a GPT has none.
        tokens = Tokens(ids_N, positions_N, ids_N, ids_N, offsets=self.offsets[: num + 1], offsets_host=offsets_host)
        batch = Batch({"tokens": tokens}, max_length=1)
        x_ND = self._forward(batch, CachePositions(self.rows_N[:num], positions_N, True, num_seen, common))
        lengths_N += 1
        return self.model.next_token_logits(x_ND)

    def _single_step(self, ids_1: Tensor) -> Tensor:
        position = min(self.lengths_N[0].item(), self.capacity - 1)
        position_1 = torch.tensor([position])
        self._set(CachePositions(self.rows_N[:1], position_1, True, position + 1, position))
        x_D = self.model.embeddings(ids_1, position_1, ids_1).numpy()[0]
        for block in self.single_blocks:
            x_D = block(x_D)
        self.lengths_N[0] += 1
        x_1D = torch.from_numpy(x_D)[None]
        return self.model.next_token_logits(x_1D if self.model.norm is None else self.model.norm(x_1D))

    def _capture(self) -> None:
        """Captures the CUDA graph of a step. Warm-up steps load every kernel; each writes the same values to the same
        slots."""
        lengths_N = self.lengths_N.clone()
        with warm_up_on_side_stream():
            for _ in range(NUM_WARM_UPS):
                self._step(self.ids_N, self.capacity)
                self.lengths_N.copy_(lengths_N)
        self.cuda_graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.cuda_graph, capture_error_mode="thread_local"):
            self.logits_NV = self._step(self.ids_N, self.capacity)
        self.lengths_N.copy_(lengths_N)

    def _forward(self, batch: Batch, positions: CachePositions) -> Tensor:
        self._set(positions)
        return self.model(batch, caches=self.layers)

    def _set(self, positions: CachePositions) -> None:
        for layer in self.layers:
            layer.positions = positions
