"""From a name to a model that is ready to use."""

from pathlib import Path

from hornbook.infer.decoder import DecoderModel
from hornbook.infer.encoder import EncoderModel
from hornbook.interop.folder import load_folder
from hornbook.interop.hub import model_folder
from hornbook.models.gpt import Gpt


def load(name: str | Path) -> EncoderModel | DecoderModel:
    """Opens a run folder, a folder that `transformers` wrote, or a Hugging Face name."""
    folder = model_folder(name)
    model, tokenizer = load_folder(folder)
    kind = DecoderModel if isinstance(model, Gpt) else EncoderModel
    return kind(model, tokenizer, folder)
