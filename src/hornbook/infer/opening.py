"""From a name to a model that is ready to use."""

from pathlib import Path

from hornbook.infer.decoder import DecoderModel
from hornbook.infer.encoder import EncoderModel
from hornbook.interop.folder import load_folder
from hornbook.interop.hub import model_folder
from hornbook.models.gpt import Gpt
from hornbook.models.quantized import Weights, check_weights, quantize


def load(name: str | Path, weights: Weights = "float") -> EncoderModel | DecoderModel:
    """Opens a run folder, a folder that `transformers` wrote, or a Hugging Face name. `weights="int8"` rounds the
    matrices of a GPT to 8 bits, which makes it write faster on a CPU."""
    check_weights(weights)
    folder = model_folder(name)
    model, tokenizer = load_folder(folder)
    if weights == "int8":
        if not isinstance(model, Gpt):
            raise ValueError(f"{folder} is a {model.family}: int8 weights are for models that go on with a text (GPT)")
        quantize(model)
    kind = DecoderModel if isinstance(model, Gpt) else EncoderModel
    return kind(model, tokenizer, folder)
