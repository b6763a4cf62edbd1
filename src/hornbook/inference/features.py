"""Frozen features: hidden states of chosen layers, one vector per text or per token, written to a NumPy file.

extract_features("runs/first", ["a text", "another"], "X.npy", layers="last4", pooling="cls")
numpy.load("X.npy").shape                                         # (2, 4 x width)

With `pooling="none"` X.npy holds the tokens of all texts concatenated, and X.offsets.npy the first row of each text.

Shapes: T tokens, N sequences, D width, F width of the features.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor, nn

from hornbook.batch import Batch, length_batches, pack, to_offsets
from hornbook.data.problems import Problems
from hornbook.data.shards import write_array
from hornbook.devices import chosen_device, device_of, evaluation_mode
from hornbook.files import refuse_beyond_disk, replacing
from hornbook.interop.folder import load_folder
from hornbook.interop.hub import builtin_for, model_folder
from hornbook.lifecycle.locking import file_lock, locking
from hornbook.models.gpt import Gpt
from hornbook.models.heads import pool_tokens
from hornbook.tasks.datasets import find_task
from hornbook.tasks.kinds.sequence import encode_texts
from hornbook.tasks.reading.inputs import inputs_in
from hornbook.tasks.reading.reader import Reader
from hornbook.tasks.records import TextExample
from hornbook.text.tokenizer import Tokenizer

Pooling = Literal["cls", "lasttoken", "mean", "none"]
BATCH_TOKENS = 8_192  # tokens per forward pass, which keeps the hidden states of all layers
TEXTS_AT_ONCE = 4_096  # tokenized and sorted by length together
TEXTS_PER_REPORT = 64
DEFAULT_LAYERS = "last4"


class Layers(NamedTuple):
    """The `numbers` of hidden states (0: embeddings, 1 to L: blocks), which are concatenated or averaged."""

    numbers: tuple[int, ...]
    is_mean: bool = False

    def width(self, model_width: int) -> int:
        return model_width * (1 if self.is_mean else len(self.numbers))


@dataclass(frozen=True)
class ExtractedFeatures:
    """The file that was written, with one row per text (or per token), and log lines and problems of the input."""

    out: Path
    num_texts: int
    num_rows: int
    width: int
    num_truncated: int = 0
    messages: tuple[str, ...] = ()
    problems: Problems = field(default_factory=Problems)


def choose_layers(layers: str, num_layers: int) -> Layers:
    """Parses a choice of layers: `last`, `last4` (the last four blocks in ascending order; all of a smaller model),
    `all` (blocks), `embeddings`, or numbers such as `1,2,-1` (0: embeddings, -1: last block); with the prefix `mean-`
    they are averaged.

    >>> choose_layers("last4", 12).numbers
    (9, 10, 11, 12)
    """
    name = layers.strip().lower()
    is_mean = name.startswith("mean-")
    name = name.removeprefix("mean-")
    last = re.fullmatch(r"last(\d*)", name)
    count = int(last[1] or 1) if last else 0
    if count > num_layers and name != DEFAULT_LAYERS:
        raise ValueError(f"the model has {num_layers} layers, not {count}: use last{num_layers}, or all")
    if count:
        numbers = range(max(num_layers - count, 0) + 1, num_layers + 1)
    elif name == "all":
        numbers = range(1, num_layers + 1)
    elif name == "embeddings":
        numbers = [0]
    elif re.fullmatch(r"\s*-?\d+\s*(,\s*-?\d+\s*)*", name):
        numbers = [int(layer) for layer in name.split(",")]
    else:
        raise ValueError(
            f"there are no layers '{layers}': use last, last4, all, embeddings, numbers such as 1,2,-1, or mean-last4"
        )
    for layer in numbers:
        if not -num_layers <= layer <= num_layers:
            raise ValueError(
                f"there is no layer {layer}: the model has 0 (embeddings) to {num_layers}, or -1 for the last"
            )
    return Layers(tuple(layer % (num_layers + 1) for layer in numbers), is_mean)


@torch.no_grad()
def frozen_states(model: nn.Module, batch: Batch, layers: Layers) -> Tensor:
    """Returns the chosen hidden states of each token, T x F, float32."""
    states = model.hidden_states(batch)
    chosen = [states[layer].float() for layer in layers.numbers]
    return torch.stack(chosen).mean(0) if layers.is_mean else torch.cat(chosen, -1)


def choose_pooling(pooling: Pooling | None, model: nn.Module) -> Pooling:
    """The pooling of the model's texts, by default the token that its task heads read; refuses the first token of a
    causal model."""
    pooling = pooling or model.sequence_pooling
    if pooling not in get_args(Pooling):
        raise ValueError(f"pooling must be cls, lasttoken, mean or none, not '{pooling}'")
    if pooling == "cls" and model.config.direction == "causal":
        raise ValueError("the first token of a causal model attends to no other: give pooling='lasttoken' or 'mean'")
    return pooling


def frozen_sequences(
    model: nn.Module,
    ids: Sequence[Sequence[int]],
    segments: Sequence[Sequence[int]],
    layers: Layers,
    pooling: Pooling,
) -> Iterator[tuple[int, np.ndarray]]:
    """Yields (index of the sequence, its vector, or its rows without pooling), short sequences first. Sequences without
    tokens are skipped."""
    lengths = {i: len(each) for i, each in enumerate(ids) if len(each)}
    with evaluation_mode(model):
        for indices in length_batches(lengths, BATCH_TOKENS):
            batch = pack([ids[i] for i in indices], [segments[i] for i in indices]).to(device_of(model))
            x_TF = frozen_states(model, batch, layers)
            x_F = (x_TF if pooling == "none" else pool_tokens(x_TF, batch, pooling)).cpu().numpy()
            yield from zip(indices, np.split(x_F, batch.offsets_host[1:-1]) if pooling == "none" else x_F, strict=True)


def _npy_file(out: str | Path) -> Path:
    return Path(out) if str(out).endswith(".npy") else Path(f"{out}.npy")


@partial(locking, lambda out: file_lock(_npy_file(out)))
def extract_features(
    model: str | Path | None,
    texts: str | Path | Sequence[str],
    out: str | Path,
    *,
    layers: str = DEFAULT_LAYERS,
    pooling: Pooling | None = None,
    text: str | None = None,
    pair: str | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    strict: bool = False,
    device: str = "auto",
    on_progress: Callable[[int, int], None] | None = None,
) -> ExtractedFeatures:
    """Writes the features of every text to `out`, in the order of the texts. A text longer than the model allows is
    truncated and counted; an empty text, or a row that cannot be read, still has its row in the output. The output file
    is memory-mapped, so the features need not fit in memory.

    Args:
        model: A model folder or name; None: the built-in model for the language of the texts.
        texts: A list, or a file: `.txt` with one text per line, or a table (CSV, TSV, JSON, Parquet, Excel).
        out: The `.npy` file.
        layers: Which hidden states, as `choose_layers` parses them.
        pooling: `cls` (the first token, the default), `lasttoken` (the default for a causal model), `mean` over all
            tokens including special ones, or `none`, which writes every token.
        text, pair: Column names of a table; inferred by default.
        delimiter, encoding: Of a text file; inferred by default.
        strict: Raise a `ValueError` at the first bad row.
        device: `cpu`, `cuda`, `cuda:1`; defaults to a GPU if there is one.
        on_progress: Called with (texts done, number of texts).

    >>> import hornbook
    >>> written = hornbook.extract_features("runs/first", ["a text", "another"], "vectors.npy", layers="last")
    >>> written.num_texts, written.width
    (2, 32)
    """
    reading = {"text": text, "pair": pair, "delimiter": delimiter, "encoding": encoding, "strict": strict}
    reader = Reader.of(needs_labels=False, **reading)
    examples = _examples(texts, reader)
    model = model or builtin_for(text for example in examples for text in example.texts)
    network, tokenizer = load_folder(model_folder(model))
    if isinstance(network, Gpt) and network.config.is_hybrid:
        network = network.with_direction("bidirectional")
    network.to(chosen_device(device))
    pooling, chosen = choose_pooling(pooling, network), choose_layers(layers, network.config.num_layers)
    encoded = partial(_encoded, examples, tokenizer, network.config.max_positions)
    num_rows_of = [1] * len(examples)
    if pooling == "none":  # tokenizes twice: for the number of rows of each text, and to run the model
        num_rows_of = [len(each.ids) for chunk in encoded() for each in chunk.encodings]
    offsets, width, out = to_offsets(num_rows_of), chosen.width(network.config.width), _npy_file(out)
    num_rows = int(offsets[-1])
    # Writing a memory-mapped file to a full disk would kill the process.
    out.parent.mkdir(parents=True, exist_ok=True)
    advice = "choose fewer layers (last, mean-last4), pool them, or write elsewhere"
    refuse_beyond_disk(out.parent, num_rows * width * 4, "the features need", advice)
    with replacing(out) as temporary:
        rows = np.lib.format.open_memmap(temporary, "w+", np.float32, (num_rows, width))
        num_truncated = num_done = 0
        for chunk in encoded():
            num_truncated += chunk.num_truncated
            for text, vectors in _features(network, chunk, chosen, pooling):
                rows[offsets[text] : offsets[text + 1]] = vectors
                num_done += 1
                if on_progress and (num_done % TEXTS_PER_REPORT == 0 or num_done == len(examples)):
                    on_progress(num_done, len(examples))
        rows.flush()
        del rows
        offsets_file = out.with_suffix(".offsets.npy")
        offsets_file.unlink(missing_ok=True)
        if pooling == "none":
            write_array(offsets_file, offsets)
    info = (len(examples), num_rows, width, num_truncated)
    return ExtractedFeatures(out, *info, tuple(reader.messages), reader.problems)


def _examples(texts: str | Path | Sequence[str], reader: Reader) -> list[TextExample]:
    if isinstance(texts, str | Path):
        return inputs_in(texts, find_task("classification"), reader)
    examples = [TextExample(str(i), str(each)) for i, each in enumerate(texts)]
    if not examples:
        raise ValueError("there are no texts in the list: give at least one")
    return examples


class _Chunk(NamedTuple):
    """Some of the texts, encoded; `first` is the index of the first one."""

    first: int
    encodings: list
    num_truncated: int


def _encoded(examples: list[TextExample], tokenizer: Tokenizer, max_length: int) -> Iterator[_Chunk]:
    for first in range(0, len(examples), TEXTS_AT_ONCE):
        yield _Chunk(first, *encode_texts(examples[first : first + TEXTS_AT_ONCE], tokenizer, max_length))


def _features(network: nn.Module, chunk: _Chunk, layers: Layers, pooling: Pooling) -> Iterator[tuple[int, np.ndarray]]:
    """Yields (index of the text, its rows), short texts first."""
    ids, segments = [each.ids for each in chunk.encodings], [each.type_ids for each in chunk.encodings]
    for i, vectors in frozen_sequences(network, ids, segments, layers, pooling):
        yield chunk.first + i, vectors
