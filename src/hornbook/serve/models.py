"""The served models: what each can do, and the operations that answer requests.

An operation takes a list of items and returns one result per item, so that the engine can run the items of several
requests at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hornbook.inference.decoder import DecoderModel
from hornbook.inference.encoder import EncoderModel
from hornbook.inference.explaining import explain
from hornbook.inference.load import load
from hornbook.inference.predictor import Predictor, load_predictor
from hornbook.interop.files import holds_gpt
from hornbook.interop.hub import HANGUL, model_folder
from hornbook.interop.onnx import is_exported
from hornbook.models.gpt import Gpt
from hornbook.nn.int8 import WeightFormat
from hornbook.report.explained import with_drawn_paths
from hornbook.serve.engine import BatchEngine, Engine, GenerationEngine
from hornbook.show.parameters import network_parameters, on_meta_device
from hornbook.show.translations import Language
from hornbook.text.tokenizer import Tokenizer

HANGUL_FRACTION = 0.2  # of the vocabulary, above which a model is Korean


@dataclass
class ServedModel:
    """A model under the name that requests use. `loaded` is None for an exported model, which only predicts."""

    name: str
    tokenizer: Tokenizer
    folder: Path
    loaded: EncoderModel | DecoderModel | None = None
    predictor: Predictor | None = None
    engine: BatchEngine | None = None
    generator: GenerationEngine | None = None

    @property
    def engines(self) -> list[Engine]:
        return [each for each in (self.engine, self.generator) if each is not None]

    @cached_property
    def abilities(self) -> dict[str, str | None]:
        """What the model can do: the names of operations; for `predict`, with the kind of task."""
        names: list[str] = []
        model = self.loaded
        if self.predictor is not None:
            names += ["predict"] if self.predictor.members[0].grounder is None else ["predict", "explain"]
        if isinstance(model, DecoderModel) and "clm" in model.model.heads:
            names.append("generate")
        if isinstance(model, EncoderModel):
            names += self._encoder_abilities(model)
        network = self.predictor.members[0].model if model is None else model.model
        is_left_to_right = isinstance(model, DecoderModel) or network.config.direction == "causal"
        can_mask = self.tokenizer.mask_id is not None and not is_left_to_right
        names += ["tokens", "masking"] if can_mask else ["tokens"]
        names += ["forms"] if model is None else ["attention", "forms", "parameters"]
        return {name: self.predictor.task.kind if name == "predict" else None for name in names}

    @staticmethod
    def _encoder_abilities(model: EncoderModel) -> list[str]:
        names = ["embed"]
        heads, is_bidirectional = model.model.heads, not model.is_left_to_right
        try:
            fills = model.masked_lm is not None and model.tokenizer.mask_token is not None
        except ValueError:
            fills = False
        if fills:
            names.append("fill-mask")
        if is_bidirectional and {"sentence", "pooler"} <= set(heads):
            names.append("next-sentence")
        if "rtd" in heads:
            names += ["detect", "replaced"] if fills else ["detect"]
        return names

    def described(self) -> dict[str, Any]:
        """The model for the page: its name, family, abilities, and details of its task."""
        description: dict[str, Any] = {"name": self.name, "abilities": self.abilities, "language": self.language}
        if self.loaded is not None:
            config = self.loaded.model.config
            description |= {"family": self.loaded.model.model_type, "max_positions": config.max_positions}
        if self.predictor is not None:
            spec = self.predictor.spec
            labels = list(self.predictor.labels)
            description["task"] = {"kind": spec.task.kind, "labels": labels, "has_pairs": bool(spec.has_pairs)}
        return description

    @cached_property
    def language(self) -> str:
        """The language of the examples on the page: Korean if much of the vocabulary is Hangul."""
        tokens = self.tokenizer.backend.decode_batch([[token] for token in range(self.tokenizer.vocab_size)])
        num_hangul = sum(any(ord(letter) in HANGUL for letter in token) for token in tokens)
        return "ko" if num_hangul > HANGUL_FRACTION * len(tokens) else "en"

    @cached_property
    def is_gpt(self) -> bool:
        return holds_gpt(self.folder) if self.loaded is None else isinstance(self.loaded.model, Gpt)

    def public(self, message: str) -> str:
        """An error message without the path of the folder."""
        return message.replace(str(self.folder), self.name)

    def count(self, texts: Sequence[str]) -> int:
        """The number of tokens of texts, with the special tokens that an encoder adds."""
        num_special = 0 if isinstance(self.loaded, DecoderModel) else self.tokenizer.num_special(False)
        return sum(len(each.ids) + num_special for each in self.tokenizer.encode_batch(list(texts)))

    # ---- operations: items to results

    def next_sentence(self, pairs: list[tuple[str, str]]) -> list[float]:
        return [self.loaded.next_sentence(*pair) for pair in pairs]

    def predict(self, items: list) -> list[dict]:
        return self.predictor.describe(items, self.predictor.predict_all(items))

    def explain(self, items: list[tuple[str, list[str], str | None]]) -> list[dict]:
        return [with_drawn_paths(explain(self.predictor, *item).to_dict()) for item in items]

    def show_parameters(self, language: Language) -> dict:
        return network_parameters(on_meta_device(self.loaded.model), self.name, language).to_dict()


def open_models(names: Sequence[str], device: str = "auto", weights: WeightFormat = "float") -> dict[str, ServedModel]:
    """Loads the models, by the name under which each is served: the last part of its path, or all of it where two would
    be the same."""
    short_names = [Path(name).name or name for name in names]
    served = {}
    for name, short_name in zip(names, short_names, strict=True):
        served_name = short_name if short_names.count(short_name) == 1 else name
        if served_name in served:
            raise ValueError(f"{name} is given twice: give each model once")
        served[served_name] = _open_model(served_name, name, device, weights)
    return served


def _open_model(served_name: str, name: str, device: str, weights: WeightFormat) -> ServedModel:
    folder = model_folder(name)
    if is_exported(folder):
        predictor = load_predictor(name, device)
        return ServedModel(served_name, predictor.tokenizer, folder, predictor=predictor)
    loaded = load(name, weights if weights == "float" or holds_gpt(folder) else "float", device)
    predictor = loaded.predictor if loaded.model.head_config is not None else None
    return ServedModel(served_name, loaded.tokenizer, folder, loaded, predictor)
