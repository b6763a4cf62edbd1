"""From a name to a model that is ready to use."""

from pathlib import Path

from torch import nn

from hornbook.devices import chosen_device
from hornbook.infer.decoder import DecoderModel
from hornbook.infer.encoder import EncoderModel
from hornbook.interop.folder import load_folder
from hornbook.interop.hub import model_folder
from hornbook.models.gpt import Gpt
from hornbook.models.quantized import Weights, check_weights, quantize


def load(name: str | Path, weights: Weights = "float", device: str = "auto") -> EncoderModel | DecoderModel:
    """Opens a run folder, a folder that `transformers` wrote, or a Hugging Face name, on a GPU where there is one, or
    on the `device` that is said (cpu, cuda, cuda:1). `weights="int8"` rounds the matrices of a GPT to 8 bits, which
    makes it write faster on a CPU, and there only."""
    check_weights(weights)
    if weights == "int8" and device not in ("auto", "cpu"):
        raise ValueError(f"int8 weights are for a CPU: leave out the device {device}, or the int8")
    device = "cpu" if weights == "int8" else chosen_device(device)
    folder = model_folder(name)
    model, tokenizer = load_folder(folder)
    if weights == "int8":
        if not isinstance(model, Gpt):
            raise ValueError(f"{folder} is a {model.family}: int8 weights are for models that go on with a text (GPT)")
        quantize(model)
    elif isinstance(model, Gpt) and device == "cpu":
        lay_in_columns(model)
    kind = DecoderModel if isinstance(model, Gpt) else EncoderModel
    return kind(model.to(device), tokenizer, folder)


def lay_in_columns(model: Gpt) -> None:
    """Lays the matrices so that a column lies together, as GPT-2's folders have them: for a single token a CPU reads
    the blocks 1.1 x and the vocabulary 1.3 x as fast. Shapes and values stay."""
    parts = [part for block in model.blocks for part in block.modules() if isinstance(part, nn.Linear)]
    for part in (*parts, model.embeddings.tokens):
        part.weight.data = part.weight.data.t().contiguous().t()
