"""`hornbook.load`: opens a model to use it."""

from pathlib import Path
from typing import Literal

from torch import nn

from hornbook.config import checked
from hornbook.devices import chosen_device
from hornbook.inference.decoder import DecoderModel
from hornbook.inference.encoder import EncoderModel
from hornbook.interop.folder import load_folder
from hornbook.interop.hub import DEFAULT, model_folder, shown_name
from hornbook.models.gpt import Gpt
from hornbook.nn.int8 import WeightFormat
from hornbook.nn.single_token import linear_layers, to_column_major


def load(
    name: str | Path | None = None,
    weights: WeightFormat = "float",
    device: str = "auto",
    direction: Literal["causal", "bidirectional"] | None = None,
) -> EncoderModel | DecoderModel:
    """Loads a model for inference.

    Args:
        name: A run folder, a folder that `transformers` wrote, a Hugging Face name, or a built-in model: by default the
            English one, `en`.
        weights: `int8` quantises the matrices of a GPT to 8 bits, which is faster on a CPU; CPU only.
        device: `cpu`, `cuda`, `cuda:1`; defaults to a GPU if there is one.
        direction: How a hybrid GPT, which learned both, reads: `causal` (the default) to generate and score texts,
            `bidirectional` as an encoder.

    Returns:
        An encoder (`fill_mask`, `embed`, `score` ...) or a GPT (`generate`, `score`, `perplexity`). A fine-tuned run
        also has `predict` and `evaluate`.

    >>> import hornbook
    >>> hornbook.load().fill_mask("The book was [MASK] in 1998.")[0][0].word
    'published'
    >>> hornbook.load("runs/first").embed(["a text", "another"]).shape
    (2, 32)
    >>> hornbook.load("runs/reviews").predict(["A charming journey."])[0].label in ("good", "bad")
    True
    """
    checked(weights, WeightFormat, "weights")
    if weights == "int8" and device not in ("auto", "cpu"):
        raise ValueError(f"int8 weights run on a CPU only: use float weights on {device}, or device cpu")
    device = "cpu" if weights == "int8" else chosen_device(device)
    folder = model_folder(DEFAULT if name is None else name)
    model, tokenizer = load_folder(folder)
    if weights == "int8":
        if not isinstance(model, Gpt):
            raise ValueError(
                f"{shown_name(folder)} is {model.described()}: int8 weights are for GPT models only; use float weights"
            )
        model.quantize()
    elif isinstance(model, Gpt) and device == "cpu":
        to_column_major(gpt_matrices(model))
    opened = (DecoderModel if isinstance(model, Gpt) else EncoderModel)(model.to(device), tokenizer, folder)
    if direction == "bidirectional" and isinstance(opened, DecoderModel):
        return opened.encoder
    if direction is not None and (direction != "causal" or isinstance(opened, EncoderModel)):
        raise ValueError(f"{shown_name(folder)} is {model.described()}; direction is for a hybrid GPT: leave it out")
    return opened


def gpt_matrices(model: Gpt) -> list[nn.Linear | nn.Embedding]:
    """The layers whose weights are read for every generated token: those of the blocks, and the vocabulary."""
    return [*linear_layers(model.blocks), model.embeddings.tokens]
