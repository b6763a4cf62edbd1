"""A GPT that goes on with several texts at once, one token of each a step.

going_on = GoingOn(model, num_sequences=3, room=200)
logits_NV = going_on.read([first_ids, second_ids, third_ids])     # the whole prompts, packed
logits_NV = going_on.step(chosen_N)                               # and then a token of each

Shapes: T tokens, N sequences, V vocabulary, D width.
On CUDA a step is captured once as a graph, for its shapes never change; on a CPU it reads no more of the room than is
filled, and a single sequence goes through the blocks in a way of its own.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from hornbook.batch import Batch, pack
from hornbook.devices import refuse_beyond_memory, warm_up_on_side_stream
from hornbook.models.gpt import Gpt
from hornbook.nn.cache import CachePositions, KeyValueCache, cache_dtype
from hornbook.nn.single import SingleToken, runs_on_numpy

NUM_WARM_UPS = 2  # before a capture


class DecodingState:
    """The model with what it has read of N sequences, each in a room of so many tokens."""

    def __init__(self, model: Gpt, num_sequences: int, room: int):
        config = model.config
        weight = model.embeddings.tokens.weight
        shape = (num_sequences, config.num_heads, room, config.width // config.num_heads)
        self.model = model
        self.room = room
        refuse_beyond_memory(
            2.0 * config.num_layers * math.prod(shape) * weight.element_size(),
            weight.device,
            f"the keys and values of {num_sequences:,} texts of {room:,} tokens need",
            "ask for fewer texts or beams, or lower max_tokens",
        )
        kind = weight.dtype if model.clm.int8 is None else cache_dtype(weight)
        self.layers = [KeyValueCache(shape, weight, kind) for _ in model.blocks]
        is_single = num_sequences == 1 and runs_on_numpy(weight) and not model.training
        pairs = zip(model.blocks, self.layers, strict=True)
        self.single_blocks = [SingleToken(*pair) for pair in pairs] if is_single else None
        self.device = weight.device
        self.num_filled = 0  # places of the longest sequence, as the host counts them
        self.lengths_N = torch.zeros(num_sequences, dtype=torch.int64, device=self.device)
        self.rows_N = torch.arange(num_sequences, device=self.device)
        self.ids_N = torch.zeros_like(self.rows_N)  # lies where a captured step reads
        self.starts = torch.arange(num_sequences + 1, dtype=torch.int32, device=self.device)
        self.starts_host = np.arange(num_sequences + 1)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.logits_NV: Tensor | None = None

    @torch.inference_mode()
    def read(self, sequences: Sequence[Sequence[int]], rows: Sequence[int] | None = None) -> Tensor:
        """Scores of the token after each of these sequences. They take the first rows, or those named; what stood
        there is forgotten."""
        ids = [np.asarray(each, np.int64) for each in sequences]
        batch = pack(ids).to(self.device)
        lengths_N = (batch.starts[1:] - batch.starts[:-1]).long()
        rows_N = self.rows_N[: len(ids)] if rows is None else torch.tensor(rows, device=self.device)
        rows_T = torch.repeat_interleave(rows_N, lengths_N, output_size=batch.num_tokens)
        x_TD = self._through(batch, CachePositions(rows_T, batch.positions_T, is_step=False, num_seen=0))
        self.lengths_N[rows_N] = lengths_N
        self.num_filled = max(self.num_filled, batch.longest)
        return self.model.next_token_logits(x_TD[batch.starts[1:].long() - 1])

    @torch.inference_mode()
    def step(self, ids_N: Tensor) -> Tensor:
        """Scores of the token after these, one for each sequence. A sequence whose room is full goes on writing over
        its last place: what comes of it means nothing. The answer lies where the next step writes its own."""
        self.num_filled = min(self.num_filled + 1, self.room)
        if self.single_blocks is not None:
            return self._single_step(ids_N)
        if self.device.type != "cuda":
            places = {min(length, self.room - 1) for length in self.lengths_N.tolist()}
            common = places.pop() if len(places) == 1 else None
            return self._step(ids_N, self.num_filled if common is None else common + 1, common)
        self.ids_N.copy_(ids_N)
        if self.graph is None:
            self._capture()
        self.graph.replay()
        return self.logits_NV

    def choose(self, rows_N: Tensor) -> None:
        """Sequence i goes on as a copy of what sequence `rows_N[i]` was."""
        self.lengths_N.copy_(self.lengths_N[rows_N])
        for layer in self.layers:
            layer.reorder(rows_N, self.num_filled)

    def _step(self, ids_N: Tensor, num_seen: int, common: int | None = None) -> Tensor:
        positions_N = self.lengths_N.clamp(max=self.room - 1)
        batch = Batch(
            ids_T=ids_N,
            positions_T=positions_N,
            segments_T=ids_N,  # a GPT has none
            word_starts_T=ids_N,
            starts=self.starts,
            starts_host=self.starts_host,
            longest=1,
        )
        x_ND = self._through(batch, CachePositions(self.rows_N, positions_N, True, num_seen, common))
        self.lengths_N += 1
        return self.model.next_token_logits(x_ND)

    def _single_step(self, ids_1: Tensor) -> Tensor:
        place = min(self.lengths_N.item(), self.room - 1)
        places_1 = torch.tensor([place])
        self._set(CachePositions(self.rows_N, places_1, True, place + 1, place))
        x_D = self.model.embeddings(ids_1, places_1, ids_1).numpy()[0]
        for block in self.single_blocks:
            x_D = block(x_D)
        self.lengths_N += 1
        x_1D = torch.from_numpy(x_D)[None]
        return self.model.next_token_logits(x_1D if self.model.norm is None else self.model.norm(x_1D))

    def _capture(self) -> None:
        """Trying it first loads every kernel; each try writes the same over the same places."""
        lengths_N = self.lengths_N.clone()
        with warm_up_on_side_stream():
            for _ in range(NUM_WARM_UPS):
                self._step(self.ids_N, self.room)
                self.lengths_N.copy_(lengths_N)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            self.logits_NV = self._step(self.ids_N, self.room)
        self.lengths_N.copy_(lengths_N)

    def _through(self, batch: Batch, places: CachePositions) -> Tensor:
        self._set(places)
        return self.model(batch, caches=self.layers)

    def _set(self, places: CachePositions) -> None:
        for layer in self.layers:
            layer.positions = places
